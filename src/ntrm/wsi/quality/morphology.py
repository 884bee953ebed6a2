"""Masks of a thumbnail, worked on in µm and mm²: dilation, averages, small regions and holes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.arrays import BoolMask, Ints, Singles
from ntrm.core.mpp import Resolution

EIGHT = np.ones((3, 3), dtype=bool)  # For `ndimage.label`: pixels that touch at a corner belong together


def dilated(mask: BoolMask, um: float, scale: Resolution) -> BoolMask:
    """Pixels that lie at most ``um`` from the mask."""
    out = np.zeros(mask.shape, dtype=bool)
    box = bounding_box(mask, um, scale)
    if box is not None:
        out[box] = _dilated(mask[box], um, scale)
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
            wide, narrow = wide.copy(), wide
            wide[:, 1:] |= narrow[:, :-1]
            wide[:, :-1] |= narrow[:, 1:]
        for row in (row for row in rows if reach[row] == distance):
            out[row:] |= wide[: height - row]
            out[: height - row] |= wide[row:]
    return out


def opened(mask: BoolMask, um: float, scale: Resolution) -> BoolMask:
    """What discs of radius ``um`` that fit into the mask cover; the picture's edge does not narrow anything."""
    return mask & dilated(~dilated(~mask, um, scale), um, scale)


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
    plane = np.asarray(values, dtype=np.float32)
    return np.asarray(ndimage.gaussian_filter(plane, (um / scale.y, um / scale.x), mode="nearest", truncate=3.0))


def without_small_regions(mask: BoolMask, mm2: float, scale: Resolution) -> BoolMask:
    """Without connected regions smaller than ``mm2``."""
    labels, count = ndimage.label(mask, EIGHT)
    kept = region_areas(labels, count, scale) >= mm2
    kept[0] = False
    return np.asarray(kept[labels])


def without_holes(mask: BoolMask, mm2: float, scale: Resolution) -> BoolMask:
    """With enclosed gaps up to ``mm2`` filled.

    >>> ring = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool)
    >>> bool(without_holes(ring, 1.0, Resolution.square(10.0)).all())
    True
    """
    labels, count = ndimage.label(~mask)
    filled = region_areas(labels, count, scale) <= mm2
    for edge in (labels[0], labels[-1], labels[:, 0], labels[:, -1]):
        filled[edge] = False
    return np.asarray(mask | filled[labels])


def region_areas(labels: NDArray[np.int32], count: int, scale: Resolution) -> NDArray[np.floating]:
    """(count + 1,) mm² of each number in a mask of numbered regions."""
    return np.asarray(np.bincount(labels.ravel(), minlength=count + 1) * (scale.pixel_area_um2 / 1e6))


def upsampled(mask: BoolMask, factors: tuple[int, int], shape: tuple[int, int]) -> BoolMask:
    """A mask of blocks of ``factors`` (rows, columns) on the pixels of ``shape``."""
    # Along rows first: what follows copies whole rows.
    return mask.repeat(factors[1], axis=1)[:, : shape[1]].repeat(factors[0], axis=0)[: shape[0]]


def pixels_inside(mask: BoolMask, top: Ints, bottom: Ints, left: Ints, right: Ints) -> Ints:
    """Pixels of the mask in each of many rectangles; the arrays broadcast."""
    sums = np.zeros((mask.shape[0] + 1, mask.shape[1] + 1), dtype=np.int32)
    np.cumsum(mask, axis=0, out=sums[1:, 1:])
    np.cumsum(sums, axis=1, out=sums)
    return np.asarray(sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left], dtype=np.int64)
