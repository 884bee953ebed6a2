"""One page of a TIFF file: which of its strips or tiles a rectangle touches, and their pixels."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import numpy as np
import tifffile

from ntrm.errors import DataError
from ntrm.slide.reading.base import MAX_SIDE, Pixels, damaged
from ntrm.slide.reading.cache import ArrayCache
from ntrm.slide.reading.random_access import RandomAccess

MAX_PIECE_BYTES = 2**28
"""Largest strip or tile that is decoded; a file that is one compressed strip has to be decoded whole."""

_JPEG = (6, 7, 34892, 33007)
_EMPTY = 255


class Plane:
    """Pixels of a page."""

    def __init__(self, page: Any, file: RandomAccess, pieces: ArrayCache) -> None:
        key = page.keyframe
        self.width, self.height = int(key.imagewidth), int(key.imagelength)
        separate = key.planarconfig == 2
        self.samples = int(key.samplesperpixel)
        self._per_piece = 1 if separate else self.samples
        self._planes = self.samples if separate else 1
        tall = int(key.tilelength if key.is_tiled else key.rowsperstrip)
        wide = int(key.tilewidth if key.is_tiled else self.width)
        self.piece = wide, tall if key.is_tiled else min(tall, self.height)
        """Width and height of a strip or tile."""
        self._file, self._pieces = file, pieces
        self._check(key)
        self._offsets, self._counts = tuple(page.dataoffsets), tuple(page.databytecounts)
        self._check_table()
        self._decode = key.decode
        self._options = {"jpegtables": page.jpegtables, "jpegheader": key.jpegheader} if self._jpeg(key) else {}
        self._raw = self._is_raw(key)
        self._compression, self._tiled = int(key.compression), bool(key.is_tiled)

    @staticmethod
    def _jpeg(key: Any) -> bool:
        return key.compression in _JPEG

    def _check(self, key: Any) -> None:
        if not (0 < self.width <= MAX_SIDE and 0 < self.height <= MAX_SIDE and min(self.piece) > 0):
            raise damaged(f"a size of {self.width} × {self.height} in pieces of {self.piece[0]} × {self.piece[1]}")
        if max(self.piece) > MAX_SIDE or key.imagedepth != 1 or key.bitspersample != 8:
            raise damaged("pieces that no 8-bit image can have")
        if key.compression != 1 and key.compression not in tifffile.TIFF.DECOMPRESSORS:
            raise damaged(f"an unknown TIFF compression, {int(key.compression)}")

    def _check_table(self) -> None:
        wanted = self._across * self._down * self._planes
        found = min(len(self._offsets), len(self._counts))
        if found < wanted:
            raise damaged(f"{found} of {wanted} strips or tiles", "copy the file again; the transfer was cut short")

    @property
    def _across(self) -> int:
        return -(-self.width // self.piece[0])

    @property
    def _down(self) -> int:
        return -(-self.height // self.piece[1])

    def _is_raw(self, key: Any) -> bool:
        """Whether pixels lie in the file as they are, so that a row's part can be read by itself."""
        return bool(key.compression == 1 and key.predictor == 1 and key.fillorder == 1 and not key.is_subsampled)

    def holds_all(self, compressions: Container[int]) -> bool:
        """Whether it is RGB in tiles, all of them there, of one of these compressions."""
        wanted = self._across * self._down
        whole = min(self._offsets[:wanted], default=0) > 0 and min(self._counts[:wanted], default=0) > 0
        return self._tiled and self._per_piece == 3 and whole and self._compression in compressions

    def fullest(self) -> tuple[int, int]:
        """Column and row at which the strip or tile of most bytes begins."""
        counts = self._counts[: self._across * self._down]
        row, column = divmod(counts.index(max(counts)), self._across)
        return column * self.piece[0], row * self.piece[1]

    def read(self, left: int, top: int, width: int, height: int) -> Pixels:
        """(height, width, samples) of a rectangle inside the page."""
        out = np.empty((height, width, self.samples), dtype=np.uint8)
        wide, tall = self.piece
        for row in range(top // tall, -(-(top + height) // tall)):
            for column in range(left // wide, -(-(left + width) // wide)):
                y0, y1 = max(top, row * tall), min(top + height, (row + 1) * tall)
                x0, x1 = max(left, column * wide), min(left + width, (column + 1) * wide)
                goal = out[y0 - top : y1 - top, x0 - left : x1 - left]
                for plane in range(self._planes):
                    index = (plane * self._down + row) * self._across + column
                    where = y0 - row * tall, y1 - row * tall, x0 - column * wide, x1 - column * wide
                    goal[..., plane : plane + self._per_piece] = self._part(index, *where)
        return out

    def _part(self, index: int, y0: int, y1: int, x0: int, x1: int) -> Pixels:
        """Rows y0 … y1 and columns x0 … x1 of a strip or tile."""
        if self._offsets[index] <= 0 or self._counts[index] <= 0:
            return np.full((y1 - y0, x1 - x0, self._per_piece), _EMPTY, dtype=np.uint8)
        if self._raw:
            return self._rows(index, y0, y1, x0, x1)
        whole = self._pieces.get((id(self), index), lambda: self._decoded(index))
        if whole.shape[0] < y1 or whole.shape[1] < x1:
            raise damaged("a strip or tile that is smaller than it should be")
        return whole[y0:y1, x0:x1]

    def _rows(self, index: int, y0: int, y1: int, x0: int, x1: int) -> Pixels:
        row_bytes = self.piece[0] * self._per_piece
        if y1 * row_bytes > self._counts[index]:
            raise damaged("a strip or tile that is smaller than it should be")
        length = (x1 - x0) * self._per_piece
        start = self._offsets[index] + x0 * self._per_piece
        if length == row_bytes:
            data = self._bytes(start + y0 * row_bytes, (y1 - y0) * row_bytes)
        else:
            data = b"".join(self._bytes(start + y * row_bytes, length) for y in range(y0, y1))
        return np.frombuffer(data, dtype=np.uint8).reshape(y1 - y0, x1 - x0, self._per_piece)

    def _decoded(self, index: int) -> Pixels:
        wide, tall = self.piece
        if wide * tall * self._per_piece > MAX_PIECE_BYTES:
            raise DataError(
                "image too large to be decoded whole",
                got=f"one compressed piece of {wide} × {tall} pixels",
                expected=f"strips or tiles of at most {MAX_PIECE_BYTES:,} bytes",
                mend="write it again as a tiled TIFF, which is read in pieces",
            )
        try:
            piece = self._decode(self._bytes(self._offsets[index], self._counts[index]), index, **self._options)[0]
        except (ValueError, ImportError) as error:
            if "imagecodecs" not in str(error):
                raise
            raise DataError(
                "a compression that needs a further library", got="imagecodecs is missing", mend="install imagecodecs"
            ) from error
        if piece is None or piece.ndim != 4 or piece.dtype != np.uint8 or piece.shape[3] != self._per_piece:
            raise damaged("a strip or tile of another kind than its header says")
        return np.array(piece[0])

    def _bytes(self, offset: int, count: int) -> bytes:
        if count > 4 * MAX_PIECE_BYTES:
            raise damaged(f"a strip or tile of {count} bytes")
        return self._file.read(offset, count)
