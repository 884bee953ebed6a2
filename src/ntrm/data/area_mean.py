"""Means over areas of pixels, rounded half up: what every coarser picture in the system is made with.

An output pixel is the mean over a box of input pixels, and an input pixel counts by the part of it that lies inside.
Borders of boxes are whole numbers of a unit, so that all sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Ints, ranges

Factor = Fraction | float
Pixels = NDArray[np.uint8]
Weights = Any  # A sparse (output length, input length) matrix

BAND_VALUES = 1_000_000  # Values that are turned into floats at a time
_CACHED_VALUES = 1 << 18  # Sums of whole numbers at a time, about


@dataclass(frozen=True, eq=False)
class Boxes:
    """Which input pixels an output pixel averages, along one axis."""

    start: int  # First input pixel that is needed
    weights: Weights  # (outputs, inputs from ``start`` on): units of each input pixel inside each box
    unit: int  # So many make an input pixel

    @classmethod
    def between(cls, begin: Ints, end: Ints, unit: int) -> Boxes:
        """Boxes with these borders in units, both ascending; pixel j is ``[j·unit, (j+1)·unit)``."""
        # Where the command needs no such weights it need not import what takes a fifth of a second.
        from scipy.sparse import csr_array

        first = begin // unit
        count = (end - 1) // unit - first + 1
        offsets = np.concatenate([[0], np.cumsum(count)])
        box, pixel = np.repeat(np.arange(len(begin)), count), ranges(first, count)
        weight = np.minimum(end[box], (pixel + 1) * unit) - np.maximum(begin[box], pixel * unit)
        # Sums along one axis are exact in floats of 32 bits up to 2²⁴.
        kind = np.float32 if 255 * int((end - begin).max()) < 2**24 else np.float64
        start, stop = int(first[0]), int(pixel[-1]) + 1
        shape = (len(begin), stop - start)
        return cls(start, csr_array((weight.astype(kind), pixel - start, offsets), shape=shape), unit)

    @property
    def length(self) -> int:
        """Number of input pixels that are needed."""
        return int(self.weights.shape[1])

    @cached_property
    def block(self) -> int:
        """Input pixels of every box if the boxes are adjacent blocks, the last perhaps incomplete; otherwise 0."""
        weights = self.weights
        count = int(weights.indptr[1])
        adjacent = (
            weights.nnz == len(weights.data) == self.length
            and (weights.data == self.unit).all()
            and (weights.indptr[:-1] == np.arange(weights.shape[0]) * count).all()
            and weights.shape[0] == -(-self.length // count)
        )
        return count if adjacent else 0


def exact(number: Factor) -> Fraction:
    """A number as a fraction; ratios such as 10/3 are exact, other floats to about one in a million."""
    return Fraction(number).limit_denominator(1_000_000)


def area_boxes(outputs: range, step: Factor, length: int, origin: Factor = 0) -> Boxes:
    """Boxes of ``step`` input pixels side by side, the first at ``origin``, cut off after ``length`` input pixels.

    >>> area_boxes(range(2), 2.5, 5).weights.toarray().tolist()
    [[2.0, 2.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0, 2.0]]
    """
    step, origin = exact(step), exact(origin)
    unit = math.lcm(step.denominator, origin.denominator)
    begin = np.arange(outputs.start, outputs.stop, dtype=np.int64) * int(step * unit) + int(origin * unit)
    return Boxes.between(begin, np.minimum(begin + int(step * unit), length * unit), unit)


def box_means(pixels: Pixels, down: Boxes, across: Boxes) -> Pixels:
    """(H, W, C) → (h, w, C): means over the boxes; the pixels themselves where every box is one pixel."""
    block_y, block_x = down.block, across.block
    if block_y == block_x == 1:
        return np.ascontiguousarray(pixels)
    if block_y and block_x:
        return area_means(pixels, block_y, block_x)
    areas = across.weights.sum(axis=1).astype(np.float64)  # (w,)
    out = np.empty((down.weights.shape[0], len(areas), pixels.shape[2]), dtype=np.uint8)
    for inside, outside, weights in bands(down, pixels[0].size):
        sums = weighted_sums(pixels[inside], weights, across)
        area = (areas[:, None] * weights.sum(axis=1).astype(np.float64))[..., None]  # (w, r, 1)
        out[outside] = np.floor((sums + area / 2) / area).transpose(1, 0, 2)
    return out


def bands(down: Boxes, values: int) -> Iterator[tuple[slice, slice, Weights]]:
    """Input rows of so many values, the output rows they make up, and the weights between them; bounds the memory."""
    height, length = down.weights.shape
    step = max(1, BAND_VALUES * height // (length * values))
    for first in range(0, height, step):
        weights = down.weights[first : first + step]
        inside = slice(int(weights.indices.min()), int(weights.indices.max()) + 1)
        yield inside, slice(first, first + step), weights[:, inside]


def weighted_sums(pixels: NDArray[Any], down: Weights, across: Boxes) -> NDArray[np.float64]:
    """Sums over the boxes, columns first: (H, W, C) → (w, h, C)."""
    height, width, channels = pixels.shape
    flat = down @ pixels.reshape(height, width * channels).astype(down.dtype)  # (h, W·C)
    upright = flat.reshape(-1, width, channels).transpose(1, 0, 2).reshape(width, -1)  # (W, h·C)
    sums = across.weights.astype(np.float64) @ upright.astype(np.float64)
    return np.asarray(sums.reshape(len(sums), -1, channels))


def area_means(pixels: Pixels, down: int, across: int) -> Pixels:
    """(H, W, C) → (h, w, C): means over blocks of ``down`` × ``across`` pixels; the last ones may be incomplete."""
    height, width, channels = pixels.shape
    out = np.empty((-(-height // down), -(-width // across), channels), dtype=np.uint8)
    wide, rest = width // across, width % across
    # In bands that stay in a processor's cache.
    rows = max(1, _CACHED_VALUES // (width * channels))
    for top in range(0, len(out), rows):
        means, band = out[top : top + rows], pixels[top * down : (top + rows) * down]
        complete = len(band) // down
        for first, last, tall in ((0, complete, down), (complete, len(means), len(band) % down)):
            own = band[first * down : first * down + (last - first) * tall]
            _fill_means(means[first:last, :wide], own[:, : wide * across], tall, across)
            _fill_means(means[first:last, wide:], own[:, wide * across :], tall, rest)
    return out


def _fill_means(out: Pixels, pixels: Pixels, down: int, across: int) -> None:
    if not out.size:
        return
    # The numerator below, a sum and half a size, has to fit.
    kind = np.min_scalar_type(256 * down * across - 1)
    rows: NDArray[Any] = pixels[::down].astype(kind)
    for row in range(1, down):
        rows += pixels[row::down]
    # From every pixel on, not only from those where a block begins: so they lie side by side in memory.
    channels, flat = pixels.shape[2], rows.reshape(len(rows), -1)
    starts = flat.shape[1] - (across - 1) * channels
    sums = flat[:, :starts].copy()
    for column in range(1, across):
        sums += flat[:, column * channels : column * channels + starts]
    for channel in range(channels):
        means = sums[:, channel :: across * channels] + kind.type(down * across // 2)
        means //= kind.type(down * across)
        out[..., channel] = means
