"""From a label mask to polygons along the pixel edges, exactly, with holes.

A region is a set of pixels of one class connected over their sides. Its outline is followed from corner to corner
with the region on the right hand, so outlines run clockwise on the screen and holes the other way. The corners of the
whole mask are found by comparing shifted arrays, a band of rows at a time; corner after corner is then linked without
a search, because the straight edges of one direction on one line never overlap: the n-th to begin is the n-th to end.
Memory grows with the length of the outlines, not with the number of pixels.

Where two pixels of one region touch at a corner only, the outline would meet itself. It is split there, into an
outline and a hole or into two holes that touch in a point: valid for every program that reads polygons.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE

BAND_PIXELS = 1 << 22
"""Pixels looked at together."""
CORNERS = 1 << 20
"""Corners measured together, about."""

EAST, SOUTH, WEST, NORTH = range(4)

Ring = NDArray[np.int32]
"""Corners of a closed outline, (n, 2) as x, y in pixel edges of the mask; the last equals the first."""
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Region:
    """One connected region of a class."""

    number: int
    """Counts from 1 over the mask, by the first pixel in reading order."""
    class_index: int
    exterior: Ring = field(repr=False)
    holes: tuple[Ring, ...] = field(repr=False)
    pixels: int
    """Number of pixels: the area inside the outline less the holes, exactly."""
    sides_x: int
    """Length of the horizontal outline, in pixel widths, holes included."""
    sides_y: int
    """Length of the vertical outline, in pixel heights, holes included."""
    confidence: float | None = None
    """Mean of the confidence over the region's pixels, in the unit in which it was given."""

    @property
    def bounds(self) -> tuple[int, int, int, int]:
        """Left, top, right, bottom in pixels."""
        low, high = self.exterior.min(axis=0), self.exterior.max(axis=0)
        return int(low[0]), int(low[1]), int(high[0]), int(high[1])


def polygons(
    mask: NDArray[np.uint8], *, skip: Collection[int] = (), confidence: NDArray[Any] | None = None
) -> Iterator[Region]:
    """Every region of ``mask`` (H, W), class indices with 255 = nothing, in reading order; classes in ``skip`` are not.

    >>> ring = np.array([[3, 3, 3], [3, 255, 3], [3, 3, 3]], dtype=np.uint8)
    >>> [(r.class_index, r.pixels, len(r.holes), r.exterior.tolist()) for r in polygons(ring)]
    [(3, 8, 1, [[0, 0], [3, 0], [3, 3], [0, 3], [0, 0]])]
    """
    _check(mask, confidence)
    if mask.size == 0:
        return
    wanted = np.ones(256, dtype=bool)
    wanted[[IGNORE, *skip]] = False
    regions = _label(mask, confidence)
    corners = _corners(mask, wanted, regions)
    yield from _assemble(corners, regions)


def _check(mask: NDArray[np.uint8], confidence: NDArray[Any] | None) -> None:
    if mask.ndim != 2 or mask.dtype != np.uint8:
        raise DataError(
            "a label mask has two axes of 8 bits", got=f"{mask.dtype} {mask.shape}", expected="uint8 (H, W)"
        )
    if confidence is not None and confidence.shape != mask.shape:
        raise DataError("mask and confidence differ in size", got=confidence.shape, expected=mask.shape)


