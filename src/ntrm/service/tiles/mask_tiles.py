"""Layers of a slide's results as tiles, sampled from the masks' pyramids on disk.

Layers: tissue, coarse prediction, confidence, what the final prediction improved, borders of two tissues. A pixel is
that of the mask nearest to its centre, from the finest level that is not finer than the tile.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import maximum_filter

from ntrm.core.errors import BROKEN, DataError
from ntrm.correct.state import State
from ntrm.results.folder import SlideFolder
from ntrm.results.mask_file import Pyramid
from ntrm.results.paths import COARSE_MASK, CONFIDENCE_MAP, MASK, TRUTH_MASK
from ntrm.service.core.problems import missing
from ntrm.service.tiles.geometry import DeepZoom, TileBox

T = TypeVar("T")
Labels = NDArray[np.uint8]
FILES = {"tissue": MASK, "coarse": COARSE_MASK, "confidence": CONFIDENCE_MAP, "truth": TRUTH_MASK}
BORDER = 2
"""Pixels drawn on either side of a border: at least 2 in all are left where a viewer shrinks the tile to half."""


class LayerFile:
    """A tiled 8-bit pyramid of our own making; each level is half the one before. Closed when nobody holds it."""

    def __init__(self, folder: SlideFolder, name: str) -> None:
        stream = folder.open(name)
        weakref.finalize(self, stream.close)
        self._file = _sound(lambda: Pyramid(stream))

    @property
    def depth(self) -> int:
        """Number of levels."""
        return len(self._file.levels)

    def read(self, level: int, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Labels:
        """The pixels at each of the rows and columns, both ascending; 0 beyond the border."""
        of, out = self._file.levels[level], np.zeros((len(rows), len(columns)), dtype=np.uint8)
        tall, wide = of.tile
        for tile_row, r in _by_tile(rows, tall, of.shape[0]):
            for tile_column, c in _by_tile(columns, wide, of.shape[1]):
                tile = _sound(partial(self._file.tile, level, tile_row * of.across + tile_column))
                out[np.ix_(r, c)] = tile[np.ix_(rows[r] - tile_row * tall, columns[c] - tile_column * wide)]
        return out


def _sound(read: Callable[[], T]) -> T:
    try:
        return read()
    except BROKEN as error:
        raise DataError("cannot read a mask", got=error, hint="segment the slide again") from error


def _by_tile(indices: NDArray[np.int64], size: int, length: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """For each tile of ``size`` pixels: its number, and where in ``indices`` its pixels are asked for."""
    tiles = np.where((indices >= 0) & (indices < length), indices // size, -1)
    for tile in np.unique(tiles[tiles >= 0]):
        yield int(tile), np.flatnonzero(tiles == tile)


@dataclass(frozen=True)
class MaskGrid:
    """How the mask lies on the slide's scanned area: a pixel of it is ``sx`` × ``sy`` pixels of the full resolution."""

    zoom: DeepZoom
    sx: float
    sy: float


def layers_with(files: Collection[str]) -> list[str]:
    """Layers that can be shown of a slide with these of ``FILES``.

    >>> layers_with({"tissue", "coarse", "truth"})
    ['tissue', 'coarse', 'improvement', 'interface']
    """
    needs = {name: {name} for name in ("tissue", "coarse", "confidence")}
    needs |= {"improvement": {"tissue", "coarse", "truth"}, "interface": {"tissue"}}
    return [name for name, needed in needs.items() if needed <= {*files}]


class MaskLayers:
    """The layers of one finished slide."""

    def __init__(self, folder: Path, grid: MaskGrid) -> None:
        self.grid, there = grid, SlideFolder(folder)
        self._files = {name: LayerFile(there, file) for name, file in FILES.items() if there.has(file)}

    @property
    def names(self) -> list[str]:
        """Layers that can be shown."""
        return layers_with(self._files.keys())

    def pixels(
        self,
        layer: str,
        level: int,
        box: TileBox,
        pair: tuple[int, int] | None = None,
        corrections: State | None = None,
    ) -> Labels:
        """(height, width) indices into the layer's palette; tissue and borders on request as people made them."""
        if layer == "corrected":
            return self._tissue(level, box, corrections)
        if layer not in self.names:
            raise missing(f"the slide has no layer {layer}")
        if layer == "interface":
            labels = self._tissue(level, box, corrections, margin=BORDER)
            near = [maximum_filter(labels == index + 1, 2 * BORDER + 1) for index in pair or (0, 0)]
            return np.asarray((near[0] & near[1])[BORDER:-BORDER, BORDER:-BORDER], dtype=np.uint8)
        if layer == "improvement":
            return self._improvement(level, box)
        return self._sampled(layer, level, box)

    def _tissue(self, level: int, box: TileBox, corrections: State | None, margin: int = 0) -> Labels:
        """With what people made of it, and so many pixels around the box."""
        labels, scale = self._sampled("tissue", level, box, margin), self.grid.zoom.scale(level)
        if corrections is None:
            return labels
        rows = _nearest(box.top - margin, box.height + 2 * margin, scale, self.grid.sy)
        columns = _nearest(box.left - margin, box.width + 2 * margin, scale, self.grid.sx)
        # 0 is nothing, and becomes 255.
        return np.asarray(corrections.at(rows, columns, labels - np.uint8(1)) + np.uint8(1))

    def at(self, layer: str, row: int, column: int) -> int | None:
        """The layer's value at a mask pixel."""
        file = self._files.get(layer)
        return None if file is None else int(file.read(0, np.array([row]), np.array([column]))[0, 0])

    def _sampled(self, layer: str, level: int, box: TileBox, margin: int = 0) -> Labels:
        file, scale = self._files[layer], self.grid.zoom.scale(level)
        wanted = scale * (1 + 1e-9) / min(self.grid.sx, self.grid.sy)
        depth = min(file.depth - 1, max(0, int(np.floor(np.log2(wanted))))) if wanted >= 1 else 0
        rows = _nearest(box.top - margin, box.height + 2 * margin, scale, self.grid.sy * 2**depth)
        columns = _nearest(box.left - margin, box.width + 2 * margin, scale, self.grid.sx * 2**depth)
        return file.read(depth, rows, columns)

    def _improvement(self, level: int, box: TileBox) -> Labels:
        """1 = corrected, 2 = broken, 0 = neither."""
        final, coarse, truth = (self._sampled(name, level, box) for name in ("tissue", "coarse", "truth"))
        corrected = (truth > 0) & (final == truth) & (coarse != truth)
        broken = (truth > 0) & (final != truth) & (coarse == truth)
        return np.asarray(corrected + 2 * broken, dtype=np.uint8)


def _nearest(first: int, count: int, scale: int, size: float) -> NDArray[np.int64]:
    """Indices of the mask's pixels (of ``size``) under the centres of a tile's pixels (of ``scale``)."""
    centres = (np.arange(first, first + count) + 0.5) * scale
    return np.asarray(np.floor(centres / size), dtype=np.int64)
