"""Outlines of regions as polygons along the pixel edges, exactly, with holes.

An outline is followed from corner to corner with the region on the right hand, so outlines run clockwise on the screen
and holes the other way. The corners are found from the runs of two rows at a time. Corner after corner is then linked
without a search, because the straight edges of one direction on one line never overlap: the n-th to begin is the n-th
to end. Memory grows with the length of the outlines, not with the number of pixels.

Where two pixels of one region touch at a corner only, the outline would meet itself. It is split there, into an
outline and a hole or into two holes that touch in a point: valid for every program that reads polygons.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.analysis.regions import Regions
from ntrm.analysis.runs import Ints, Runs, overlaps, strips_of

CORNERS = 1 << 20
"""Corners linked together, about."""

EAST, SOUTH, WEST, NORTH = range(4)

Ring = NDArray[np.int32]
"""Corners of a closed outline, (n, 2) as x, y in pixel edges of the mask; the last equals the first."""
Ids = NDArray[np.int32]


class Outlines(NamedTuple):
    """The rings of some regions that follow on each other in the table."""

    points: NDArray[np.int32]
    """(n, 2) x and y in pixel edges, ring by ring; each ring ends with its first point."""
    ring: Ints
    """(rings + 1,) where each begins; at last the end."""
    region: Ints
    """(regions + 1,) the first ring of each region, which is its outline; at last the number of rings."""

    def __len__(self) -> int:
        return len(self.region) - 1

    def spans(self) -> Iterator[list[tuple[int, int]]]:
        """For each region the first and last place (exclusive) in ``points`` of its outline and of its holes."""
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
    many = np.cumsum(np.bincount(corners.region, minlength=count))
    last = 0
    while last < count:
        before = int(many[last - 1]) if last else 0
        first, last = last, max(last + 1, int(np.searchsorted(many, before + CORNERS, side="right")))
        whole = first == 0 and last == count
        some = corners if whole else corners.chosen((corners.region >= first) & (corners.region < last))
        yield _linked(some._replace(region=some.region - first))


class Corners(NamedTuple):
    """Where outlines turn, in reading order: the directions in which they arrive and leave, and whose they are."""

    x: Ids
    y: Ids
    arrive: NDArray[np.int8]
    leave: NDArray[np.int8]
    region: Ids

    def chosen(self, which: Any) -> Corners:
        """Some of them."""
        return Corners(*(each[which] for each in self))


# Around a corner lie four pixels: top left, top right, bottom left, bottom right. How the outline of each of them turns
# if it is alone, and if only the pixel diagonally opposite is foreign.
_CONVEX = ((SOUTH, WEST), (WEST, NORTH), (EAST, SOUTH), (NORTH, EAST))
_CONCAVE = ((WEST, SOUTH), (NORTH, WEST), (SOUTH, EAST), (EAST, NORTH))


def _corners(regions: Regions) -> Corners:
    """All corners of a mask."""
    framed = Runs(regions.runs.shape, regions.runs.start, np.maximum(regions.region, -1))
    height = framed.shape[0]
    strips = [*strips_of(framed)] if len(regions.table) else []
    found = [_turns(*_around(framed, top, bottom + (bottom == height))) for top, bottom in strips]
    kinds = (np.int32, np.int32, np.int8, np.int8, np.int32)
    columns = zip(*found, strict=True) if found else ([] for _ in kinds)
    return Corners(*(np.concatenate([np.zeros(0, kind), *parts]) for kind, parts in zip(kinds, columns, strict=True)))


def _around(runs: Runs, top: int, bottom: int) -> tuple[Ids, Ids, NDArray[np.int32]]:
    """(n,) x and y of points above rows ``top`` … ``bottom`` - 1 where a run begins or ends; the regions around.

    The regions are (4, n): top left, top right, bottom left, bottom right. Rows above and below the mask are outside.
    """
    height, width = runs.shape
    first, last = max(top - 1, 0), min(bottom, height)
    some = slice(*np.searchsorted(runs.start, [first * width, last * width]))
    row = runs.start[some] // width
    # One more column, which is outside: then the run before the first of a row is so, too.
    wide, shift = width + 1, top - 1
    ends = (np.arange(top - 1, bottom) - shift) * wide + width
    missing = np.array([at for at, gone in ((0, top == 0), (bottom - 1 - shift, bottom > height)) if gone], dtype=int)
    start = np.concatenate([runs.start[some] + row - shift * wide, ends, missing * wide])
    value = np.concatenate([runs.value[some], np.full(len(ends) + len(missing), -1, dtype=np.int32)])
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
    some = np.flatnonzero((up | down) & (left | right))
    x, y, around = x[some], y[some], around[:, some]
    up, down, left, right = up[some], down[some], left[some], right[some]
    alone = (up & left, up & right, down & left, down & right)
    two_sides = up.astype(np.int8) + down + left + right == 2
    at, arrive, leave, region = [], [], [], []
    for pixel, opposite in enumerate((3, 2, 1, 0)):
        ours = around[pixel] >= 0
        convex = np.flatnonzero(ours & alone[pixel])
        own = around[pixel][convex]
        # If the pixel diagonally opposite belongs to the same region, the two outlines cross over.
        crossing = np.where(own == around[opposite][convex], _CONVEX[opposite][1], _CONVEX[pixel][1])
        # Only the opposite pixel is foreign: the three others are of one region.
        concave = np.flatnonzero(ours & alone[opposite] & two_sides)
        at += [convex, concave]
        arrive += [np.full(len(convex), _CONVEX[pixel][0]), np.full(len(concave), _CONCAVE[pixel][0])]
        leave += [crossing, np.full(len(concave), _CONCAVE[pixel][1])]
        region += [own, around[pixel][concave]]
    place, out = np.concatenate(at), np.concatenate(leave)
    order = np.argsort(place * 4 + out, kind="stable")
    place = place[order]
    directions = (np.concatenate(arrive)[order].astype(np.int8), out[order].astype(np.int8))
    return Corners(x[place], y[place], *directions, np.concatenate(region)[order])


def _linked(corners: Corners) -> Outlines:
    """The rings of the regions from 0 on whose corners these are."""
    order, ring = follow_rings(_successors(corners))
    points = np.stack([corners.x[order], corners.y[order]], axis=1)
    first = np.flatnonzero(np.diff(ring, prepend=-1))
    owner = corners.region[order[first]]
    lengths = np.diff(first, append=len(order))
    # In each region the outline, which begins first in reading order, before the holes.
    rings = np.argsort(owner, kind="stable")
    # Every ring once more with its first point at the end.
    begins = np.append(0, np.cumsum(lengths[rings] + 1))
    places = np.arange(begins[-1]) + np.repeat(first[rings] - begins[:-1], lengths[rings] + 1)
    places[begins[1:] - 1] = first[rings]
    breaks = np.append(np.flatnonzero(np.diff(owner[rings], prepend=-1)), len(rings))
    return Outlines(points[places], begins, breaks)


def _successors(corners: Corners) -> NDArray[np.int32]:
    """The next corner of the outline after each."""
    following = np.empty(len(corners.x), dtype=np.int32)
    # Sixteen bits are sorted by counting.
    x = corners.x.astype(np.uint16) if len(corners.x) and corners.x.max() < 1 << 16 else corners.x
    for direction in range(4):
        begins = np.flatnonzero(corners.leave == direction)
        ends = np.flatnonzero(corners.arrive == direction)
        if direction in (SOUTH, NORTH):  # the corners are in reading order; these edges run along columns
            begins = begins[np.argsort(x[begins], kind="stable")]
            ends = ends[np.argsort(x[ends], kind="stable")]
        following[begins] = ends
    return following


def follow_rings(following: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """All corners ring by ring, each ring from its first corner on, and the ring of each of them, rising.

    The rings are put end to end as one long path, which the library walks.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, connected_components

    size = len(following)
    if not size:
        return following, following
    steps = np.arange(size + 1, dtype=np.int32)
    ones = np.ones(size, dtype=np.int8)
    count, found = connected_components(csr_array((ones, following, steps), (size, size)), connection="strong")
    first = np.empty(count, dtype=np.int32)
    first[found[::-1]] = steps[:-1][::-1]  # the first corner of a ring is written last
    first.sort()
    before = np.empty(size, dtype=np.int32)
    before[following] = steps[:-1]
    path = following.copy()
    path[before[first]] = np.append(first[1:], first[:1])
    order = breadth_first_order(csr_array((ones, path, steps), (size, size)), 0, return_predecessors=False)
    starts = np.zeros(size, dtype=np.int32)
    starts[first] = 1
    return order, np.cumsum(starts[order], dtype=np.int32) - 1
