"""Masks of a thumbnail, worked on in µm and mm²: dilation, averages, small regions and holes."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.mpp import Resolution

BoolMask = NDArray[np.bool_]
Floats = NDArray[np.float32]
Indices = NDArray[np.int64]

_ALL_NEIGHBOURS = np.ones((3, 3), dtype=bool)


def dilated(mask: BoolMask, um: float, scale: Resolution) -> BoolMask:
    """Pixels that lie at most ``um`` from the mask.

    >>> dilated(np.array([[True, False, False]]), 10.0, Resolution.square(10.0)).tolist()
    [[True, True, False]]
    """
    out = np.zeros_like(mask)
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
    out, wide = np.zeros_like(mask), mask.copy()
    for distance in range(reach[0] + 1):
        if distance:
            before = wide.copy()
            wide[:, 1:] |= before[:, :-1]
            wide[:, :-1] |= before[:, 1:]
        for row in (row for row in rows if reach[row] == distance):
            out[row:] |= wide[: height - row]
            out[: height - row] |= wide[row:]
    return out


def opened(mask: BoolMask, um: float, scale: Resolution) -> BoolMask:
    """What discs of radius ``um`` that fit into the mask cover; the picture's edge does not narrow anything."""
    box = bounding_box(mask, um, scale)
    if box is None:
        return np.zeros_like(mask)
    # Where not even the square inside a disc fits, no disc does. Beyond the picture's edge everything counts as inside.
    squares = mask[box].view(np.uint8)
    for axis, step in enumerate((scale.y, scale.x)):
        side = 2 * int(um / math.sqrt(2) / step) + 1
        squares = ndimage.minimum_filter1d(squares, side, axis=axis, mode="constant", cval=1)
    return mask & dilated(~dilated(~mask, um, scale), um, scale) if squares.any() else np.zeros_like(mask)


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


def blurred(values: NDArray[np.floating], um: float, scale: Resolution) -> Floats:
    """Average of (H, W) values with a Gaussian of standard deviation ``um``."""
    sigma = (um / scale.y, um / scale.x)
    values = np.asarray(values, dtype=np.float32)
    return np.asarray(ndimage.gaussian_filter(values, sigma, mode="nearest", truncate=3.0))


def without_small_regions(mask: BoolMask, mm2: float, scale: Resolution) -> BoolMask:
    """Without connected regions smaller than ``mm2``."""
    regions, sizes = label_regions(mask)
    kept = sizes * (scale.pixel_area_um2 / 1e6) >= mm2
    kept[0] = False
    return np.asarray(kept[regions])


def without_holes(mask: BoolMask, mm2: float, scale: Resolution) -> BoolMask:
    """With enclosed gaps up to ``mm2`` filled.

    >>> ring = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool)
    >>> bool(without_holes(ring, 1.0, Resolution.square(10.0)).all())
    True
    """
    gaps, _ = ndimage.label(~mask)
    filled = np.bincount(gaps.ravel()) * (scale.pixel_area_um2 / 1e6) <= mm2
    filled[np.unique(np.concatenate([gaps[0], gaps[-1], gaps[:, 0], gaps[:, -1]]))] = False
    filled[0] = True
    return np.asarray(filled[gaps])


def label_regions(mask: BoolMask) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Connected regions, numbered from 1 (diagonal neighbours connect), and the pixels of each; entry 0 is the rest."""
    regions, _ = ndimage.label(mask, structure=_ALL_NEIGHBOURS)
    return regions, np.bincount(regions.ravel())


def downsampled(plane: NDArray[np.floating] | BoolMask, factors: tuple[int, int]) -> Floats:
    """Means of blocks of ``factors`` (rows, columns); a last, incomplete one is filled up with its edge.

    >>> downsampled(np.array([[0, 2, 5]], dtype=np.float32), (1, 2)).tolist()
    [[1.0, 5.0]]
    """
    padding = [(0, -size % factor) for size, factor in zip(plane.shape, factors, strict=True)]
    full = np.asarray(plane, dtype=np.float32)
    if any(after for _, after in padding):
        full = np.pad(full, padding, mode="edge")
    down, across = factors
    total = np.zeros_like(full[::down, ::across])
    for row in range(down):
        for column in range(across):
            total += full[row::down, column::across]
    return total / np.float32(down * across)


def upsampled(mask: BoolMask, factors: tuple[int, int], shape: tuple[int, int]) -> BoolMask:
    """The reverse for masks: every pixel of a block, cut to ``shape``."""
    return mask.repeat(factors[0], axis=0)[: shape[0]].repeat(factors[1], axis=1)[:, : shape[1]]


def pixels_inside(mask: BoolMask, top: Indices, bottom: Indices, left: Indices, right: Indices) -> Indices:
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


def _edges(first: Indices, last: Indices, size: int) -> Indices:
    """Where rectangles begin and end along an axis, and its own ends, each once and rising."""
    return np.unique(np.concatenate([np.ravel(first), np.ravel(last), [0, size]]))
