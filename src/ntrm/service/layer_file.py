"""Masks on disk as a service needs them: single tiles of a pyramid, by several threads, nothing read twice in a row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.data.headers import open_tiff
from ntrm.errors import DataError
from ntrm.slide.reading.cache import ArrayCache
from ntrm.slide.reading.random_access import RandomAccess

Labels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class _Level:
    width: int
    height: int
    tile: tuple[int, int]
    """Width and height."""
    page: Any
    offsets: tuple[int, ...]
    counts: tuple[int, ...]


class LayerFile:
    """A tiled 8-bit pyramid of our own making; each level is half the one before."""

    def __init__(self, path: Path, cache: ArrayCache) -> None:
        status = path.stat()
        self._key = (str(path), status.st_mtime_ns, status.st_size)
        self._cache = cache
        self._file = RandomAccess(path)
        try:
            with open_tiff(path) as tif:
                self.levels = tuple(_level(level.keyframe) for level in tif.series[0].levels)
        except (ValueError, TypeError, IndexError, OSError) as error:
            self._file.close()
            raise DataError("cannot read a mask", got=type(error).__name__, mend="segment the slide again") from error

    def read(self, level: int, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Labels:
        """The pixels at each of the rows and columns, both ascending; whoever asks beyond the border gets 0."""
        this = self.levels[level]
        out = np.zeros((len(rows), len(columns)), dtype=np.uint8)
        wide, tall = this.tile
        across = -(-this.width // wide)
        for tile_row in np.unique(rows[(rows >= 0) & (rows < this.height)] // tall):
            r = np.flatnonzero((rows // tall == tile_row) & (rows >= 0) & (rows < this.height))
            for tile_column in np.unique(columns[(columns >= 0) & (columns < this.width)] // wide):
                c = np.flatnonzero((columns // wide == tile_column) & (columns >= 0) & (columns < this.width))
                tile = self._tile(level, int(tile_row) * across + int(tile_column))
                out[np.ix_(r, c)] = tile[np.ix_(rows[r] - tile_row * tall, columns[c] - tile_column * wide)]
        return out

    def at(self, row: int, column: int) -> int:
        """One pixel of the finest level."""
        return int(self.read(0, np.array([row]), np.array([column]))[0, 0])

    def _tile(self, level: int, number: int) -> Labels:
        this = self.levels[level]

        def make() -> Labels:
            data = self._file.read(this.offsets[number], this.counts[number])
            tile: Any = this.page.decode(data, number)[0]  # (1, height, width, 1), smaller at the border
            found: Labels = np.zeros((this.tile[1], this.tile[0]), dtype=np.uint8)
            found[: tile.shape[1], : tile.shape[2]] = tile[0, :, :, 0]
            return found

        return self._cache.get((*self._key, level, number), make)

    def close(self) -> None:
        """Give the file back; twice does no harm."""
        self._file.close()


def _level(page: Any) -> _Level:
    if not page.is_tiled or page.samplesperpixel != 1 or page.bitspersample != 8:
        raise ValueError("no tiled 8-bit mask")
    tile = (int(page.tilewidth), int(page.tilelength))
    return _Level(page.imagewidth, page.imagelength, tile, page, tuple(page.dataoffsets), tuple(page.databytecounts))
