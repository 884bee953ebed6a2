"""Masks of a thumbnail, worked on in µm and mm²: dilation, averages, small regions and holes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.arrays import BoolMask, Ints, Singles
from ntrm.core.mpp import Resolution
from ntrm.core.threads import most_threads, thread_map
from ntrm.wsi.quality.region_runs import RegionRuns

BAND_PIXELS = 1 << 19
"""Pixels of a plane that a thread works on together, at most about: they stay in a processor's cache."""

LEAST_PIXELS = 1 << 17
"""Fewer are not worth a thread."""
CACHED_PIXELS = 1 << 18
"""Pixels that are averaged together at most, about."""

_TRUNCATE = 3.0
"""Standard deviations at which a Gaussian ends."""


def in_bands(
    work: Callable[..., Sequence[NDArray[Any]]], *planes: NDArray[Any], around: int = 0, step: int = 1
) -> list[NDArray[Any]]:
    """What ``work`` makes of the planes (H, W), one plane or several, by bands of rows in threads.

    A pixel may depend on ``around`` rows on either side of it, and on which of each ``step`` rows it lies in.

    >>> in_bands(lambda plane: [plane + 1], np.zeros((1, 2)))
    [array([[1., 1.]])]
    """
    height, width = planes[0].shape
    around = _multiple(around, step)
    # So thick that what is worked on twice, around them, is a small part.
    rows = _multiple(max(band_rows(height, width), 4 * around), step)
    if rows >= height:
        return [*work(*planes)]

    def band(top: int) -> list[NDArray[Any]]:
        first, last = max(0, top - around), min(height, top + rows + around)
        own = slice(top - first, top - first + rows)
        return [found[own] for found in work(*(plane[first:last] for plane in planes))]

    return assemble_bands(band, range(0, height, rows))