def _bands(height: int, width: int) -> Iterator[tuple[int, int]]:
    step = max(1, BAND_PIXELS // max(width, 1))
    return ((top, min(top + step, height)) for top in range(0, height, step))


@dataclass(frozen=True, eq=False)
class _Regions:
    """Runs of pixels of one class along the rows, and to which region each belongs."""

    width: int
    starts: Index
    """Row times width plus column of every run's first pixel, rising."""
    region: NDArray[np.int32]
    """Region of every run, from 0; the regions are in reading order."""
    class_of: NDArray[np.uint8]
    confidence: NDArray[np.float64] | None

    def at(self, row: Index, column: Index) -> NDArray[np.int32]:
        """Regions of pixels."""
        run = np.searchsorted(self.starts, row * self.width + column, side="right") - 1
        return self.region[run]


def _label(mask: NDArray[np.uint8], confidence: NDArray[Any] | None) -> _Regions:
    """Connected regions from the runs of the rows: a run joins the runs above it that it touches."""
    height, width = mask.shape
    starts, classes, sums, joins = [], [], [], []
    last_row: NDArray[np.uint8] | None = None
    last_begins = np.zeros(width, dtype=bool)
    last_flat, count = np.zeros(0, dtype=np.int64), 0
    for top, bottom in _bands(height, width):
        rows = np.asarray(mask[top:bottom])
        begins = np.ones(rows.shape, dtype=bool)
        np.not_equal(rows[:, 1:], rows[:, :-1], out=begins[:, 1:])
        flat = np.flatnonzero(begins)
        starts.append(flat + top * width)
        classes.append(rows.reshape(-1)[flat])
        if confidence is not None:
            sums.append(np.add.reduceat(np.asarray(confidence[top:bottom]).reshape(-1), flat, dtype=np.float64))
        above = np.concatenate([rows[:1] if last_row is None else last_row[None], rows[:-1]])
        above_begins = np.concatenate([last_begins[None], begins[:-1]])
        # Two runs overlap from the column on where the later of them begins.
        touch = (rows == above) & (begins | above_begins)
        touch[0] &= last_row is not None
        below = np.flatnonzero(touch)
        # The runs of this band and those of the row above it, counted from the latter's first one.
        near = np.concatenate([last_flat - width, flat])
        joins.append(
            np.stack([np.searchsorted(near, places, side="right") - 1 for places in (below - width, below)])
            + (count - len(last_flat))
        )
        last_row, last_begins = rows[-1].copy(), begins[-1].copy()
        last_flat, count = np.flatnonzero(last_begins), count + len(flat)
    return _in_order(starts, classes, _components(joins, count), (height, width), sums)


def _components(joins: list[Index], count: int) -> NDArray[np.int32]:
    """Number of the connected region of each run, in any order; ``joins`` is emptied."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    # Small integers, or the library copies them.
    pairs = np.concatenate([np.zeros((2, 0), np.int32), *(part.astype(np.int32) for part in joins)], axis=1)
    joins.clear()
    graph = sparse.coo_array((np.ones(pairs.shape[1], dtype=np.int8), (pairs[0], pairs[1])), shape=(count, count))
    component: NDArray[np.int32] = connected_components(graph, directed=False)[1]
    return component


def _in_order(
    starts: list[Index],
    classes: list[NDArray[np.uint8]],
    component: NDArray[np.int32],
    shape: tuple[int, int],
    sums: list[NDArray[np.float64]],
) -> _Regions:
    """Number the regions by their first run, and average the confidence over each."""
    start, runs = np.concatenate(starts), len(component)
    starts.clear()
    first = np.zeros(int(component.max()) + 1, dtype=np.int64)
    first[component[::-1]] = np.arange(runs - 1, -1, -1)  # the first run of a region is written last
    order = np.argsort(first)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order))
    region = rank[component]
    mean = None
    if sums:
        lengths = np.bincount(region, weights=np.diff(start, append=shape[0] * shape[1]))
        mean = np.bincount(region, weights=np.concatenate(sums)) / lengths
    return _Regions(shape[1], start, region, np.concatenate(classes)[first[order]], mean)


@dataclass(frozen=True, eq=False)
class _Corners:
    """Where outlines turn: (x, y), the directions in which they arrive and leave, and whose outline it is."""

    x: NDArray[np.integer]
    y: NDArray[np.integer]
    arrive: NDArray[np.integer]
    leave: NDArray[np.integer]
    region: NDArray[np.integer]

    def small(self) -> _Corners:
        """The same in as few bytes as will do, since all corners of a mask are held together."""
        kinds = {"x": np.int32, "y": np.int32, "arrive": np.int8, "leave": np.int8, "region": np.int32}
        return _Corners(**{name: getattr(self, name).astype(kind) for name, kind in kinds.items()})


# The four pixels around a corner: top left, top right, bottom left, bottom right, as (row, column) from the corner.
_PIXELS = ((-1, -1), (-1, 0), (0, -1), (0, 0))
# How the outline of each of them turns if it is alone, and if only the pixel diagonally opposite is foreign.
_CONVEX = ((SOUTH, WEST), (WEST, NORTH), (EAST, SOUTH), (NORTH, EAST))
_CONCAVE = ((WEST, SOUTH), (NORTH, WEST), (SOUTH, EAST), (EAST, NORTH))


def _corners(mask: NDArray[np.uint8], wanted: NDArray[np.bool_], regions: _Regions) -> _Corners:
    found: list[_Corners] = []
    height, width = mask.shape
    for top, bottom in _bands(height + 1, width + 1):
        # Rows top - 1 … bottom - 1 of the mask with one foreign pixel around: corners top … bottom - 1 lie between.
        low, high = max(top - 1, 0), min(bottom, height)
        rows = np.full((bottom - top + 1, width + 2), IGNORE, dtype=np.uint8)
        rows[low - (top - 1) : high - (top - 1), 1:-1] = mask[low:high]
        rows[~wanted[rows]] = IGNORE
        found.append(_sorted([*_turns(rows, top, regions)]))
    return _joined(found)


def _sorted(parts: list[_Corners]) -> _Corners:
    """In reading order; bands come in that order, so that none needs to be sorted with another."""
    joined = _joined([part.small() for part in parts])
    order = np.lexsort((joined.leave, joined.x, joined.y))
    return _Corners(*(getattr(joined, field.name)[order] for field in fields(_Corners)))


def _joined(parts: list[_Corners]) -> _Corners:
    return _Corners(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(_Corners)))


def _turns(rows: NDArray[np.uint8], top: int, regions: _Regions) -> Iterator[_Corners]:
    """The corners between the given rows, by the pixel whose outline turns there."""
    upright, level = rows[:, :-1] != rows[:, 1:], rows[:-1] != rows[1:]
    y, x = np.nonzero((upright[:-1] | upright[1:]) & (level[:, :-1] | level[:, 1:]))
    up, down, left, right = upright[y, x], upright[y + 1, x], level[y, x], level[y, x + 1]
    around = [rows[y + 1 + dy, x + 1 + dx] for dy, dx in _PIXELS]
    alone = [up & left, up & right, down & left, down & right]
    two_sides = up.astype(np.int8) + down + left + right == 2
    y = y + top
    for pixel, opposite in enumerate((3, 2, 1, 0)):
        ours = around[pixel] != IGNORE
        convex = np.flatnonzero(ours & alone[pixel])
        own, across = (regions.at(y[convex] + dy, x[convex] + dx) for dy, dx in (_PIXELS[pixel], _PIXELS[opposite]))
        # If the pixel diagonally opposite belongs to the same region, the two outlines cross over.
        same = (around[opposite][convex] == around[pixel][convex]) & (own == across)
        leave = np.where(same, _CONVEX[opposite][1], _CONVEX[pixel][1])
        yield _Corners(x[convex], y[convex], np.full(len(convex), _CONVEX[pixel][0]), leave, own)
        # Only the opposite pixel is foreign: the three others are of one region.
        concave = np.flatnonzero(ours & alone[opposite] & two_sides)
        own = regions.at(y[concave] + _PIXELS[pixel][0], x[concave] + _PIXELS[pixel][1])
        arrive, leaves = (np.full(len(concave), direction) for direction in _CONCAVE[pixel])
        yield _Corners(x[concave], y[concave], arrive, leaves, own)


def _successors(corners: _Corners) -> NDArray[np.int32]:
    """The next corner of the outline after each."""
    following = np.empty(len(corners.x), dtype=np.int32)
    for direction in range(4):
        begins = np.flatnonzero(corners.leave == direction)
        ends = np.flatnonzero(corners.arrive == direction)
        if direction in (SOUTH, NORTH):  # the corners are in reading order; these edges run along columns
            begins = begins[np.argsort(corners.x[begins], kind="stable")]
            ends = ends[np.argsort(corners.x[ends], kind="stable")]
        following[begins] = ends
    return following


def _assemble(corners: _Corners, regions: _Regions) -> Iterator[Region]:
    """Follow the corners round, and give every region its outline and holes."""
    order, first = _follow(_successors(corners))
    if len(first) == 0:
        return
    points = np.stack([corners.x[order], corners.y[order]], axis=1)
    ends = np.append(first[1:], len(order))
    owner = corners.region[order[first]]
    del corners, order
    twice, sides_x, sides_y = _measure(points, first, ends)
    # Regions in reading order; in each the outline, which alone runs clockwise, before the holes.
    rings = np.lexsort((twice < 0, owner))
    breaks = np.append(np.flatnonzero(np.diff(owner[rings], prepend=-1)), len(rings))
    for number, (start, stop) in enumerate(pairwise(breaks), start=1):
        own = rings[start:stop]
        region = int(owner[own[0]])
        exterior, *holes = (_closed(points, first[ring], ends[ring]) for ring in own.tolist())
        yield Region(
            number=number,
            class_index=int(regions.class_of[region]),
            exterior=exterior,
            holes=tuple(holes),
            pixels=sum(twice[own].tolist()) // 2,
            sides_x=sum(sides_x[own].tolist()),
            sides_y=sum(sides_y[own].tolist()),
            confidence=None if regions.confidence is None else float(regions.confidence[region]),
        )


def _measure(points: NDArray[np.int32], first: Index, ends: Index) -> tuple[Index, Index, Index]:
    """Twice the signed area of each ring, and its length along x and along y; some rings at a time."""
    measures = np.zeros((3, len(first)), dtype=np.int64)
    start = 0
    while start < len(first):
        stop = max(start + 1, int(np.searchsorted(ends, first[start] + CORNERS, side="right")))
        begin, end = first[start], ends[stop - 1]
        own = first[start:stop] - begin
        following = np.arange(1, end - begin + 1)
        following[ends[start:stop] - begin - 1] = own
        x, y = points[begin:end].astype(np.int64).T
        measures[0, start:stop] = np.add.reduceat(x * y[following] - x[following] * y, own)
        measures[1, start:stop] = np.add.reduceat(np.abs(x[following] - x), own)
        measures[2, start:stop] = np.add.reduceat(np.abs(y[following] - y), own)
        start = stop
    return measures[0], measures[1], measures[2]


def _follow(following: NDArray[np.int32]) -> tuple[NDArray[np.int32], Index]:
    """All corners ring by ring, and where each ring begins."""
    order = np.empty(len(following), dtype=np.int32)
    # Views of the arrays: as quick as lists to walk along, without a Python object per corner.
    after, out, seen = following.data, order.data, bytearray(len(following))
    first, filled, start = array("q"), 0, seen.find(0)
    while start >= 0:
        first.append(filled)
        corner = start
        while not seen[corner]:
            seen[corner] = 1
            out[filled] = corner
            filled += 1
            corner = after[corner]
        start = seen.find(0, start)
    return order, np.array(first, dtype=np.int64)


def _closed(points: NDArray[np.int32], first: int, end: int) -> Ring:
    return np.concatenate([points[first:end], points[first : first + 1]])
