"""``mask.ome.tif`` read back: a TIFF of one byte a pixel, in tiles of zlib, with coarser levels, names and colours.

Read here and not by a library, since such a file may come from anybody: nothing else is decoded, each tile is unpacked
to its size and no further, and no list in the file is read that is longer than it can be.
"""

from __future__ import annotations

import hashlib
import html
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import NtrmError
from ntrm.core.labels import RGB, UNNAMED, LabelSchema, Mask, Tissue, rgb_of
from ntrm.results.documents import Summary, unusable
from ntrm.results.folder import SlideFolder
from ntrm.results.paths import MASK

MOST_SIDE, MOST_TILE, MOST_LEVELS = 2**24, 1024, 24
MOST_PIXELS = 2**31  # Of a level that is read whole
MOST_LISTED = 2**26  # Bytes of a value of the header, such as the places of all tiles
_TYPES = {1: "B", 2: "B", 3: "<u2", 4: "<u4", 7: "B", 13: "<u4", 16: "<u8", 18: "<u8"}
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _DESCRIPTION, _SAMPLES, _PREDICTOR = 256, 257, 258, 259, 270, 277, 317
_COLOURS, _TILE_WIDTH, _TILE_HEIGHT, _OFFSETS, _COUNTS, _LEVELS = 320, 322, 323, 324, 325, 330

_DAMAGES = (OSError, ValueError, TypeError, LookupError, MemoryError, zlib.error, struct.error)

Bytes = NDArray[np.uint8]
_Header = Mapping[int, tuple[int, int, bytes]]
"""By tag: the type of its values, how many there are, and the values or where they lie."""