def band_rows(height: int, width: int) -> int:
    """Rows of a band of about ``BAND_PIXELS`` at most: fewer where that leaves none for some threads."""
    return max(1, min(BAND_PIXELS // width, max(-(-height // most_threads()), LEAST_PIXELS // width)))


def assemble_bands(work: Callable[[int], Sequence[NDArray[Any]]], tops: range) -> list[NDArray[Any]]:
    """What ``work`` gives for bands of rows that begin at ``tops``, in threads: whole planes of ``tops.stop`` rows."""
    planes: list[NDArray[Any]] = []
    lock = Lock()

    def band(top: int) -> None:
        parts = work(top)
        with lock:
            if not planes:
                planes.extend(np.empty((tops.stop, *part.shape[1:]), dtype=part.dtype) for part in parts)
        for plane, part in zip(planes, parts, strict=True):
            plane[top : top + len(part)] = part

    if len(tops) == 1:
        band(tops[0])
    else:
        for _ in thread_map(band, tops):
            pass
    return planes


def _multiple(number: int, step: int) -> int:
    return -(-number // step) * step


def dilated(mask: BoolMask, um: float, scale: Resolution) -> BoolMask:
    """Pixels that lie at most ``um`` from the mask.

    >>> dilated(np.array([[True, False, False]]), 10.0, Resolution.square(10.0)).tolist()
    [[True, True, False]]
    """
    out = np.zeros(mask.shape, dtype=bool)
    box = bounding_box(mask, um, scale)
    if box is None:
        return out
    (inside,) = in_bands(lambda band: [_dilated(band, um, scale)], mask[box], around=int(um / scale.y))
    if inside.shape == mask.shape:
        return np.asarray(inside)
    out[box] = inside
    return out


def _dilated(mask: BoolMask, um: float, scale: Resolution) -> BoolMask:
    """The mask grows along its rows, and every growth is copied to the rows that it reaches."""
    height, width = mask.shape
    rows = range(min(int(um / scale.y), height - 1) + 1)
    columns = np.arange(min(int(um / scale.x), width - 1) + 1) * scale.x
    # Along its own row a pixel reaches furthest, and ever less far in the rows beyond.
    limit = um * um * (1 + 1e-12)
    reach = [np.count_nonzero((row * scale.y) ** 2 + columns * columns <= limit) - 1 for row in rows]
    out, wide = np.zeros_like(mask), mask
    for distance in range(reach[0] + 1):
        if distance:
            wide = _widened(wide, keep_single=distance == 1)
        for row in (row for row in rows if reach[row] == distance):
            out[row:] |= wide[: height - row]
            out[: height - row] |= wide[row:]
    return out


def _widened(mask: BoolMask, *, keep_single: bool) -> BoolMask:
    """The mask with every run of a row one pixel longer on either side; single pixels stay only if ``keep_single``."""
    wide = np.empty_like(mask)
    np.logical_or(mask[:, :-2], mask[:, 2:], out=wide[:, 1:-1])
    wide[:, 0], wide[:, -1] = mask[:, :2].any(axis=1), mask[:, -2:].any(axis=1)
    return np.logical_or(wide, mask, out=wide) if keep_single else wide


def opened(mask: BoolMask, um: float, scale: Resolution) -> BoolMask:
    """What discs of radius ``um`` that fit into the mask cover; the picture's edge does not narrow anything."""
    box = bounding_box(mask, um, scale)
    if box is None:
        return np.zeros_like(mask)
    # Where not even the square inside a disc fits, no disc does. Beyond the picture's edge everything counts as inside.
    halves = [int(um / math.sqrt(2) / step) for step in (scale.y, scale.x)]

    def squares(band: BoolMask) -> list[NDArray[np.uint8]]:
        fitting = band.view(np.uint8)
        for axis, half in enumerate(halves):
            fitting = ndimage.minimum_filter1d(fitting, 2 * half + 1, axis=axis, mode="constant", cval=1)
        return [fitting]

    (fitting,) = in_bands(squares, mask[box], around=halves[0])
    return mask & dilated(~dilated(~mask, um, scale), um, scale) if fitting.any() else np.zeros_like(mask)


def bounding_box(mask: BoolMask, um: float, scale: Resolution) -> tuple[slice, slice] | None:
    """Rows and columns of the mask and ``um`` around it; None where it is empty."""
    spans = []
    for axis, step in ((1, scale.y), (0, scale.x)):
        occupied = np.flatnonzero(mask.any(axis=axis))
        if not occupied.size:
            return None
        reach = math.ceil(um / step)
        spans.append(slice(max(0, int(occupied[0]) - reach), int(occupied[-1]) + reach + 1))
    return spans[0], spans[1]


def blurred(values: NDArray[np.floating], um: float, scale: Resolution) -> Singles:
    """Values (H, W) blurred by a Gaussian of standard deviation ``um``; edge pixels are repeated beyond the edge."""
    height, width = values.shape
    down, across = (_gaussian(um / step) for step in (scale.y, scale.x))
    tall, wide = len(down) - 1, len(across) - 1
    # In one row, what is averaged lies equally far from each pixel; beyond the last ones there must be something, too.
    row = width + 2 * wide
    flat = np.pad(np.asarray(values, dtype=np.float32), ((tall, tall + 1), (wide, wide)), mode="edge").ravel()
    out = np.empty((height, width), dtype=np.float32)
    rows = max(1, CACHED_PIXELS // row)
    for top in range(0, height, rows):
        band = out[top : top + rows]
        last = (top + len(band) + 2 * tall) * row + 2 * wide
        averages = _weighted(_weighted(flat[top * row : last], down, row), across, 1)
        band[:] = averages.reshape(-1, row)[:, :width]
    return out


def _gaussian(sigma: float) -> list[float]:
    """Weights at 0, 1, … pixels from the middle."""
    weights = np.exp(-0.5 * (np.arange(int(_TRUNCATE * sigma + 0.5) + 1) / sigma) ** 2)
    return [float(weight) for weight in weights / (2 * weights.sum() - 1)]


def _weighted(flat: Singles, weights: list[float], step: int) -> Singles:
    """Sums of values at 0, 1, … steps on either side of each that has them."""
    reach = (len(weights) - 1) * step
    total = flat[reach : flat.size - reach] * np.float32(weights[0])
    pair = np.empty_like(total)
    for number, weight in enumerate(weights[1:], start=1):
        before, after = reach - number * step, reach + number * step
        np.add(flat[before : before + total.size], flat[after : after + total.size], out=pair)
        pair *= np.float32(weight)
        total += pair
    return total


def blurred_rows(um: float, scale: Resolution) -> int:
    """Rows on either side that an average of ``blurred`` takes in."""
    return int(_TRUNCATE * (um / scale.y) + 0.5)


def without_small_regions(mask: BoolMask, mm2: float, scale: Resolution) -> BoolMask:
    """Without connected regions smaller than ``mm2``."""
    regions = RegionRuns.of(mask, diagonal=True)
    return regions.painted(regions.sizes * (scale.pixel_area_um2 / 1e6) >= mm2)


def without_holes(mask: BoolMask, mm2: float, scale: Resolution) -> BoolMask:
    """With enclosed gaps up to ``mm2`` filled.

    >>> ring = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool)
    >>> bool(without_holes(ring, 1.0, Resolution.square(10.0)).all())
    True
    """
    gaps = RegionRuns.of(~mask, diagonal=False)
    small = gaps.sizes * (scale.pixel_area_um2 / 1e6) <= mm2
    return mask | gaps.painted(small & ~gaps.at_edge())


def upsampled(mask: BoolMask, factors: tuple[int, int], shape: tuple[int, int]) -> BoolMask:
    """A mask of blocks of ``factors`` (rows, columns) on the pixels of ``shape``."""
    # Along rows first: what follows copies whole rows.
    return mask.repeat(factors[1], axis=1)[:, : shape[1]].repeat(factors[0], axis=0)[: shape[0]]


def pixels_inside(mask: BoolMask, top: Ints, bottom: Ints, left: Ints, right: Ints) -> Ints:
    """Pixels of the mask in each of many rectangles; the arrays broadcast.

    The table of sums has only the rows and columns at which a rectangle begins or ends.

    >>> pixels_inside(np.ones((4, 4), dtype=bool), *(np.array([k]) for k in (1, 3, 0, 4))).tolist()
    [8]
    """
    rows, columns = (_edges(*both, size) for both, size in zip(((top, bottom), (left, right)), mask.shape, strict=True))
    bands = [mask[first:last].sum(axis=0, dtype=np.int32) for first, last in pairwise(rows.tolist())]
    cells = np.add.reduceat(np.stack(bands), columns[:-1], axis=1, dtype=np.int64)
    sums = np.zeros((len(rows), len(columns)), dtype=np.int64)
    np.cumsum(np.cumsum(cells, axis=0), axis=1, out=sums[1:, 1:])
    top, bottom = (np.searchsorted(rows, at) for at in (top, bottom))
    left, right = (np.searchsorted(columns, at) for at in (left, right))
    return np.asarray(sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left])


def _edges(first: Ints, last: Ints, size: int) -> Ints:
    """Where rectangles begin and end along an axis, and its own ends, each once and rising."""
    return np.unique(np.concatenate([np.ravel(first), np.ravel(last), [0, size]]))
