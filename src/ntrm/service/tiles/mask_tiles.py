"""Tiles of results, sampled from the pyramids of the masks on disk: tissue, coarse prediction, confidence, borders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError
from ntrm.data.image_files import open_tiff
from ntrm.results.paths import COARSE_MASK, CONFIDENCE_MAP, MASK, TRUTH_MASK
from ntrm.service.core.problems import missing
from ntrm.service.tiles.geometry import Box, DeepZoom
from ntrm.wsi.readers.array_cache import ArrayCache
from ntrm.wsi.readers.tiff import RandomAccess

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
            raise DataError("cannot read a mask", got=type(error).__name__, hint="segment the slide again") from error

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


# Tiles of what was found: tissue, first guess, certainty, what the second look improved, and borders of two tissues.
#
# Every layer is an indexed PNG. Pixels are sampled from the mask's pyramid (nearest, the finest level that is not finer
# than the tile); the colours come on top of the compressed pixels.


FILES = {"tissue": MASK, "coarse": COARSE_MASK, "confidence": CONFIDENCE_MAP, "truth": TRUTH_MASK}
BORDER = 2
"""Pixels on either side of a border that are drawn: 2 on a screen at least, since viewers shrink tiles up to half."""


@dataclass(frozen=True)
class Place:
    """How the mask lies on the slide's scanned part: mask pixels are ``sx`` × ``sy`` pixels of the full resolution."""

    zoom: DeepZoom
    sx: float
    sy: float

    def mask_pixel(self, x: float, y: float) -> tuple[int, int]:
        """Row and column of the mask under a point of the full resolution."""
        return int(y // self.sy), int(x // self.sx)


class MaskLayers:
    """The layers of one finished slide."""

    def __init__(self, folder: Path, place: Place, cache: ArrayCache) -> None:
        self.place = place
        self._files: dict[str, LayerFile] = {}
        try:
            for name, file in FILES.items():
                if (folder / file).is_file():
                    self._files[name] = LayerFile(folder / file, cache)
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """Layers that can be shown."""
        have = set(self._files)
        found: list[str] = [name for name in ("tissue", "coarse", "confidence") if name in have]
        if {"tissue", "coarse", "truth"} <= have:
            found.append("improvement")
        return (*found, "interface") if "tissue" in have else tuple(found)

    def pixels(self, layer: str, level: int, box: Box, pair: tuple[int, int] | None = None) -> Labels:
        """(height, width) indices into the layer's palette."""
        if layer not in self.names:
            raise missing(f"the slide has no layer {layer}")
        if layer == "interface":
            return self._interface(level, box, pair or (0, 0))
        if layer == "improvement":
            return self._improvement(level, box)
        return self._sampled(layer, level, box)

    def at(self, layer: str, row: int, column: int) -> int | None:
        """The layer's value at a mask pixel."""
        return self._files[layer].at(row, column) if layer in self._files else None

    def _sampled(self, layer: str, level: int, box: Box, margin: int = 0) -> Labels:
        file, scale = self._files[layer], self.place.zoom.scale(level)
        wanted = scale * (1 + 1e-9) / min(self.place.sx, self.place.sy)
        depth = min(len(file.levels) - 1, max(0, int(np.floor(np.log2(wanted))))) if wanted >= 1 else 0
        rows = _nearest(box.top - margin, box.height + 2 * margin, scale, self.place.sy * 2**depth)
        columns = _nearest(box.left - margin, box.width + 2 * margin, scale, self.place.sx * 2**depth)
        return file.read(depth, rows, columns)

    def _interface(self, level: int, box: Box, pair: tuple[int, int]) -> Labels:
        labels = self._sampled("tissue", level, box, margin=BORDER)
        near = [_within(labels == index + 1, BORDER) for index in pair]
        return (near[0] & near[1]).astype(np.uint8)

    def _improvement(self, level: int, box: Box) -> Labels:
        """1 = corrected, 2 = broken, 0 = neither."""
        final, first, truth = (self._sampled(name, level, box) for name in ("tissue", "coarse", "truth"))
        known = truth > 0
        corrected = known & (final == truth) & (first != truth)
        broken = known & (final != truth) & (first == truth)
        return np.where(corrected, 1, np.where(broken, 2, 0)).astype(np.uint8)

    def close(self) -> None:
        """Give the files back."""
        for file in self._files.values():
            file.close()


def _nearest(first: int, count: int, scale: int, size: float) -> NDArray[np.int64]:
    """Indices of the mask's pixels (of ``size``) under the centres of a tile's pixels (of ``scale``)."""
    centres = (np.arange(first, first + count) + 0.5) * scale
    found: NDArray[np.int64] = np.floor(centres / size).astype(np.int64)
    return found


def _within(there: NDArray[np.bool_], margin: int) -> NDArray[np.bool_]:
    """Whether a pixel has one of ``there`` within a square around it; the result is ``margin`` smaller all around."""

    def spread(a: NDArray[np.bool_]) -> NDArray[np.bool_]:
        shifted = [a[shift : a.shape[0] - 2 * margin + shift] for shift in range(2 * margin + 1)]
        return np.asarray(np.logical_or.reduce(shifted))

    return spread(spread(there).T).T
