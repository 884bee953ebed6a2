"""What reading costs in every format: milliseconds per megapixel, here and through the limited child process.

    python bench/reader_cost.py [--side 4096] [--repeats 3] [--slides FOLDER]

A picture with noise, as hard to compress as a scan, is written in each format and read whole in windows of 512 pixels,
each pixel once ("read"), and once more in windows that overlap by half ("overlapping": four times as many pixels are
asked for, and what is decoded twice shows). Processor time of all threads, and of the child; the least of some
repeats, since others' work on the machine only adds. `--slides` adds real files. Prints a table.

`--threads` measures something else: JPEG 2000 by the clock, read by OpenSlide with one decoding thread and with two, in
turns, beside the processor time of the same tiles in imagecodecs and Pillow, and by how much their pixels differ.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path

import numpy as np
import tifffile

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "src")]

from tests.wsi import making

from ntrm.core.errors import NtrmError
from ntrm.wsi.isolated import ReadingProcess
from ntrm.wsi.readers.formats import open_slide
from ntrm.wsi.readers.openslide_reader import OpenSlideReader
from ntrm.wsi.readers.reader import SlideInfo, SlideReader

WINDOW = 512
TILE = (256, 256)
LEAST_PIXELS = 2_000_000


def written(folder: Path, side: int) -> Iterator[tuple[str, Path]]:
    """The same picture in every format that can be written here."""
    image = making.tissue(np.random.default_rng(0), side, side)
    text = f"Aperio Image Library v11.2.1 \r\n{side}x{side} [0,0 {side}x{side}] (256x256) JPEG/RGB Q=85|MPP = 0.5"
    common = {"photometric": "rgb", "metadata": None, **making.per_cm(0.5)}

    def tiled(**options: object) -> Callable[[Path], object]:
        return lambda path: tifffile.imwrite(path, image, tile=TILE, **common, **options)

    def svs(**options: object) -> Callable[[Path], None]:
        def write(path: Path) -> None:
            with tifffile.TiffWriter(path) as tif:
                tif.write(image, tile=TILE, description=text, photometric="rgb", metadata=None, **options)
                tif.write(image[::16, ::16], description=text, photometric="rgb", metadata=None, rowsperstrip=16)

        return write

    jpeg = {"compression": "jpeg", "compressionargs": {"level": 85}}
    writers: dict[str, Callable[[Path], object]] = {
        "SVS, JPEG": svs(**jpeg),
        "SVS, JPEG 2000": svs(compression=33005, compressionargs={"level": 40}),
        "tiled TIFF, JPEG": tiled(**jpeg),
        "tiled TIFF, deflate": tiled(compression="zlib"),
        "tiled TIFF, raw": tiled(),
        "OME-TIFF, deflate": lambda path: making.write_ome(path, image, levels=1, compression="zlib"),
        "OME-TIFF, JPEG": lambda path: making.write_ome(path, image, levels=1, **jpeg),
        "SCN, raw": lambda path: making.write_scn(path, image, (300, 200), (side + 900, side + 900)),
        "TIFF in strips, deflate": lambda path: making.write_strips(path, image, rows=64, compression="zlib"),
        "TIFF in strips, raw": lambda path: making.write_strips(path, image, rows=64),
        "PNG": lambda path: making.write_png(path, image, 0.5),
        "JPEG": lambda path: making.write_jpeg(path, image, 0.5, quality=85),
    }
    for name, write in writers.items():
        path = folder / name.replace(" ", "_")
        write(path)
        yield name, path


class Child:
    """A reading process that has begun, so that its start is no part of the figures."""

    def __init__(self, folder: Path) -> None:
        self.process = ReadingProcess()
        blank = making.write_png(folder / "blank", np.zeros((8, 8, 3), dtype=np.uint8), 0.5)
        self.process.open(blank)

    def open(self, path: Path) -> SlideInfo:
        return self.process.open(path)

    def read(self, *region: int) -> object:
        return self.process.read(*region)

    def seconds(self) -> float:
        """Of all its threads, and of this process."""
        tasks = Path(f"/proc/{self.process._child.pid}/task").glob("*/schedstat")
        return time.process_time() + sum(int(each.read_text().split()[0]) for each in tasks) / 1e9


class Here:
    """Reads in this process."""

    def __init__(self, opened: Callable[[Path], SlideReader]) -> None:
        self.opened = opened

    def open(self, path: Path) -> SlideInfo:
        self.slide = self.opened(path)
        return self.slide.info

    def read(self, *region: int) -> object:
        return self.slide.read(*region)

    def seconds(self) -> float:
        return time.process_time()


def least(reader: Here | Child, path: Path, step: int, repeats: int) -> float:
    return min(cost(reader, path, step) for _ in range(repeats))


def cost(reader: Here | Child, path: Path, step: int) -> float:
    """Milliseconds per megapixel of the slide, opening included: some formats are decoded then."""
    start = reader.seconds()
    left, top, wide, tall = reader.open(path).area
    for y in range(top, top + tall, step):
        for x in range(left, left + wide, step):
            reader.read(x, y, min(WINDOW, left + wide - x), min(WINDOW, top + tall - y), 0)
    return (reader.seconds() - start) * 1e9 / (wide * tall)


def row(name: str, path: Path, scratch: Path, repeats: int) -> str:
    with closing(open_slide(path)) as slide:
        reader = slide.info.reader
    here, child = Here(open_slide), Child(scratch)
    tries = ((here, WINDOW), (here, WINDOW // 2), (child, WINDOW))
    figures = [least(each, path, step, repeats) for each, step in tries]
    child.process.close()
    try:
        figures.append(least(Here(OpenSlideReader), path, WINDOW, repeats))
    except NtrmError:
        figures.append(float("nan"))
    cells = [name, reader, *("-" if np.isnan(figure) else f"{figure:.1f}" for figure in figures)]
    return "| " + " | ".join(cells) + " |"


def large(folder: Path) -> Iterator[Path]:
    """Slides of more than two megapixels: of smaller ones the figures are those of opening."""
    for path in sorted(folder.iterdir()):
        try:
            with closing(open_slide(path)) as slide:
                enough = slide.info.width * slide.info.height > LEAST_PIXELS
        except NtrmError:
            continue
        if enough:
            yield path


def clock(path: Path, side: int, threads: int) -> tuple[float, np.ndarray]:
    """Milliseconds per megapixel by the clock, in regions of two tiles by two, and the pixels."""
    found = np.empty((side, side, 3), dtype=np.uint8)
    with closing(OpenSlideReader(path)) as slide:
        slide._threads = threads
        start = time.perf_counter()
        for y in range(0, side, WINDOW):
            for x in range(0, side, WINDOW):
                found[y : y + WINDOW, x : x + WINDOW] = slide.read(x, y, WINDOW, WINDOW, 0)
        return (time.perf_counter() - start) * 1e9 / side**2, found


def other_decoders(path: Path, side: int) -> Iterator[tuple[str, float, np.ndarray]]:
    """Name, processor milliseconds per megapixel and pixels of decoders that take a tile as it lies in the file."""
    import imagecodecs
    from PIL import Image

    with tifffile.TiffFile(path) as tif, path.open("rb") as stream:
        page = tif.pages.first
        places = [*zip(page.dataoffsets, page.databytecounts, strict=True)]
        tiles = [(stream.seek(offset), stream.read(count))[1] for offset, count in places]
    across = side // TILE[0]
    decoders = {"imagecodecs": imagecodecs.jpeg2k_decode, "Pillow": lambda data: np.asarray(Image.open(BytesIO(data)))}
    for name, decode in decoders.items():
        start = time.process_time()
        decoded = [decode(tile) for tile in tiles]
        cost = (time.process_time() - start) * 1e9 / side**2
        rows = [np.concatenate(decoded[i : i + across], axis=1) for i in range(0, len(decoded), across)]
        yield name, cost, np.concatenate(rows)


def compare_threads(path: Path, side: int, repeats: int) -> None:
    for _ in range(repeats):
        (one, alone), (two, together) = (clock(path, side, threads) for threads in (1, 2))
        same = "the same pixels" if np.array_equal(alone, together) else "OTHER PIXELS"
        print(f"by the clock: one thread {one:.0f}, two {two:.0f} ms per megapixel, ratio {one / two:.2f}, {same}")
    start = time.process_time()
    clock(path, side, 1)
    print(f"processor: OpenSlide {(time.process_time() - start) * 1e9 / side**2:.0f} ms per megapixel")
    for name, cost, pixels in other_decoders(path, side):
        apart = np.abs(pixels.astype(int) - alone)
        print(f"processor: {name} {cost:.0f}; {(apart > 0).mean():.2%} of values differ, by at most {apart.max()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=4096)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--slides", type=Path, help="folder with real slides")
    parser.add_argument("--threads", action="store_true", help="JPEG 2000 alone, with one thread and with two")
    args = parser.parse_args()
    if args.threads:
        with tempfile.TemporaryDirectory() as scratch:
            path = next(path for name, path in written(Path(scratch), args.side) if name == "SVS, JPEG 2000")
            compare_threads(path, args.side, args.repeats)
        return
    head = ["format", "reader", "read", "overlapping", "in a child", "OpenSlide itself"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    with tempfile.TemporaryDirectory() as scratch:
        for name, path in written(Path(scratch), args.side):
            print(row(name, path, Path(scratch), args.repeats), flush=True)
            path.unlink()
        for path in large(args.slides) if args.slides else ():
            print(row(path.name, path, Path(scratch), args.repeats), flush=True)


if __name__ == "__main__":
    main()
