"""A slide on the model's grid: square pixels of the model's µm/px, by exact means over boxes of pixels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ntrm.core.errors import RefusedError, check_number
from ntrm.core.labels import WHITE
from ntrm.core.mpp import Resolution
from ntrm.data.resample import shrunk_length
from ntrm.wsi.readers.array_cache import ArrayCache
from ntrm.wsi.readers.reader import COARSEST_MPP, MAX_SIDE, Pixels, SlideInfo, SlideReader

SUBPIXELS = 64
"""Borders of boxes lie on this fraction of a pixel: all sums are whole numbers."""

_BAND_VALUES = 4_000_000
"""Values that are turned into floats at a time."""


@dataclass(frozen=True, eq=False)
class Boxes:
    """Which input pixels an output pixel averages, along one axis."""

    start: int
    """First input pixel that is needed."""
    weights: Any
    """Sparse (outputs, inputs from ``start`` on): subpixels of each input pixel inside each box."""

    @property
    def length(self) -> int:
        """Number of input pixels that are needed."""
        return int(self.weights.shape[1])

    @property
    def whole(self) -> int:
        """Input pixels of every box, one box behind the other, the last perhaps incomplete; 0 if it is not so."""
        weights = self.weights
        count = int(weights.indptr[1])
        one_behind_the_other = (
            weights.nnz == len(weights.data) == self.length
            and (weights.data == SUBPIXELS).all()
            and (weights.indptr[:-1] == np.arange(weights.shape[0]) * count).all()
            and weights.shape[0] == -(-self.length // count)
        )
        return count if one_behind_the_other else 0


def box_weights(first: int, stop: int, step: float, origin: float, extent: float, length: int) -> Boxes:
    """Boxes of the output pixels ``first`` … ``stop`` along an axis.

    Args:
        first: first output pixel.
        stop: output pixel after the last.
        step: input pixels per output pixel.
        origin: where output pixel 0 begins, in input pixels.
        extent: input pixels from ``origin`` on that count.
        length: of the input's axis.

    >>> box_weights(0, 2, 1.5, 0, 3, 3).weights.toarray().tolist()
    [[64.0, 32.0, 0.0], [0.0, 32.0, 64.0]]
    >>> box_weights(0, 4, 0.5, 0, 2, 2).weights.toarray().tolist()
    [[48.0, 0.0], [48.0, 16.0], [16.0, 48.0], [0.0, 48.0]]

    """
    centre = origin + (np.arange(first, stop) + 0.5) * step
    half = max(step, 1.0) / 2
    low, high = round(max(0.0, origin) * SUBPIXELS), round(min(origin + extent, length) * SUBPIXELS)
    high = max(high, low + 1)
    begin = np.clip(np.rint((centre - half) * SUBPIXELS).astype(np.int64), low, high - 1)
    end = np.clip(np.rint((centre + half) * SUBPIXELS).astype(np.int64), begin + 1, high)
    from_pixel, to_pixel = begin // SUBPIXELS, -(-end // SUBPIXELS)
    counts = to_pixel - from_pixel
    offsets = np.concatenate([[0], np.cumsum(counts)])
    row = np.repeat(np.arange(len(counts)), counts)
    column = np.arange(offsets[-1]) - offsets[row] + from_pixel[row]
    inside = np.minimum(end[row], (column + 1) * SUBPIXELS) - np.maximum(begin[row], column * SUBPIXELS)
    start, last = int(from_pixel.min()), int(to_pixel.max())
    shape = (len(counts), last - start)
    return Boxes(start, sparse.csr_array((inside.astype(np.float32), column - start, offsets), shape=shape))


def resample(pixels: Pixels, down: Boxes, across: Boxes) -> Pixels:
    """(H, W, C) → (h, w, C): means over the boxes, rounded half up."""
    height, width, channels = pixels.shape
    if down.whole == across.whole == 1:
        return np.ascontiguousarray(pixels)
    if down.whole and across.whole:
        return _block_means(pixels, down.whole, across.whole)
    rows = max(1, _BAND_VALUES * down.weights.shape[0] // (height * width * channels))
    areas = across.weights.sum(axis=1).astype(np.float64)  # (w,)
    columns = across.weights.astype(np.float64)
    out = np.empty((down.weights.shape[0], len(areas), channels), dtype=np.uint8)
    for first in range(0, len(out), rows):
        weights = down.weights[first : first + rows]
        used = slice(int(weights.indices.min()), int(weights.indices.max()) + 1)
        # Sums of a column stay below 2²⁴, where floats of 32 bits are exact, for boxes of up to 1,000 pixels.
        flat = weights[:, used] @ pixels[used].reshape(-1, width * channels).astype(np.float32)  # (r, W·C)
        upright = flat.reshape(-1, width, channels).transpose(1, 0, 2).reshape(width, -1)  # (W, r·C)
        sums: NDArray[np.float64] = (columns @ upright.astype(np.float64)).reshape(len(areas), -1, channels)
        area = areas[:, None] * weights.sum(axis=1).astype(np.float64)  # (w, r)
        out[first : first + rows] = np.floor(sums / area[..., None] + 0.5).transpose(1, 0, 2)
    return out


def _block_means(pixels: Pixels, down: int, across: int) -> Pixels:
    """Means over blocks of whole pixels, rounded half up; the last ones may be incomplete."""
    height, width, channels = pixels.shape
    # The numerator below, twice a sum and a size, has to fit.
    kind: type[np.unsignedinteger] = np.uint16 if 2 * 255 * down * across + down * across < 2**16 else np.uint32
    sums: NDArray[Any] = pixels[::down].astype(kind)
    for row in range(1, down):
        part = pixels[row::down]
        sums[: len(part)] += part
    tall = np.minimum(down, height - np.arange(0, height, down))
    wide = np.minimum(across, width - np.arange(0, width, across))
    areas = (tall[:, None] * wide).astype(kind)
    out = np.empty((*areas.shape, channels), dtype=np.uint8)
    for channel in range(channels):
        total = sums[:, ::across, channel].copy()
        for column in range(1, across):
            columns = sums[:, column::across, channel]
            total[:, : columns.shape[1]] += columns
        out[..., channel] = (total * kind(2) + areas) // (areas * kind(2))
    return out


# A slide on the model's grid: square pixels of the model's µm/px, whatever the scanner's.
#
# Pixel i of an axis lies around (i + ½)·f level-0 pixels from the scanned part's edge, f = model µm/px over slide
# µm/px. It is the mean over max(f, 1) pixels of the best level around there: the exact area where the slide is finer
# than the model, linear interpolation where it is coarser, and the slide's own pixel where f = 1.
#
# The grid is computed in blocks that lie at fixed places and are kept for a while, so that windows show the same pixels
# however they are cut, and overlapping windows cost one reading.


CACHE_BYTES = 128 * 2**20
"""Blocks of the grid that are kept."""
BLOCK_PIXELS = 2048 * 2048
"""Pixels of the slide that are read for one block, about: bounds the memory of a reading."""
MAX_BLOCK = 512
"""Longest side of a block of tiled slides, in pixels of the grid."""
MAX_ROWS = 2**15
"""Most rows that are read at once."""
THUMBNAIL_MPP = 13.4
"""µm/px to look for tissue at: cell walls of fat still show, and a whole slide is some 2000 pixels wide."""
LEAST_FACTOR = 0.5
"""A slide more than twice as coarse as the model lacks what the model has learnt to see."""


class SlideGrid:
    """A slide as the model sees it; safe to use from several threads if the reader is."""

    def __init__(self, reader: SlideReader, model_mpp: float, mpp: Resolution | None = None) -> None:
        self.reader = reader
        self.given = mpp is not None
        """Whether µm/px came from outside and not from the file."""
        self.source = mpp or credible_resolution(reader.info)
        self.model_mpp = float(model_mpp)
        model = Resolution.square(self.model_mpp)
        _, _, wide, tall = reader.info.area
        self._fx = _snapped(model.x / self.source.x, wide)
        self._fy = _snapped(model.y / self.source.y, tall)
        _check_fine_enough(self.source, model, min(self._fx, self._fy))
        self.width, self.height = shrunk_length(wide, self._fx), shrunk_length(tall, self._fy)
        self.level = best_level(reader.info, self._fx, self._fy)
        self._block = _block_shape(reader.info, self.level, (self.height, self.width), self._step)
        self._blocks = ArrayCache(CACHE_BYTES)

    @property
    def resolution(self) -> Resolution:
        """µm/px of the grid: the model's, up to the rounding of tags."""
        return Resolution(self.source.x * self._fx, self.source.y * self._fy)

    @property
    def to_level0(self) -> tuple[float, float, float, float]:
        """(sx, sy, ox, oy): the corner (x, y) of a grid pixel is at (sx·x + ox, sy·y + oy) in level-0 pixels."""
        left, top = self.reader.info.area[:2]
        return self._fx, self._fy, float(left), float(top)

    @property
    def keeps_whole_level(self) -> bool:
        """Whether its blocks are the very pixels of a level of the slide, and all of them are kept."""
        corner = [
            value / scale for value, scale in zip(self.to_level0[2:], self.reader.info.scale(self.level), strict=True)
        ]
        whole = self._step == (1.0, 1.0) and all(value.is_integer() for value in corner)
        return whole and 3 * self.height * self.width <= CACHE_BYTES

    @property
    def _step(self) -> tuple[float, float]:
        """Pixels of the level that is read per pixel of the grid: rows, columns."""
        sx, sy = self.reader.info.scale(self.level)
        return self._fy / sy, self._fx / sx

    def read(self, top: int, left: int, height: int, width: int) -> Pixels:
        """(height, width, 3) of the grid; white beyond it."""
        check_number("height of a window", height, 1, MAX_ROWS, whole=True)
        check_number("width of a window", width, 1, MAX_SIDE, whole=True)
        out = np.empty((height, width, 3), dtype=np.uint8)
        first_row, stop_row = max(top, 0), min(top + height, self.height)
        first_column, stop_column = max(left, 0), min(left + width, self.width)
        if (stop_row - first_row, stop_column - first_column) != (height, width):
            out[:] = WHITE
        if first_row >= stop_row or first_column >= stop_column:
            return out
        tall, wide = self._block
        for row in range(first_row // tall, -(-stop_row // tall)):
            for column in range(first_column // wide, -(-stop_column // wide)):
                block = self._blocks.get((row, column), lambda r=row, c=column: self._read_block(r, c))  # type: ignore[misc]
                y0, y1 = max(first_row, row * tall), min(stop_row, row * tall + block.shape[0])
                x0, x1 = max(first_column, column * wide), min(stop_column, column * wide + block.shape[1])
                part = block[y0 - row * tall : y1 - row * tall, x0 - column * wide : x1 - column * wide]
                out[y0 - top : y1 - top, x0 - left : x1 - left] = part
        return out

    def _read_block(self, row: int, column: int) -> Pixels:
        """A block of the grid, always computed from the same pixels of the slide."""
        info = self.reader.info
        sx, sy = info.scale(self.level)
        left0, top0, wide0, tall0 = info.area
        step_y, step_x = self._step
        (tall, wide), this = self._block, info.levels[self.level]
        # The scanned part in pixels of the level; beyond it lies what no one scanned.
        down = box_weights(row * tall, min((row + 1) * tall, self.height), step_y, top0 / sy, tall0 / sy, this.height)
        across = box_weights(
            column * wide, min((column + 1) * wide, self.width), step_x, left0 / sx, wide0 / sx, this.width
        )
        x, y = round(across.start * this.downsample), round(down.start * this.downsample)
        return resample(self.reader.read(x, y, across.length, down.length, self.level), down, across)

    def forget(self) -> None:
        """Let go of the blocks that are kept; to be called when no more is read."""
        self._blocks = ArrayCache(CACHE_BYTES)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "height": self.height,
            "width": self.width,
            "mpp": [self.resolution.x, self.resolution.y],
            "slide_mpp": [self.source.x, self.source.y],
            "slide_mpp_from": "given" if self.given else "metadata",
            "level": self.level,
            "to_level0": list(self.to_level0),
            "bounds": None if self.reader.info.bounds is None else list(self.reader.info.bounds),
            "slide": self.reader.info.as_dict(),
        }


class _Kept:
    """Reads a slide from the blocks that a grid of it keeps: what is read for a thumbnail is not read again."""

    def __init__(self, grid: SlideGrid) -> None:
        self.info, self._grid = grid.reader.info, grid

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """As ``SlideReader.read``; only the level of the grid is at hand."""
        grid = self._grid
        if level != grid.level:
            return grid.reader.read(x, y, width, height, level)
        downsample = self.info.levels[level].downsample
        left, top = (
            round(value / scale) for value, scale in zip(grid.to_level0[2:], self.info.scale(level), strict=True)
        )
        return grid.read(round(y / downsample) - top, round(x / downsample) - left, height, width)

    def close(self) -> None:
        """The grid's reader stays open."""


def thumbnail(source: SlideGrid | SlideReader, mpp: float) -> tuple[Pixels, Resolution]:
    """The scanned part at ``mpp``, or at the slide's own µm/px where that is coarser, and its exact µm/px.

    Of a reader, the file must know its µm/px; of a grid, those that the grid goes by count.
    """
    reader = source.reader if isinstance(source, SlideGrid) else source
    own = source.source if isinstance(source, SlideGrid) else credible_resolution(reader.info)
    kept = _Kept(source) if isinstance(source, SlideGrid) and source.keeps_whole_level else reader
    grid = SlideGrid(kept, max(mpp, own.x, own.y), own)
    rows = min(MAX_ROWS, max(1, BLOCK_PIXELS // grid.width))
    tops = range(0, grid.height, rows)
    bands = [grid.read(top, 0, min(rows, grid.height - top), grid.width) for top in tops]
    return np.concatenate(bands), grid.resolution


def credible_resolution(info: SlideInfo) -> Resolution:
    """µm/px of the file, or the refusal that says how to give it."""
    if info.resolution is not None:
        return info.resolution
    stated = info.stated_mpp
    raise RefusedError(
        "the slide does not tell its µm per pixel" if stated is None else "the slide's µm per pixel is not credible",
        got="nothing" if stated is None else f"{stated[0]:g} × {stated[1]:g} µm/px",
        expected=f"0.05 to {COARSEST_MPP:g} µm/px in the file's metadata, or given",
        hint="look the scan resolution up and give it with --mpp, or in the mpp column of a CSV; it is never guessed",
    )


def best_level(info: SlideInfo, factor_x: float, factor_y: float) -> int:
    """The coarsest level that is still at least as fine as the grid, else the finest."""
    slack = 1 + 1e-3  # sizes of levels are rounded
    fine = [
        number
        for number in range(len(info.levels))
        if info.scale(number)[0] <= factor_x * slack and info.scale(number)[1] <= factor_y * slack
    ]
    return max(fine, key=lambda number: info.levels[number].downsample, default=0)


def _snapped(factor: float, length: int) -> float:
    """A whole factor in place of one that differs by less than half a pixel over the whole slide.

    µm/px in tags are rounded: 6.7 may come back as 6.70001, and resampling by 1.000001 would only blur.
    """
    whole = max(1, round(factor))
    return float(whole) if abs(factor - whole) * length / whole < 0.5 else factor


def _check_fine_enough(source: Resolution, model: Resolution, factor: float) -> None:
    if factor < LEAST_FACTOR:
        raise RefusedError(
            "the slide is too coarse for the model",
            got=source,
            expected=f"at most {model.mean / LEAST_FACTOR:g} µm/px for a model of {model}",
            hint="scan or export the slide at a higher resolution, take a model of a lower one, or correct --mpp",
        )


def _block_shape(info: SlideInfo, level: int, grid: tuple[int, int], step: tuple[float, float]) -> tuple[int, int]:
    """Rows and columns of a block: whole rows of slides in strips, otherwise nearly square."""
    this = info.levels[level]
    if this.tile is not None and this.tile[0] >= this.width:
        rows = BLOCK_PIXELS / this.width / step[0]
        return min(MAX_BLOCK, max(1, int(rows))), grid[1]
    side = math.sqrt(BLOCK_PIXELS)
    return min(MAX_BLOCK, max(1, int(side / step[0]))), min(MAX_BLOCK, max(1, int(side / step[1])))
