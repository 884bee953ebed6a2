"""A mask as runs: stretches of one value along a row. Tissue has few of them for its many pixels.

What a mask of millions of pixels says of its parts, their neighbours and their edges is told from some ten thousand
runs, exactly as from the pixels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Where = NDArray[np.bool_]

CONNECTIVITY = 4
"""Neighbours of a pixel that make one region with it: those that share a side. Pixels that touch at a corner do not."""
STRIP_RUNS = 1 << 18
"""Runs that are compared with those of the next row together, about."""


class Overlaps(NamedTuple):
    """Stretches along which a run lies above another; the runs are given by their numbers."""

    above: Ints
    below: Ints
    start: Ints
    """(n,) index of the first pixel of the stretch in the lower row, in the flattened mask."""
    length: Ints


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs in reading order; together they cover the mask, and none goes on into the next row."""

    shape: tuple[int, int]
    start: Ints
    """(n,) index of the first pixel in the flattened mask."""
    value: NDArray[Any]
    """(n,)"""

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def stop(self) -> Ints:
        """(n,) index after the last pixel."""
        return np.append(self.start[1:], self.shape[0] * self.shape[1])[: len(self)]

    @cached_property
    def length(self) -> Ints:
        """(n,) pixels."""
        return self.stop - self.start

    @cached_property
    def row(self) -> Ints:
        """(n,) in which it lies."""
        return self.start // max(self.shape[1], 1)

    @cached_property
    def left(self) -> Ints:
        """(n,) first column."""
        return self.start - self.row * self.shape[1]

    def at(self, pixels: Ints) -> Ints:
        """Numbers of the runs that hold these flattened indices."""
        return np.searchsorted(self.start, pixels, side="right") - 1

    def relabelled(self, value: NDArray[Any]) -> Runs:
        """The same mask with other values, one per run; runs that became equal are one."""
        kept = np.append(True, (value[1:] != value[:-1]) | (self.left[1:] == 0))[: len(self)]
        return Runs(self.shape, self.start[kept], value[kept])

    def dense(self) -> NDArray[Any]:
        """The mask itself."""
        return np.repeat(self.value, self.length).reshape(self.shape)

    def window(self, top: int, left: int, height: int, width: int, stride: int = 1) -> Runs:
        """A rectangle of the mask, of which every ``stride``-th row and column is taken."""
        some = slice(*np.searchsorted(self.start, [top * self.shape[1], (top + height) * self.shape[1]]))
        start, value = self.start[some], self.value[some]
        row = start // self.shape[1]
        begin = start - row * self.shape[1]
        end = np.append(start[1:], (top + height) * self.shape[1]) - row * self.shape[1]
        tall, wide = -(-height // stride), -(-width // stride)
        # The first column taken that is not before the run's first, or its end.
        first, last = (np.clip(-(-(at - left) // stride), 0, wide) for at in (begin, end))
        kept = ((row - top) % stride == 0) & (first < last)
        runs = Runs((tall, wide), ((row - top) // stride * wide + first)[kept], value[kept])
        return runs.relabelled(runs.value)

    @cached_property
    def overlaps(self) -> Overlaps:
        """All of them, for masks with few runs."""
        return overlaps(self, 1, self.shape[0])

    @property
    def beside(self) -> Ints:
        """Numbers of the runs that have another one at their right."""
        return np.flatnonzero(self.left[1:] != 0)


def runs_of(mask: NDArray[Any]) -> Runs:
    """The runs of a mask (H, W).

    >>> runs = runs_of(np.array([[0, 0, 3], [3, 3, 3]]))
    >>> runs.start.tolist(), runs.value.tolist()
    ([0, 2, 3], [0, 3, 3])
    """
    start = run_starts(mask)
    return Runs((mask.shape[0], mask.shape[1]), start, np.ascontiguousarray(mask).ravel()[start])


def run_starts(*masks: NDArray[Any]) -> Ints:
    """Flattened indices at which a row begins or any of the masks changes."""
    changes = np.zeros(masks[0].size, dtype=bool)
    for mask in masks:
        flat = np.ascontiguousarray(mask).ravel()
        changes[1:] |= flat[1:] != flat[:-1]
    changes[:: max(masks[0].shape[1], 1)] = True
    return np.flatnonzero(changes).astype(np.int64)


def overlaps(runs: Runs, top: int, bottom: int) -> Overlaps:
    """Which runs of rows ``top`` (from 1 on) to ``bottom`` - 1 lie below which."""
    width = runs.shape[1]
    rows = np.array([top - 1, bottom - 1, top, bottom]) * width
    first_above, last_above, first_below, last_below = np.searchsorted(runs.start, rows).tolist()
    both = np.concatenate([runs.start[first_above:last_above] + width, runs.start[first_below:last_below]])
    # Two rising sequences, which this kind of sorting merges. Rows begin with a run in each.
    order = np.argsort(both, kind="stable")
    cut, is_below = both[order], order >= last_above - first_above
    below, above = np.cumsum(is_below) + (first_below - 1), np.cumsum(~is_below) + (first_above - 1)
    # Where both rows have a run that begins, the second of the two entries knows both.
    last = np.flatnonzero(np.diff(cut, append=-1))
    cut = cut[last]
    return Overlaps(above[last], below[last], cut, np.diff(cut, append=bottom * width))


def strips_of(runs: Runs) -> Iterator[tuple[int, int]]:
    """First and last row (exclusive) of strips with not too many runs each."""
    height = runs.shape[0]
    step = max(1, STRIP_RUNS * height // max(len(runs), 1))
    return ((top, min(top + step, height)) for top in range(0, height, step))


def components(runs: Runs, inside: Where) -> tuple[NDArray[np.int32], int]:
    """For each run the number of its connected region of one value, from 0 in reading order, and how many there are.

    Runs that are not ``inside`` have -1.
    """
    beside = runs.beside
    beside = beside[inside[beside] & (runs.value[beside] == runs.value[beside + 1])]
    joined = [np.stack([beside, beside + 1])]
    for top, bottom in strips_of(runs):
        pairs = overlaps(runs, max(top, 1), max(bottom, 1))
        same = inside[pairs.above] & (runs.value[pairs.above] == runs.value[pairs.below])
        joined.append(np.stack([pairs.above[same], pairs.below[same]]).astype(np.int32))
    found = connected(np.concatenate(joined, axis=1), len(runs))
    first = np.full(len(runs) + 1, len(runs))
    own = np.flatnonzero(inside)[::-1]
    first[found[own]] = own  # the first run of a region is written last
    real = np.flatnonzero(first < len(runs))
    number = np.full(len(runs) + 1, -1, dtype=np.int32)
    number[real[np.argsort(first[real])]] = np.arange(len(real))
    return np.where(inside, number[found], np.int32(-1)), len(real)


def connected(pairs: NDArray[np.integer[Any]], count: int) -> NDArray[np.int32]:
    """(count,) which of the items 0 … ``count`` - 1 are joined by ``pairs`` (2, n), as numbers without order."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # int32 indices, or the library copies them.
    one, other = pairs.astype(np.int32)
    graph = coo_array((np.ones(len(one), np.int8), (one, other)), (count, count))
    found: NDArray[np.int32] = connected_components(graph, directed=False)[1]
    return found


def stretched(first: Ints, length: Ints) -> Ints:
    """All numbers of stretches, each from its first on.

    >>> stretched(np.array([3, 10]), np.array([2, 3])).tolist()
    [3, 4, 10, 11, 12]
    """
    return np.repeat(first - (np.cumsum(length) - length), length) + np.arange(length.sum())


def distinct(values: Ints) -> Ints:
    """Each value once, rising; ``np.unique`` counts with a table of hashes, which takes far longer for positions.

    >>> distinct(np.array([5, 3, 5])).tolist()
    [3, 5]
    """
    ordered = np.sort(values, kind="stable")
    return np.asarray(ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0])


def sides_of(runs: Runs, key: NDArray[Any]) -> tuple[Ints, Ints]:
    """Pixels (n,) with a side to a pixel of another key, and the way out (n, 2) as (rows, columns), once per side.

    ``key`` is one number per run; pixels with a key of 0 have no sides. The edge of the mask is of key 0.
    """
    (height, width), pairs = runs.shape, runs.overlaps
    left, right = runs.beside + 1, runs.beside
    differ = key[left] != key[right]
    first, last = runs.start < width, runs.start >= (height - 1) * width
    level = pairs.start, pairs.length, key[pairs.above] != key[pairs.below]
    found = [
        (runs.start[left[differ & (key[left] != 0)]], (0, -1)),
        (runs.start[(runs.left == 0) & (key != 0)], (0, -1)),
        (runs.stop[right[differ & (key[right] != 0)]] - 1, (0, 1)),
        (runs.stop[(runs.stop % width == 0) & (key != 0)] - 1, (0, 1)),
    ]
    for own, back, way in ((key[pairs.below] != 0, 0, (-1, 0)), (key[pairs.above] != 0, width, (1, 0))):
        border = level[2] & own
        found.append((stretched(level[0][border] - back, level[1][border]), way))
    for row, way in ((first, (-1, 0)), (last, (1, 0))):
        edge = row & (key != 0)
        found.append((stretched(runs.start[edge], runs.length[edge]), way))
    ways = np.repeat(np.array([way for _, way in found]), [len(flat) for flat, _ in found], axis=0)
    return np.concatenate([flat for flat, _ in found]), ways
