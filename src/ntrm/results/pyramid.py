"""A mask as ``ntrm.export`` writes it: a TIFF of one byte a pixel, in tiles of zlib, with coarser levels.

Read here and not by a library, since such a file may come from anybody: nothing else is decoded, each tile is unpacked
to its size and no further, and no list in the file is read that is longer than it can be.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

MOST_SIDE, MOST_TILE, MOST_LEVELS = 2**24, 1024, 24
MOST_PIXELS = 2**31
"""Of a level that is read whole."""
MOST_LISTED = 2**26
"""Bytes of a value of the header, such as the places of all tiles."""
DEFLATE = (8, 32946)
_TYPES = {1: "B", 2: "B", 3: "<u2", 4: "<u4", 7: "B", 13: "<u4", 16: "<u8", 18: "<u8"}
_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _DESCRIPTION, _SAMPLES, _PREDICTOR = 256, 257, 258, 259, 270, 277, 317
_COLOURS, _TILE_WIDTH, _TILE_HEIGHT, _OFFSETS, _COUNTS, _LEVELS = 320, 322, 323, 324, 325, 330
_DEFAULTS = {_SAMPLES: 1, _PREDICTOR: 1}

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Level:
    """One of the sizes of a mask."""

    shape: tuple[int, int]
    tile: tuple[int, int]
    """Height and width of a tile."""
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]
    """Where the tiles lie in the file, row by row, and how long they are."""

    @property
    def across(self) -> int:
        """Tiles beside each other."""
        return -(-self.shape[1] // self.tile[1])


class Pyramid:
    """An open mask; safe to use from several threads. A ``ValueError`` or ``zlib.error`` where it is damaged."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._size = os.fstat(stream.fileno()).st_size
        magic = self._read(0, 4)
        if magic not in (b"II*\0", b"II+\0"):
            raise ValueError("no TIFF of ours")
        self._big = magic == b"II+\0"
        (first,) = struct.unpack("<Q", self._read(8, 8)) if self._big else struct.unpack("<I", self._read(4, 4))
        header = self._header(int(first))
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
        data = os.pread(self._stream.fileno(), count, offset)
        if len(data) < count:
            raise ValueError("the file was cut short")
        return data

    def _header(self, place: int) -> Mapping[int, tuple[int, int, bytes]]:
        """By tag: the type of its values, how many there are, and the values or where they lie."""
        form = struct.Struct("<HHQ8s" if self._big else "<HHI4s")
        start = struct.Struct("<Q" if self._big else "<H")
        (count,) = start.unpack(self._read(place, start.size))
        entries = self._read(place + start.size, int(count) * form.size) if count < 1000 else b""
        return {tag: (kind, int(many), value) for tag, kind, many, value in form.iter_unpack(entries)}

    def _values(self, header: Mapping[int, tuple[int, int, bytes]], tag: int) -> NDArray[np.integer]:
        if tag not in header and tag in _DEFAULTS:
            return np.array([_DEFAULTS[tag]])
        kind, many, value = header.get(tag, (0, 0, b""))
        if kind not in _TYPES or not many:
            raise ValueError(f"nothing under tag {tag}")
        dtype = np.dtype(_TYPES[kind])
        count = many * dtype.itemsize
        if count > MOST_LISTED:
            raise ValueError(f"a value of {count} bytes")
        content = value[:count] if count <= len(value) else self._read(int.from_bytes(value, "little"), count)
        return np.frombuffer(content, dtype=dtype)

    def _level(self, header: Mapping[int, tuple[int, int, bytes]]) -> Level:
        tags = (_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _SAMPLES, _PREDICTOR, _TILE_WIDTH, _TILE_HEIGHT)
        width, height, bits, compression, samples, predictor, wide, tall = (
            int(self._values(header, tag)[0]) for tag in tags
        )
        if (bits, samples, predictor) != (8, 1, 1) or compression not in DEFLATE:
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
