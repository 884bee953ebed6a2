"""Means over boxes of pixels, exact in whole numbers, for a part of an axis at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ntrm.slide.reading.base import Pixels

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
