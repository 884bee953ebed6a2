"""Outlines of regions as polygons along the pixel edges, exactly, with holes; and polygons as pixels.

An outline runs from corner to corner with the region on the right, so outlines are clockwise on the screen and holes
the other way. The corners come from the runs of two rows at a time. They are linked without a search, because the
straight edges of one direction on one line never overlap: the n-th to begin is the n-th to end. Memory grows with the
length of the outlines, not with the number of pixels.

Where two pixels of one region touch at a corner only, the outline would meet itself. It is split there, into an
outline and a hole or into two holes that touch in a point, which are valid polygons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Floats, Ints, ranges
from ntrm.regions.regions import Regions
from ntrm.regions.runs import RunLengths, overlaps, strips_of

CORNERS = 1 << 20  # Corners linked together, about
CROSSINGS = 1 << 18
"""Edge crossings worked on at once; bounds the memory that a ragged outline of many long edges needs."""

EAST, SOUTH, WEST, NORTH = range(4)
ALL_SIDES = 15  # Borders go from a corner in all four directions

Ring = NDArray[np.int32]
"""Corners of a closed outline, (n, 2) as x, y in pixel edges of the mask; the last equals the first."""
Ids = NDArray[np.int32]


class Outlines(NamedTuple):
    """The rings of consecutive regions of the table."""

    points: Ring  # (n, 2) x and y in pixel edges, ring by ring; each ring ends with its first point
    ring: Ints  # (rings + 1,) index of the first point of each, then the number of points
    region: Ints  # (regions + 1,) the first ring of each region, which is its outline, then the number of rings

    def __len__(self) -> int:
        return len(self.region) - 1

    def spans(self) -> Iterator[list[tuple[int, int]]]:
        """For each region the first and last index (exclusive) into ``points`` of its outline and of its holes."""
        rings = [*pairwise(self.ring.tolist())]
        return (rings[begin:end] for begin, end in pairwise(self.region.tolist()))


def outlines_of(regions: Regions) -> Iterator[Outlines]:
    """The outlines of all regions in the order of their numbers, of many regions at a time.

    >>> from ntrm.regions.regions import scan_mask
    >>> from ntrm.core.labels import SKIN
    >>> from ntrm.core.mpp import Resolution
    >>> square = np.array([[3, 3, 3], [3, 255, 3], [3, 3, 3]], dtype=np.uint8)
    >>> [outlines.points.tolist() for outlines in outlines_of(scan_mask(square, SKIN, Resolution.square(1.0)))]
    [[[0, 0], [3, 0], [3, 3], [0, 3], [0, 0], [1, 1], [1, 2], [2, 2], [2, 1], [1, 1]]]
    """
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
    framed = RunLengths(regions.runs.shape, regions.runs.start, np.maximum(regions.region, -1))
    height = framed.shape[0]
    strips = [*strips_of(framed)] if len(regions.table) else []
    dtypes: Any = (np.int32, np.int32, np.int8, np.int8, np.int32)
    none = Corners(*(np.zeros(0, dtype) for dtype in dtypes))
    turns = [_turns(*_around(framed, top, bottom + (bottom == height))) for top, bottom in strips]
    columns: Any = zip(none, *turns, strict=True)
    return Corners(*(np.concatenate(column) for column in columns))


def _around(runs: RunLengths, top: int, bottom: int) -> tuple[Ids, Ids, NDArray[np.int32]]:
    """(n,) x and y of points above rows ``top`` … ``bottom`` - 1 where a run begins or ends; the regions around.

    The regions are (4, n): top left, top right, bottom left, bottom right. Rows above and below the mask are outside.
    """
    height, width = runs.shape
    first, last = max(top - 1, 0), min(bottom, height)
    rows = np.arange(first, last)
    begins = np.searchsorted(runs.start, np.arange(first, last + 1) * width)
    own = slice(begins[0], begins[-1])
    # One more column, which is outside: then the run before the first of a row is outside, too.
    wide, shift = width + 1, top - 1
    at = begins[1:] - begins[0]
    start = np.insert(
        runs.start[own] + np.repeat(rows, np.diff(begins)) - shift * wide, at, (rows - shift) * wide + width
    )
    value = np.insert(runs.value[own], at, np.int32(-1))
    # A row that is missing is outside from its first pixel on.
    above, below = [0] * (top == 0), [(bottom - 1 - shift) * wide] * (bottom > height)
    start = np.concatenate([np.array(above, dtype=np.int64), start, np.array(below, dtype=np.int64)])
    value = np.pad(value, (len(above), len(below)), constant_values=-1)
    local = RunLengths((bottom - shift, wide), start, value)
    pairs = overlaps(local, 1, local.shape[0])
    right = local.value.take(pairs.above), local.value.take(pairs.below)
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
    sides = (each.view(np.uint8) << bit for bit, each in enumerate((up, down, left, right)))
    code = reduce(np.bitwise_or, sides).take(corners)
    around, crossing = around.take(corners, axis=1), np.flatnonzero(code == ALL_SIDES)
    # At a point, each direction is taken by one outline at most, which brings the corners into order without sorting.
    region, arrive = np.full(len(corners) * 4, -1, dtype=np.int32), np.zeros(len(corners) * 4, dtype=np.int8)
    for pixel, (arriving, leaving) in enumerate(_turns_by_sides()):
        own, leave = around[pixel], leaving.take(code)
        # If the pixel diagonally opposite belongs to the same region, the two outlines cross over.
        same = own.take(crossing) == around[3 - pixel].take(crossing)
        leave[crossing[same]] = _CONVEX[3 - pixel][1]
        turning = np.flatnonzero((leave >= 0) & (own >= 0))
        place = turning * 4 + leave.take(turning)
        region[place], arrive[place] = own.take(turning), arriving.take(code.take(turning))
    taken = np.flatnonzero(region >= 0)
    point = corners.take(taken >> 2)
    return Corners(x.take(point), y.take(point), arrive.take(taken), (taken & 3).astype(np.int8), region.take(taken))


@cache
def _turns_by_sides() -> tuple[tuple[NDArray[np.int8], NDArray[np.int8]], ...]:
    """For each pixel around a corner how its outline arrives and leaves, (16,) by the borders at the corner; -1 if not.

    The borders go up, down, left and right from it, and are bits of the index. A pixel between two of them turns; so
    do the three others as one, the opposite one of them standing for all, if these are the only borders.
    """
    found = np.full((4, 2, 16), -1, dtype=np.int8)
    beside = (0b0101, 0b1001, 0b0110, 0b1010)  # the borders of each pixel
    for pixel, borders in enumerate(beside):
        alone = np.arange(16) & borders == borders
        found[pixel, :, alone] = _CONVEX[pixel]
        found[pixel, :, beside[3 - pixel]] = _CONCAVE[pixel]
    return tuple((arrive, leave) for arrive, leave in found)


def _linked(corners: Corners) -> Outlines:
    """The rings of the regions from 0 on whose corners these are."""
    begin, end, following = _edges(corners)
    order, ring = follow_rings(following)
    path = np.stack([begin.take(order), end.take(order)], axis=1).ravel()
    edges = np.flatnonzero(np.diff(ring, prepend=-1))
    first, lengths = 2 * edges, 2 * np.diff(edges, append=len(order))
    # Rings begin with their first corner in reading order, which in a hole is the end of an edge to the west.
    turned = (path[first + 1] < path[first]).astype(np.int64)
    owner = corners.region[path[first]]
    # In each region the outline, which begins first in reading order, before the holes.
    rings = np.argsort(owner, kind="stable")
    first, lengths, turned = first[rings], lengths[rings], turned[rings]
    # Every ring with its first point once more at the end.
    begins = np.append(0, np.cumsum(lengths + 1))
    index = ranges(first + turned, lengths + 1)
    index[begins[1:] - 1] = first + turned
    index[begins[1:][turned == 1] - 2] = first[turned == 1]
    path = path.take(index)
    breaks = np.append(np.flatnonzero(np.diff(owner[rings], prepend=-1)), len(rings))
    return Outlines(np.stack([corners.x.take(path), corners.y.take(path)], axis=1), begins, breaks)


def _edges(corners: Corners) -> tuple[Ints, Ints, NDArray[np.int32]]:
    """The horizontal edges of outlines in reading order: the corners where they begin and end, and the next of each.

    Horizontal and vertical edges take turns in an outline, so that half of them suffice to follow it.
    """
    begin, end, following = np.empty((3, len(corners.x) // 2), dtype=np.int64)
    # The edge of each corner: edges are numbered by their left ends.
    edge = np.cumsum((corners.leave == EAST) | (corners.arrive == WEST)) - 1
    for direction in (EAST, WEST):
        begins, ends = np.flatnonzero(corners.leave == direction), np.flatnonzero(corners.arrive == direction)
        number = edge[begins if direction == EAST else ends]
        begin[number], end[number] = begins, ends
        edge[begins] = edge[ends] = number
    # Sixteen bits are sorted by counting.
    x = corners.x.astype(np.uint16) if len(corners.x) and corners.x.max() < 1 << 16 else corners.x
    for direction in (SOUTH, NORTH):  # the corners are in reading order; these edges run along columns
        begins, ends = np.flatnonzero(corners.leave == direction), np.flatnonzero(corners.arrive == direction)
        begins, ends = (index[np.argsort(x.take(index), kind="stable")] for index in (begins, ends))
        following[edge.take(begins)] = edge.take(ends)
    return begin, end, following.astype(np.int32)


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


def fill(rings: Iterable[Floats], width: int, height: int, left: int = 0, top: int = 0) -> NDArray[np.bool_]:
    """Pixels whose centres lie inside the rings by the even-odd rule, in the window that starts at ``left``, ``top``.

    Centres exactly on an edge belong to the area on its right or, for horizontal edges, below, so areas
    that share an edge neither overlap nor leave a gap.

    >>> fill([np.array([[0.5, 0], [2.5, 0], [2.5, 1], [0.5, 1]])], 4, 2).astype(int).tolist()
    [[1, 1, 0, 0], [0, 0, 0, 0]]
    """
    # A crossing at x flips every pixel to its right: mark the first of them, then run along the row.
    flips = np.zeros((height, width + 1), dtype=np.uint8)
    for row, x in _crossings(rings, top, top + height):
        column = np.clip(np.ceil(x - 0.5) - left, 0, width).astype(np.intp)
        np.bitwise_xor.at(flips, (row - top, column), np.uint8(1))
    return np.bitwise_xor.accumulate(flips, axis=1)[:, :width].astype(bool)


def _crossings(
    rings: Iterable[Floats], top: int, bottom: int
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float64]]]:
    """Rows, and the x at which an edge crosses the middle of the row, in chunks of bounded size."""
    # (n, 4): x, y of upper and lower end. An edge that two areas share then gives the same crossing for both.
    edges = np.concatenate([np.empty((0, 4)), *(np.hstack([ring, np.roll(ring, -1, axis=0)]) for ring in rings)])
    edges = np.where((edges[:, 1] <= edges[:, 3])[:, None], edges, edges[:, [2, 3, 0, 1]])
    first = np.clip(np.ceil(edges[:, 1] - 0.5), top, bottom).astype(np.intp)
    stop = np.clip(np.ceil(edges[:, 3] - 0.5), top, bottom).astype(np.intp)
    edges, first, stop = edges[first < stop], first[first < stop], stop[first < stop]
    chunk = np.cumsum(stop - first) // CROSSINGS
    for chunk_edges in np.split(np.arange(len(edges)), np.flatnonzero(np.diff(chunk)) + 1):
        rows = stop[chunk_edges] - first[chunk_edges]
        which = np.repeat(chunk_edges, rows)
        row = ranges(first[chunk_edges], rows)
        x0, y0, x1, y1 = edges[which].T
        yield row, x0 + (row + 0.5 - y0) / (y1 - y0) * (x1 - x0)
