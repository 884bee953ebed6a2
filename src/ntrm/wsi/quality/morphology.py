"""Sets of pixels of a thumbnail, worked on in µm and mm²: nearness, averages, specks and holes."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.mpp import Resolution

BoolMask = NDArray[np.bool_]
Floats = NDArray[np.float32]

_MOST_OFFSETS = 100
"""More pixels around a place than this are cheaper to find by distances."""
_ALL_NEIGHBOURS = np.ones((3, 3), dtype=bool)


def near(places: BoolMask, um: float, scale: Resolution) -> BoolMask:
    """Where some place lies at most ``um`` away.

    >>> near(np.array([[True, False, False]]), 10.0, Resolution.square(10.0)).tolist()
    [[True, True, False]]
    """
    offsets = _offsets(um, scale)
    if offsets is not None:
        return _shifted_any(places, offsets)
    found = np.zeros_like(places)
    part = around(places, um, scale)
    if part is not None:
        found[part] = _within(places[part], um, scale)
    return found


def _offsets(um: float, scale: Resolution) -> list[tuple[int, int]] | None:
    """(rows, columns) that are at most ``um`` away, where these are few."""
    down, across = int(um / scale.y), int(um / scale.x)
    if (2 * down + 1) * (2 * across + 1) > _MOST_OFFSETS:
        return None
    square = um * um * (1 + 1e-12)
    return [
        (row, column)
        for row in range(-down, down + 1)
        for column in range(-across, across + 1)
        if (row * scale.y) ** 2 + (column * scale.x) ** 2 <= square
    ]


def _shifted_any(places: BoolMask, offsets: list[tuple[int, int]]) -> BoolMask:
    height, width = places.shape
    found = np.zeros_like(places)
    for row, column in offsets:
        if abs(row) >= height or abs(column) >= width:
            continue
        goal = found[max(row, 0) : height + min(row, 0), max(column, 0) : width + min(column, 0)]
        goal |= places[max(-row, 0) : height + min(-row, 0), max(-column, 0) : width + min(-column, 0)]
    return found


def _within(places: BoolMask, um: float, scale: Resolution) -> BoolMask:
    """The same for many offsets: places grow along their rows, and every growth is seen from the rows it reaches."""
    height, width = places.shape
    rows = range(min(int(um / scale.y), height - 1) + 1)
    columns = np.arange(min(int(um / scale.x), width - 1) + 1) * scale.x
    # Along its own row a place reaches furthest, and ever less far from the rows beyond.
    reach = [np.count_nonzero(np.sqrt((row * scale.y) ** 2 + columns * columns) <= um) - 1 for row in rows]
    found, wide = np.zeros_like(places), places.copy()
    for columns_away in range(reach[0] + 1):
        if columns_away:
            before = wide.copy()
            wide[:, 1:] |= before[:, :-1]
            wide[:, :-1] |= before[:, 1:]
        for row in (row for row in rows if reach[row] == columns_away):
            found[row:] |= wide[: height - row]
            found[: height - row] |= wide[row:]
    return found


def opened(places: BoolMask, um: float, scale: Resolution) -> BoolMask:
    """What a disc of radius ``um`` covers that fits into ``places``; the picture's edge does not narrow anything."""
    part = around(places, um, scale)
    if part is None or not _holds_square(places[part], um, scale):
        return np.zeros_like(places)
    return places & near(~near(~places, um, scale), um, scale)


def _holds_square(places: BoolMask, um: float, scale: Resolution) -> bool:
    """Whether the square inside a disc of radius ``um`` fits anywhere: without it, no disc does."""
    kept = places.view(np.uint8)
    for axis, step in enumerate((scale.y, scale.x)):
        side = 2 * int(um / math.sqrt(2) / step) + 1
        # Beyond the picture's edge everything counts as inside.
        kept = ndimage.minimum_filter1d(kept, side, axis=axis, mode="constant", cval=1)
    return bool(kept.any())


def around(places: BoolMask, um: float, scale: Resolution) -> tuple[slice, slice] | None:
    """The part of the picture that holds all places and ``um`` around them; None without any."""
    spans = []
    for axis, step in ((1, scale.y), (0, scale.x)):
        occupied = np.flatnonzero(places.any(axis=axis))
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


def without_specks(places: BoolMask, mm2: float, scale: Resolution) -> BoolMask:
    """Without connected regions smaller than ``mm2``."""
    regions, sizes = regions_of(places)
    kept = _mm2(sizes, scale) >= mm2
    kept[0] = False
    return np.asarray(kept[regions])


def without_holes(places: BoolMask, mm2: float, scale: Resolution) -> BoolMask:
    """With enclosed gaps up to ``mm2`` filled.

    >>> ring = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool)
    >>> bool(without_holes(ring, 1.0, Resolution.square(10.0)).all())
    True
    """
    gaps, _ = ndimage.label(~places)
    filled = _mm2(np.bincount(gaps.ravel()), scale) <= mm2
    filled[np.unique(np.concatenate([gaps[0], gaps[-1], gaps[:, 0], gaps[:, -1]]))] = False
    filled[0] = True
    return np.asarray(filled[gaps])


def _mm2(pixels: NDArray[np.int64], scale: Resolution) -> NDArray[np.float64]:
    return np.asarray(pixels * (scale.pixel_area_um2 / 1e6))


def regions_of(places: BoolMask) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Connected regions, numbered from 1 (diagonal neighbours connect), and the pixels of each; entry 0 is the rest."""
    regions, _ = ndimage.label(places, structure=_ALL_NEIGHBOURS)
    return regions, np.bincount(regions.ravel())


def shrunk(plane: NDArray[np.floating] | BoolMask, factors: tuple[int, int]) -> Floats:
    """Means of blocks of ``factors`` (rows, columns); a last, incomplete one is filled up with its edge.

    >>> shrunk(np.array([[0, 2, 5]], dtype=np.float32), (1, 2)).tolist()
    [[1.0, 5.0]]
    """
    padding = [(0, -size % factor) for size, factor in zip(plane.shape, factors, strict=True)]
    full = np.asarray(plane, dtype=np.float32)
    if any(after for _, after in padding):
        full = np.pad(full, padding, mode="edge")
    down, across = factors
    parts = [full[row::down, column::across] for row in range(down) for column in range(across)]
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total / np.float32(len(parts))


def spread(places: BoolMask, factors: tuple[int, int], shape: tuple[int, int]) -> BoolMask:
    """The reverse for places: every pixel of a block, cut to ``shape``."""
    return places.repeat(factors[0], axis=0)[: shape[0]].repeat(factors[1], axis=1)[:, : shape[1]]
