"""Thousands of damaged slides: only our own errors may come out of the readers, within stated memory and time.

    python bench/fuzz_readers.py --files 5000 --seed 0

Sound files of every kind are made, then cut, flipped, given huge sizes and wrong offsets, and read in a child process
as `ntrm segment` reads them. Prints one JSON document: what became of the files, by kind of file and by damage.
A file fails if it lets an error through that is not ours or that tells a name; a crash or a timeout of the child is
contained, and counted.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from bench.fuzzing import FAILED, Tally, finish, options
from tests.slides import making

from ntrm.core.errors import NtrmError
from ntrm.slides.isolated import ReadingLimits, ReadingProcess

Random = np.random.Generator
WORDS = (0, 1, 2, 3, 255, 256, 65_535, 65_536, 2**24, 2**31 - 1, 2**31, 2**32 - 1)
LIMITS = ReadingLimits(memory_mb=512, seconds=20)


def samples(folder: Path, random: Random) -> dict[str, Path]:
    """One sound file of each kind."""
    image = making.tissue(random, 150, 211)
    big = {"bigtiff": True}
    writers: dict[str, Callable[[Path], Path]] = {
        "svs": lambda path: making.write_svs(path, image),
        "scn": lambda path: making.write_scn(path, image),
        "tiled": lambda path: making.write_tiled(path, image),
        "tiled-jpeg": lambda path: making.write_tiled(path, image, compression="jpeg"),
        "ome": lambda path: making.write_ome(path, image),
        "ome-deflated": lambda path: making.write_ome(path, image, compression="zlib", predictor=True),
        "ome-planar": lambda path: making.write_ome(path, image, planar=True, compression="lzw"),
        "ome-jpeg2000": lambda path: making.write_ome(path, image, compression="jpeg2000"),
        "strips": lambda path: making.write_strips(path, image),
        "strips-big": lambda path: making.write_strips(path, image, compression="zlib", **big),
        "png": lambda path: making.write_png(path, image, 0.5),
        "jpeg": lambda path: making.write_jpeg(path, image, 0.5),
    }
    return {name: write(folder / name) for name, write in writers.items()}


def tag_places(path: Path) -> list[int]:
    """Where the directory entries of a TIFF file stand."""
    try:
        with tifffile.TiffFile(path) as tif:
            return [tag.offset for page in tif.pages for tag in page.tags]
    except tifffile.TiffFileError:
        return []


def cut(data: bytearray, random: Random, _tags: list[int]) -> bytearray:
    return data[: int(random.integers(0, len(data)))]


def flip(data: bytearray, random: Random, _tags: list[int]) -> bytearray:
    for place in random.integers(0, len(data), int(random.integers(1, 65))):
        data[place] ^= 1 << int(random.integers(0, 8))
    return data


def flip_start(data: bytearray, random: Random, _tags: list[int]) -> bytearray:
    for place in random.integers(0, min(len(data), 512), int(random.integers(1, 9))):
        data[place] = int(random.integers(0, 256))
    return data


def huge(data: bytearray, random: Random, tags: list[int]) -> bytearray:
    """Extreme values in the entries of directories, or in the header of other files."""
    for _ in range(int(random.integers(1, 4))):
        place = (
            int(random.choice(tags)) + 8
            if tags
            else 16 + 4 * int(random.integers(0, 2))
            if data.startswith(b"\x89PNG")
            else int(random.integers(8, 64))
        )
        order = "<" if data[:2] == b"II" else ">"
        data[place : place + 4] = struct.pack(f"{order}I", int(random.choice(WORDS)))
    if data.startswith(b"\x89PNG"):
        # With a right checksum, or the decoder would never see the size.
        data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    return data


def wrong_tag(data: bytearray, random: Random, tags: list[int]) -> bytearray:
    """Another type, count or offset in an entry."""
    if not tags:
        return flip_start(data, random, tags)
    start = int(random.choice(tags))
    for _ in range(int(random.integers(1, 4))):
        data[start + int(random.integers(0, 12))] = int(random.integers(0, 256))
    return data


def hole(data: bytearray, random: Random, _tags: list[int]) -> bytearray:
    start, length = int(random.integers(0, len(data))), int(random.integers(1, 5000))
    data[start : start + length] = bytes(len(data[start : start + length]))
    return data


def moved(data: bytearray, random: Random, _tags: list[int]) -> bytearray:
    """A part is taken out, so that everything behind it stands elsewhere."""
    start = int(random.integers(0, len(data)))
    del data[start : start + int(random.integers(1, 200))]
    return data


DAMAGES = {
    "cut": cut,
    "flipped": flip,
    "flipped start": flip_start,
    "huge": huge,
    "wrong tag": wrong_tag,
    "hole": hole,
    "moved": moved,
}


def mutated(folder: Path, random: Random, count: int) -> Iterator[tuple[str, str, Path]]:
    """(kind, damage, path) of damaged files; a path holds until the next is asked for."""
    sound = samples(folder, random)
    places = {kind: tag_places(path) for kind, path in sound.items()}
    kinds, damages = list(sound), list(DAMAGES)
    for number in range(count):
        kind, damage = kinds[number % len(kinds)], damages[number // len(kinds) % len(damages)]
        path = folder / f"damaged-{number}"
        path.write_bytes(DAMAGES[damage](bytearray(sound[kind].read_bytes()), random, places[kind]))
        yield kind, damage, path
        path.unlink()


def outcome(process: ReadingProcess, path: Path) -> str:
    """What becomes of one file; every level is read at its corners and beyond them."""
    try:
        info = process.open(path)
        for level, size in list(enumerate(info.levels))[:6]:
            for x, y in ((0, 0), (info.width // 2, info.height // 2), (info.width - 40, info.height - 40)):
                process.read(x, y, min(200, size.width + 9), min(200, size.height + 9), level)
    except NtrmError as error:
        if path.name in str(error) or making.NAME.split()[0] in str(error):
            return f"{FAILED}: names the file or quotes its header"
        if error.what != "reading the slide failed":
            return "refused"
        found = str(error.got)
        if "exit code" in found or "sense" in found or "shape" in found:
            return f"{FAILED}: {found}"
        return "contained: " + ("timeout" if "no answer" in found else "memory" if "MB" in found else found)
    return "read"


def fuzz(folder: Path, random: Random, count: int, limits: ReadingLimits = LIMITS) -> dict[str, Any]:
    """Damage ``count`` files and count what becomes of them."""
    process, tally, slowest = ReadingProcess(limits), Tally("kind"), 0.0
    for kind, damage, path in mutated(folder, random, count):
        if not process.alive:
            process.close()
            process = ReadingProcess(limits)
        before = time.monotonic()
        found = outcome(process, path)
        slowest = max(slowest, time.monotonic() - before)
        if tally.add(kind, damage, found, {"kind": kind, "damage": damage, "found": found, "file": path.name}):
            (folder / f"kept-{path.name}").write_bytes(path.read_bytes())
    process.close()
    return tally.document(limits.memory_mb, limits.seconds, slowest_s=round(slowest, 2))


def main() -> None:
    parser = options(__doc__, LIMITS.memory_mb)
    parser.add_argument("--keep", type=Path, help="folder for the files, of which failures stay")
    args = parser.parse_args()
    random = np.random.default_rng(args.seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        result = fuzz(folder, random, args.files, ReadingLimits(args.memory_mb, LIMITS.seconds))
    finish(result)


if __name__ == "__main__":
    main()
