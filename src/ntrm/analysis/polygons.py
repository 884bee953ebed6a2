"""Outlines of regions as polygons along the pixel edges, exactly, with holes.

An outline runs from corner to corner with the region on the right, so outlines are clockwise on the screen and holes
the other way. The corners come from the runs of two rows at a time. They are linked without a search, because the
straight edges of one direction on one line never overlap: the n-th to begin is the n-th to end. Memory grows with the
length of the outlines, not with the number of pixels.

Where two pixels of one region touch at a corner only, the outline would meet itself. It is split there, into an
outline and a hole or into two holes that touch in a point, which are valid polygons.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.analysis.regions import Regions
from ntrm.analysis.runs import Ints, Runs, overlaps, ranges, strips_of

CORNERS = 1 << 20
"""Corners linked together, about."""

EAST, SOUTH, WEST, NORTH = range(4)

Ring = NDArray[np.int32]
"""Corners of a closed outline, (n, 2) as x, y in pixel edges of the mask; the last equals the first."""
Ids = NDArray[np.int32]


class Outlines(NamedTuple):
    """The rings of consecutive regions of the table."""

    points: Ring
    """(n, 2) x and y in pixel edges, ring by ring; each ring ends with its first point."""
    ring: Ints
    """(rings + 1,) index of the first point of each, then the number of points."""
    region: Ints
    """(regions + 1,) the first ring of each region, which is its outline, then the number of rings."""

    def __len__(self) -> int:
        return len(self.region) - 1

    def spans(self) -> Iterator[list[tuple[int, int]]]:
        """For each region the first and last index (exclusive) into ``points`` of its outline and of its holes."""
        rings = [*pairwise(self.ring.tolist())]
        return (rings[begin:end] for begin, end in pairwise(self.region.tolist()))


def polygons(regions: Regions) -> Iterator[list[Ring]]:
    """For each region its outline and its holes.

    >>> from ntrm.analysis.regions import scan
    >>> from ntrm.core.mpp import Resolution
    >>> square = np.array([[3, 3, 3], [3, 255, 3], [3, 3, 3]], dtype=np.uint8)
    >>> [[ring.tolist() for ring in rings] for rings in polygons(scan(square, Resolution.square(1.0)))]
    [[[[0, 0], [3, 0], [3, 3], [0, 3], [0, 0]], [[1, 1], [1, 2], [2, 2], [2, 1], [1, 1]]]]
    """
    for outlines in outlines_of(regions):
        for spans in outlines.spans():
            yield [outlines.points[begin:end] for begin, end in spans]


def outlines_of(regions: Regions) -> Iterator[Outlines]:
    """The outlines of all regions in the order of their numbers, of many regions at a time."""
    corners, count = _corners(regions), len(regions.table)
    up_to = np.cumsum(np.bincount(corners.region, minlength=count))
    last = 0
    while last < count:
        before = int(up_to[last - 1]) if last else 0
        first, last = last, max(last + 1, int(np.searchsorted(up_to, before + CORNERS, side="right")))
        chosen = corners
        if (first, last) != (0, count):
            within: Any = (corners.region >= first) & (corners.region < last)
            chosen = Corners(*(column[within] for column in corners))
        yield _linked(chosen._replace(region=chosen.region - first))


class Corners(NamedTuple):
    """Where outlines turn, in reading order: the directions in which they arrive and leave, and their regions."""

    x: Ids
    y: Ids
    arrive: NDArray[np.int8]
    leave: NDArray[np.int8]
    region: Ids


# Around a corner lie four pixels: top left, top right, bottom left, bottom right. How the outline of each of them turns
# if it is alone, and if only the pixel diagonally opposite belongs to another region.
_CONVEX = ((SOUTH, WEST), (WEST, NORTH), (EAST, SOUTH), (NORTH, EAST))
_CONCAVE = ((WEST, SOUTH), (NORTH, WEST), (SOUTH, EAST), (EAST, NORTH))


def _corners(regions: Regions) -> Corners:
    """All corners of a mask."""
    framed = Runs(regions.runs.shape, regions.runs.start, np.maximum(regions.region, -1))
    height = framed.shape[0]
    strips = [*strips_of(framed)] if len(regions.table) else []
    dtypes: Any = (np.int32, np.int32, np.int8, np.int8, np.int32)
    none = Corners(*(np.zeros(0, dtype) for dtype in dtypes))
    turns = [_turns(*_around(framed, top, bottom + (bottom == height))) for top, bottom in strips]
    columns: Any = zip(none, *turns, strict=True)
    return Corners(*(np.concatenate(column) for column in columns))


def _around(runs: Runs, top: int, bottom: int) -> tuple[Ids, Ids, NDArray[np.int32]]:
    """(n,) x and y of points above rows ``top`` … ``bottom`` - 1 where a run begins or ends; the regions around.

    The regions are (4, n): top left, top right, bottom left, bottom right. Rows above and below the mask are outside.
    """
    height, width = runs.shape
    first, last = max(top - 1, 0), min(bottom, height)
    in_rows = slice(*np.searchsorted(runs.start, [first * width, last * width]))
    row = runs.start[in_rows] // width
    # One more column, which is outside: then the run before the first of a row is outside, too.
    wide, shift = width + 1, top - 1
    ends = (np.arange(top - 1, bottom) - shift) * wide + width
    missing = np.array([at for at, gone in ((0, top == 0), (bottom - 1 - shift, bottom > height)) if gone], dtype=int)
    start = np.concatenate([runs.start[in_rows] + row - shift * wide, ends, missing * wide])
    value = np.concatenate([runs.value[in_rows], np.full(len(ends) + len(missing), -1, dtype=np.int32)])
    order = np.argsort(start, kind="stable")
    local = Runs((bottom - shift, wide), start[order], value[order])
    pairs = overlaps(local, 1, local.shape[0])
    right = local.value[pairs.above], local.value[pairs.below]
    left = [np.append(np.int32(-1), side[:-1]) for side in right]
    y = pairs.start // wide
    return (
        (pairs.start - y * wide).astype(np.int32),
        (y + shift).astype(np.int32),
        np.stack([left[0], right[0], left[1], right[1]]),
    )


def _turns(x: Ids, y: Ids, around: NDArray[np.int32]) -> Corners:
    """The corners at these points; each of the four pixels around may have one."""
    upper_left, upper_right, lower_left, lower_right = around
    up, down = upper_left != upper_right, lower_left != lower_right
    left, right = upper_left != lower_left, upper_right != lower_right
    corners = np.flatnonzero((up | down) & (left | right))
    x, y, around = x[corners], y[corners], around[:, corners]
    up, down, left, right = up[corners], down[corners], left[corners], right[corners]
    alone = (up & left, up & right, down & left, down & right)
    two_sides = up.astype(np.int8) + down + left + right == 2
    at, arrive, leave, region = [], [], [], []
    for pixel, opposite in enumerate((3, 2, 1, 0)):
        ours = around[pixel] >= 0
        convex = np.flatnonzero(ours & alone[pixel])
        own = around[pixel][convex]
        # If the pixel diagonally opposite belongs to the same region, the two outlines cross over.
        crossing = np.where(own == around[opposite][convex], _CONVEX[opposite][1], _CONVEX[pixel][1])
        # The three pixels but the opposite one are of one region.
        concave = np.flatnonzero(ours & alone[opposite] & two_sides)
        at += [convex, concave]
        arrive += [np.full(len(convex), _CONVEX[pixel][0]), np.full(len(concave), _CONCAVE[pixel][0])]
        leave += [crossing, np.full(len(concave), _CONCAVE[pixel][1])]
        region += [own, around[pixel][concave]]
    index, out = np.concatenate(at), np.concatenate(leave)
    order = np.argsort(index * 4 + out, kind="stable")
    index = index[order]
    directions = (np.concatenate(arrive)[order].astype(np.int8), out[order].astype(np.int8))
    return Corners(x[index], y[index], *directions, np.concatenate(region)[order])


def _linked(corners: Corners) -> Outlines:
    """The rings of the regions from 0 on whose corners these are."""
    order, ring = follow_rings(_successors(corners))
    points = np.stack([corners.x[order], corners.y[order]], axis=1)
    first = np.flatnonzero(np.diff(ring, prepend=-1))
    owner = corners.region[order[first]]
    lengths = np.diff(first, append=len(order))
    # In each region the outline, which begins first in reading order, before the holes.
    rings = np.argsort(owner, kind="stable")
    # Every ring with its first point once more at the end.
    begins = np.append(0, np.cumsum(lengths[rings] + 1))
    index = ranges(first[rings], lengths[rings] + 1)
    index[begins[1:] - 1] = first[rings]
    breaks = np.append(np.flatnonzero(np.diff(owner[rings], prepend=-1)), len(rings))
    return Outlines(points[index], begins, breaks)


def _successors(corners: Corners) -> NDArray[np.int32]:
    """The next corner of the outline after each."""
    following = np.empty(len(corners.x), dtype=np.int32)
    # Sixteen bits are sorted by counting.
    x = corners.x.astype(np.uint16) if len(corners.x) and corners.x.max() < 1 << 16 else corners.x
    for direction in range(4):
        begins = np.flatnonzero(corners.leave == direction)
        ends = np.flatnonzero(corners.arrive == direction)
        if direction in (SOUTH, NORTH):  # the corners are in reading order; these edges run along columns
            begins, ends = (index[np.argsort(x[index], kind="stable")] for index in (begins, ends))
        following[begins] = ends
    return following


def follow_rings(following: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """All corners ring by ring, each ring from its first corner on, and the ring of each of them, rising.

    The rings are joined to one long path, which a breadth-first search walks.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    size = len(following)
    if not size:
        return following, following
    steps = np.arange(size + 1, dtype=np.int32)
    ones = np.ones(size, dtype=np.int8)
    count, ring = connected_components(csr_array((ones, following, steps), (size, size)), connection="strong")
    first = np.empty(count, dtype=np.int32)
    first[ring[::-1]] = steps[:-1][::-1]  # the first corner of a ring is written last
    first.sort()
    before = np.empty(size, dtype=np.int32)
    before[following] = steps[:-1]
    path = following.copy()
    path[before[first]] = np.append(first[1:], first[:1])
    order = breadth_first_order(csr_array((ones, path, steps), (size, size)), 0, return_predecessors=False)
    starts = np.zeros(size, dtype=np.int32)
    starts[first] = 1
    return order, np.cumsum(starts[order], dtype=np.int32) - 1