@dataclass(frozen=True, eq=False)
class Level:
    """One of the sizes of a mask."""

    shape: tuple[int, int]
    tile: tuple[int, int]  # Height and width of a tile
    offsets: NDArray[np.int64]  # Where the tiles lie in the file, row by row
    counts: NDArray[np.int64]  # Their bytes

    @property
    def across(self) -> int:
        """Tiles beside each other."""
        return -(-self.shape[1] // self.tile[1])


class Pyramid:
    """An open mask; safe to use from several threads. A ``ValueError`` or ``zlib.error`` where it is damaged."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._lock = stream, Lock()
        self._size = stream.seek(0, 2)
        magic = self._read(0, 4)
        if magic not in (b"II*\0", b"II+\0"):
            raise ValueError("no TIFF of ours")
        self._big = magic == b"II+\0"
        header = self._header(int.from_bytes(self._read(8, 8) if self._big else self._read(4, 4), "little"))
        others = [int(place) for place in self._values(header, _LEVELS)] if _LEVELS in header else []
        if len(others) >= MOST_LEVELS:
            raise ValueError(f"{len(others)} levels")
        self.levels = tuple(self._level(each) for each in (header, *map(self._header, others)))
        """From the finest on."""
        if sum(int(level.counts.sum()) for level in self.levels) > self._size:
            raise ValueError("tiles that share their place in the file")
        self.description = self._values(header, _DESCRIPTION).tobytes().decode(errors="replace").strip("\0")
        colours = self._values(header, _COLOURS) if _COLOURS in header else np.zeros(0)
        self.colours = colours.reshape(3, -1).T
        """(256, 3) in 16 bits, by the value of a pixel; none for a map of another kind."""

    def tile(self, level: int, number: int) -> Bytes:
        """The pixels of a tile; beyond the border they may be anything."""
        of = self.levels[level]
        size = of.tile[0] * of.tile[1]
        content = zlib.decompressobj().decompress(self._read(int(of.offsets[number]), int(of.counts[number])), size)
        if len(content) < size:
            raise ValueError("a tile that is too short")
        return np.frombuffer(content, dtype=np.uint8).reshape(of.tile)

    def pixels(self, level: int = 0) -> Bytes:
        """(H, W) all pixels of a level."""
        of = self.levels[level]
        height, width = of.shape
        if height * width > MOST_PIXELS:
            raise ValueError(f"{width} × {height} pixels")
        out = np.empty(of.shape, dtype=np.uint8)
        for number in range(len(of.offsets)):
            top, left = number // of.across * of.tile[0], number % of.across * of.tile[1]
            place = out[top : top + of.tile[0], left : left + of.tile[1]]
            place[:] = self.tile(level, number)[: place.shape[0], : place.shape[1]]
        return out

    def close(self) -> None:
        """Close the file; twice does no harm."""
        self._stream.close()

    def _read(self, offset: int, count: int) -> bytes:
        """Exactly ``count`` bytes."""
        if not 0 <= offset <= self._size - count:
            raise ValueError("something beyond the end of the file")
        with self._lock:
            self._stream.seek(offset)
            data = self._stream.read(count)
        if len(data) < count:
            raise ValueError("the file was cut short")
        return data

    def _header(self, place: int) -> _Header:
        form = struct.Struct("<HHQ8s" if self._big else "<HHI4s")
        length = 8 if self._big else 2
        count = int.from_bytes(self._read(place, length), "little")
        entries = self._read(place + length, count * form.size) if count < 1000 else b""
        return {tag: (kind, int(many), value) for tag, kind, many, value in form.iter_unpack(entries)}

    def _values(self, header: _Header, tag: int) -> NDArray[np.integer]:
        kind, many, value = header.get(tag, (0, 0, b""))
        if kind not in _TYPES or not many:
            raise ValueError(f"nothing under tag {tag}")
        dtype = np.dtype(_TYPES[kind])
        count = many * dtype.itemsize
        if count > MOST_LISTED:
            raise ValueError(f"a value of {count} bytes")
        content = value[:count] if count <= len(value) else self._read(int.from_bytes(value, "little"), count)
        return np.frombuffer(content, dtype=dtype)

    def _level(self, header: _Header) -> Level:
        tags = (_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _SAMPLES, _PREDICTOR, _TILE_WIDTH, _TILE_HEIGHT)
        # What a TIFF does not tell of samples and of a predictor is 1; of all else 1 is refused here or below.
        width, height, bits, compression, samples, predictor, wide, tall = (
            int(self._values(header, tag)[0]) if tag in header else 1 for tag in tags
        )
        if (bits, samples, predictor) != (8, 1, 1) or compression not in (8, 32946):
            raise ValueError("no mask of ours")
        if not (0 < width <= MOST_SIDE and 0 < height <= MOST_SIDE and 0 < wide <= MOST_TILE and 0 < tall <= MOST_TILE):
            raise ValueError(f"{width} × {height} pixels in tiles of {wide} × {tall}")
        offsets, counts = (self._values(header, tag).astype(np.int64) for tag in (_OFFSETS, _COUNTS))
        level = Level((height, width), (tall, wide), offsets, counts)
        if not len(offsets) == len(counts) == level.across * -(-height // tall):
            raise ValueError(f"{min(len(offsets), len(counts))} tiles")
        # Pixels that cannot be compressed grow a little.
        if counts.min() < 0 or counts.max() > 2 * tall * wide + 1024:
            raise ValueError("a tile that is too long")
        return level


@contextmanager
def opened_mask(folder: Path) -> Iterator[Pyramid]:
    """The mask's file of a slide's folder; whatever is damaged in it is our error."""
    try:
        with SlideFolder(folder).open(MASK) as stream:
            yield Pyramid(stream)
    except FileNotFoundError as error:
        raise unusable(folder, f" has no {MASK}", "no such file") from error
    except _DAMAGES as error:
        raise unusable(folder, f": cannot read {MASK}", error or type(error).__name__) from error


def mask_sha256(folder: Path) -> str:
    """SHA-256 of the mask's file; an ``OSError`` where there is none."""
    with SlideFolder(folder).open(MASK) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def colours_in(stored: Pyramid) -> list[RGB]:
    """Colours of the classes, by index."""
    # A byte was scaled to 16 bits.
    return [rgb_of(colour) for colour in stored.colours[1:] // 257]


def labels_in(stored: Pyramid, shape: tuple[int, int]) -> Mask:
    """(H, W) classes of the finest level, 255 where nothing is known; refuses another ``shape``."""
    check_shape(stored, shape)
    # 0 is nothing, and becomes 255.
    return stored.pixels() - np.uint8(1)


def check_shape(stored: Pyramid, shape: tuple[int, int]) -> None:
    """A mask of another size is not the one that the documents speak of."""
    own = stored.levels[0].shape
    if own != shape:
        raise ValueError(f"{own[1]} × {own[0]} pixels, not {shape[1]} × {shape[0]}")


def schema_in(stored: Pyramid, summary: Summary) -> LabelSchema:
    """The classes of a slide's results; the background is the class that has no share of the tissue."""
    found = re.search(r'Namespace="ntrm/titles"><Value>(.*?)</Value>', stored.description, re.DOTALL)
    entries = re.findall(r"<M K=(?:\"([^\"]*)\"|'([^']*)')>([^<]*)</M>", found[1]) if found else []
    titles = {html.unescape(one or other): html.unescape(title) for one, other, title in entries}
    background = next((name for name in summary.classes if name not in summary.tissue_fractions), None)
    unnamed = UNNAMED if summary.model is None and UNNAMED in summary.classes else None
    colours = colours_in(stored)
    try:
        tissues = [Tissue(k, name, titles.get(name) or name, colours[k]) for k, name in enumerate(summary.classes)]
        return LabelSchema(tuple(tissues), background, unnamed=unnamed)
    except (NtrmError, IndexError) as error:
        raise ValueError("a mask of other classes") from error
