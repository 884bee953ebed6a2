"""A label mask as runs: stretches of one value along a row. Tissue has few of them for its many pixels.

What a mask of millions of pixels says of its parts, their neighbours, holes and surroundings is told from some ten
thousand runs, exactly as from the pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Where = NDArray[np.bool_]

STRETCHES = 1 << 20
"""Stretches of a growing mask that are put together at a time, about."""


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
        return np.append(self.start[1:], self.shape[0] * self.shape[1])

    @cached_property
    def length(self) -> Ints:
        """(n,) pixels."""
        return self.stop - self.start

    @cached_property
    def row(self) -> Ints:
        """(n,) in which it lies."""
        return self.start // self.shape[1]

    @cached_property
    def left(self) -> Ints:
        """(n,) first column."""
        return self.start - self.row * self.shape[1]

    def at(self, places: Ints) -> Ints:
        """Numbers of the runs that hold these flattened indices."""
        return np.searchsorted(self.start, places, side="right") - 1

    def relabelled(self, value: NDArray[Any]) -> Runs:
        """The same mask with other values, one per run; runs that became equal are one."""
        kept = np.append(True, (value[1:] != value[:-1]) | (self.left[1:] == 0))
        return Runs(self.shape, self.start[kept], value[kept])

    def revalued(self, value: NDArray[Any]) -> Runs:
        """The same runs with other values, one per run, whether or not neighbours are equal."""
        return Runs(self.shape, self.start, value)

    def dense(self) -> NDArray[Any]:
        """The mask itself."""
        return np.repeat(self.value, self.length).reshape(self.shape)

    @cached_property
    def touching(self) -> Touching:
        """Which runs lie side by side, and which one above the other."""
        beside = np.flatnonzero(self.left[1:] != 0)
        width = self.shape[1]
        later = self.start[np.searchsorted(self.start, width) :]
        earlier = self.start[: np.searchsorted(self.start, (self.shape[0] - 1) * width)] + width
        # Between two cuts there is one run above and one below; rows begin with a cut.
        both = np.sort(np.concatenate([later, earlier]), kind="stable")
        twice = np.flatnonzero(both[1:] == both[:-1])
        cut = np.delete(both, twice)
        above, below = self.at(cut - width), self.at(cut)
        # Where both rows change at one place, the runs touch crosswise at a corner.
        corner = both[twice]
        corner = corner[corner % width != 0]
        upper, lower = self.at(corner - width), self.at(corner)
        return Touching(
            left=beside,
            right=beside + 1,
            above=above,
            below=below,
            shared=np.diff(cut, append=self.shape[0] * width),
            corner_above=np.concatenate([upper - 1, upper]),
            corner_below=np.concatenate([lower, lower - 1]),
        )


@dataclass(frozen=True, eq=False)
class Touching:
    """Pairs of runs that touch, by their numbers."""

    left: Ints
    right: Ints
    above: Ints
    below: Ints
    shared: Ints
    """Pixel sides between ``above`` and ``below``; runs beside each other share one."""
    corner_above: Ints
    corner_below: Ints
    """Runs that share a corner only."""


def runs_of(mask: NDArray[Any]) -> Runs:
    """The runs of a mask (H, W).

    >>> runs = runs_of(np.array([[0, 0, 3], [3, 3, 3]]))
    >>> runs.start.tolist(), runs.value.tolist()
    ([0, 2, 3], [0, 3, 3])
    """
    height, width = mask.shape
    flat = np.ascontiguousarray(mask).ravel()
    changes = np.empty(flat.size, dtype=bool)
    np.not_equal(flat[1:], flat[:-1], out=changes[1:])
    changes[::width] = True
    start = np.flatnonzero(changes).astype(np.int64)
    return Runs((height, width), start, flat[start])


def covering(shape: tuple[int, int], row: Ints, left: Ints, right: Ints) -> Runs:
    """The mask (bool) of what any of the given stretches holds; they may overlap and exceed it."""
    height, width = shape
    left, right = np.maximum(left, 0), np.minimum(right, width)
    some = (row >= 0) & (row < height) & (left < right)
    start, stop = row[some] * width + left[some], row[some] * width + right[some]
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(stop[order])
    first = np.append(True, start[1:] > reach[:-1]) if start.size else np.zeros(0, bool)
    start, stop = start[first], reach[np.append(first[1:], True)] if start.size else reach
    cut = np.unique(np.concatenate([np.arange(height, dtype=np.int64) * width, start, stop[stop < height * width]]))
    inside = np.searchsorted(start, cut, side="right") > np.searchsorted(stop, cut, side="right")
    return Runs(shape, cut, inside).relabelled(inside)


def components(runs: Runs, *, outside: Any, eight: bool) -> tuple[Ints, int]:
    """For each run the number of its connected part of one value, from 1 in reading order, and how many there are.

    What has the value ``outside`` is 0. ``eight`` joins at corners as well.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    touching = runs.touching
    one, other = [touching.left, touching.above], [touching.right, touching.below]
    if eight:
        one, other = [*one, touching.corner_above], [*other, touching.corner_below]
    here, there = np.concatenate(one), np.concatenate(other)
    joined = runs.value[here] == runs.value[there]
    here, there = here[joined], there[joined]
    size = len(runs)
    # int32 indices, or the library copies them.
    pairs = coo_array((np.ones(len(here), np.int8), (here.astype(np.int32), there.astype(np.int32))), (size, size))
    _, found = connected_components(pairs, directed=False)
    inside = runs.value != outside
    _, first, place = np.unique(found[inside], return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(1, len(first) + 1)
    parts = np.zeros(size, dtype=np.int64)
    parts[inside] = number[place]
    return parts, len(first)


def grown(runs: Runs, step: Floats, radius: float, *, value: bool = True) -> Runs:
    """The mask (bool) of pixels within ``radius`` of those with ``value``; ``step`` is a pixel's (height, width)."""
    chosen = runs.value == value
    row, left, right = runs.row[chosen], runs.left[chosen], (runs.left + runs.length)[chosen]
    most, (height, width) = int(radius / step[0] + 1e-9), runs.shape
    away = np.arange(-most, most + 1)
    # The disc's half width at each height; the 1e-9 is for radii of whole pixels.
    half = (np.sqrt(np.maximum(radius**2 - (away * step[0]) ** 2, 0.0)) / step[1] + 1e-9).astype(np.int64)
    before = np.searchsorted(row, np.arange(height + 1))  # runs in earlier rows
    rows = max(1, STRETCHES * height // max(len(row) * len(away), 1))
    found = []
    for top in range(0, height, rows):
        tall = min(rows, height - top)
        # From so far below or above, only these runs reach the band.
        ends = np.clip([top - away, top + tall - away], 0, height)
        places = [slice(low, high) for low, high in before[ends].T]
        stretches = (
            np.concatenate([row[place] + (down - top) for place, down in zip(places, away, strict=True)]),
            np.concatenate([left[place] - wide for place, wide in zip(places, half, strict=True)]),
            np.concatenate([right[place] + wide for place, wide in zip(places, half, strict=True)]),
        )
        found.append(covering((tall, width), *stretches))
    starts = [part.start + top * width for part, top in zip(found, range(0, height, rows), strict=True)]
    return Runs(runs.shape, np.concatenate(starts), np.concatenate([part.value for part in found]))


def stretched(first: Ints, length: Ints) -> Ints:
    """All numbers of stretches, each from its first on.

    >>> stretched(np.array([3, 10]), np.array([2, 3])).tolist()
    [3, 4, 10, 11, 12]
    """
    return np.repeat(first - (np.cumsum(length) - length), length) + np.arange(length.sum())


def combined(*masks: Runs) -> Runs:
    """Masks of one shape as one: bit k of a value says whether the k-th mask holds the pixel."""
    cut = np.unique(np.concatenate([mask.start for mask in masks]))
    code = np.zeros(len(cut), dtype=np.uint8)
    for bit, mask in enumerate(masks):
        code |= mask.value[mask.at(cut)].astype(np.uint8) << bit
    return Runs(masks[0].shape, cut, code).relabelled(code)


def framed(runs: Runs, rows: int, columns: int, outside: Any = False) -> Runs:
    """The mask with so many rows and columns of ``outside`` more on each side, or fewer if negative."""
    tall, wide = (runs.shape[0] + 2 * rows, runs.shape[1] + 2 * columns)
    left, right = np.maximum(runs.left + columns, 0), np.minimum(runs.left + runs.length + columns, wide)
    row = runs.row + rows
    kept = (row >= 0) & (row < tall) & (left < right)
    start, stop = (row * wide + left)[kept], (row * wide + right)[kept]
    # What follows a row's last run and what begins a row is frame, unless a run begins there.
    cut = np.concatenate([np.arange(tall, dtype=np.int64) * wide, stop[stop < tall * wide], start])
    value = np.concatenate([np.full(len(cut) - len(start), outside, runs.value.dtype), runs.value[kept]])
    # The last of equal cuts counts: a run before the frame.
    cut, last = np.unique(cut[::-1], return_index=True)
    value = value[::-1][last]
    return Runs((tall, wide), cut, value).relabelled(value)
