"""A mask as runs: stretches of one value along a row. Tissue has few of them for its many pixels.

Components, neighbours, borders, dilation and combination of masks of millions of pixels are computed from some ten
thousand runs, exactly as from the pixels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Floats, Ints, ranges

Where = NDArray[np.bool_]

CONNECTIVITY = 4
"""Neighbours of a pixel that make one region with it: those that share a side. Pixels that touch at a corner do not."""
STRIP_RUNS = 1 << 18  # Runs that are compared with those of the next row together, about
STRETCHES = 1 << 20  # Stretches of a dilated mask that are merged together, about


class Overlaps(NamedTuple):
    """Stretches along which a run lies above another; the runs are given by their indices."""

    above: Ints
    below: Ints
    start: Ints  # (n,) index of the first pixel of the stretch in the lower row, in the flattened mask
    length: Ints


@dataclass(frozen=True, eq=False)
class RunLengths:
    """Runs in reading order; together they cover the mask, and none continues in the next row."""

    shape: tuple[int, int]
    start: Ints  # (n,) index of the first pixel in the flattened mask
    value: NDArray[Any]  # (n,)

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
        """(n,) row."""
        return self.start // max(self.shape[1], 1)

    @cached_property
    def left(self) -> Ints:
        """(n,) first column."""
        return self.start - self.row * self.shape[1]

    @property
    def with_next(self) -> Ints:
        """Indices of the runs that are not the last of their row: the next run is their right neighbour."""
        return np.flatnonzero(self.left[1:] != 0)

    @cached_property
    def overlaps(self) -> Overlaps:
        """All of them, for masks with few runs."""
        return overlaps(self, 1, self.shape[0])

    def at(self, pixels: Ints) -> Ints:
        """Indices of the runs that hold these flattened pixel indices."""
        return np.searchsorted(self.start, pixels, side="right") - 1

    def relabelled(self, value: NDArray[Any]) -> RunLengths:
        """The same mask with other values, one per run; neighbouring runs of equal value are merged."""
        kept = np.append(True, (value[1:] != value[:-1]) | (self.left[1:] == 0))[: len(self)]
        return RunLengths(self.shape, self.start[kept], value[kept])

    def dense(self) -> NDArray[Any]:
        """The mask as an array."""
        return np.repeat(self.value, self.length).reshape(self.shape)

    def window(self, top: int, left: int, height: int, width: int, stride: int = 1) -> RunLengths:
        """Every ``stride``-th row and column of a rectangle of the mask."""
        if (top, left, height, width, stride) == (0, 0, *self.shape, 1):
            return self
        tall, wide = -(-height // stride), -(-width // stride)
        begin = (top + np.arange(tall) * stride) * self.shape[1] + left
        # Each row's runs are looked up, since beside the window there may be many more.
        first = self.at(begin)
        count = np.searchsorted(self.start, begin + width) - first
        chosen = ranges(first, count)
        start = np.maximum(self.start.take(chosen) - np.repeat(begin, count), 0)
        runs = RunLengths(
            (tall, wide), np.repeat(np.arange(tall) * wide, count) - -start // stride, self.value.take(chosen)
        )
        if stride > 1:
            # A run may lie between two columns that are taken: then the next begins where it does, or in the next row.
            kept = runs.start < runs.stop
            runs = RunLengths(runs.shape, runs.start[kept], runs.value[kept])
        return runs.relabelled(runs.value)


def runs_of(mask: NDArray[Any]) -> RunLengths:
    """The runs of a mask (H, W).

    >>> runs = runs_of(np.array([[0, 0, 3], [3, 3, 3]]))
    >>> runs.start.tolist(), runs.value.tolist()
    ([0, 2, 3], [0, 3, 3])
    """
    start = run_starts(mask)
    return RunLengths((mask.shape[0], mask.shape[1]), start, np.ascontiguousarray(mask).ravel()[start])


def run_starts(*masks: NDArray[Any]) -> Ints:
    """Flattened indices at which a row begins or any of the masks changes."""
    changes = np.zeros(masks[0].size, dtype=bool)
    for mask in masks:
        flat = np.ascontiguousarray(mask).ravel()
        changes[1:] |= flat[1:] != flat[:-1]
    changes[:: max(masks[0].shape[1], 1)] = True
    return np.flatnonzero(changes).astype(np.int64, copy=False)


def overlaps(runs: RunLengths, top: int, bottom: int) -> Overlaps:
    """Which runs of rows ``top`` (from 1 on) to ``bottom`` - 1 lie below which."""
    width = runs.shape[1]
    rows = np.array([top - 1, bottom - 1, top, bottom]) * width
    first_above, last_above, first_below, last_below = np.searchsorted(runs.start, rows).tolist()
    # Two rising sequences, which a stable sort merges; the lowest bit marks the lower row. Each row begins with a run.
    above, below = runs.start[first_above:last_above] + width, runs.start[first_below:last_below]
    both = np.concatenate([above << 1, below << 1 | 1])
    both.sort(kind="stable")
    cut = both >> 1
    # Where a run begins in both rows, the second of the two entries counts both.
    last = np.flatnonzero(np.diff(cut, append=-1))
    cut, begun = cut.take(last), np.cumsum(both & 1).take(last)
    length = np.diff(cut, append=bottom * width)
    return Overlaps(last - begun + first_above, begun + (first_below - 1), cut, length)


def strips_of(runs: RunLengths) -> Iterator[tuple[int, int]]:
    """First and last row (exclusive) of strips with about ``STRIP_RUNS`` runs each."""
    height = runs.shape[0]
    step = max(1, STRIP_RUNS * height // max(len(runs), 1))
    return ((top, min(top + step, height)) for top in range(0, height, step))


def components(runs: RunLengths, inside: Where) -> tuple[NDArray[np.int32], int]:
    """For each run the number of its connected region of one value, from 0 in reading order, and the number of regions.

    Runs that are not ``inside`` have -1.
    """
    return connected(split_overlaps(runs, inside)[0], inside)


def split_overlaps(runs: RunLengths, inside: Where) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Which runs belong together and where different ones meet: neighbours over pixel sides, found in strips.

    (2, n) pairs of runs ``inside`` of one value, the earlier first; then (3, m) runs above and below of different
    values, and the sides that they share. Neighbours along a row have different values, unless a caller cut runs: these
    are among the former only.
    """
    value = runs.value
    left = np.flatnonzero((value[1:] == value[:-1]) & (runs.left[1:] != 0) & inside[:-1])
    links, borders = [np.array([left, left + 1], np.int32)], [np.zeros((3, 0), dtype=np.int32)]
    for top, bottom in strips_of(runs):
        above, below, _, length = overlaps(runs, max(top, 1), max(bottom, 1))
        same = value.take(above) == value.take(below)
        linked, border = np.flatnonzero(same & inside.take(above)), np.flatnonzero(~same)
        links.append(np.array([above.take(linked), below.take(linked)], np.int32))
        borders.append(np.array([above.take(border), below.take(border), length.take(border)], np.int32))
    return np.concatenate(links, axis=1), np.concatenate(borders, axis=1)


def connected(links: NDArray[np.int32], inside: Where) -> tuple[NDArray[np.int32], int]:
    """``components`` given the links between runs."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    size, every = len(inside), np.arange(len(inside))
    graph = coo_array((np.ones(links.shape[1], dtype=np.int8), (links[0], links[1])), (size, size))
    count, label = connected_components(graph, directed=False)
    # The first run of each; of several values for one index the last one stays.
    first = np.zeros(count, dtype=np.int64)
    first[label[::-1]] = every[::-1]
    begins = inside & (first[label] == every)
    number = (np.cumsum(begins) - 1).astype(np.int32)
    return np.where(inside, number[first[label]], np.int32(-1)), int(begins.sum())


def distinct(values: Ints) -> Ints:
    """Each value once, rising; ``np.unique`` uses a hash table, which takes far longer for positions.

    >>> distinct(np.array([5, 3, 5])).tolist()
    [3, 5]
    """
    ordered = np.sort(values, kind="stable")
    return np.asarray(ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0])


def sides_of(runs: RunLengths, key: NDArray[Any]) -> tuple[Ints, Ints]:
    """Pixels (n,) with a side to a pixel of another key, and the way out (n, 2) as (rows, columns), once per side.

    ``key`` is one number per run; pixels with a key of 0 have no sides. Beyond the edge of the mask the key is 0.
    """
    (height, width), pairs, inside = runs.shape, runs.overlaps, key != 0
    left = runs.with_next
    opens, closes = inside.copy(), inside.copy()
    opens[left + 1] &= key[left] != key[left + 1]
    closes[left] &= key[left] != key[left + 1]
    differ = key[pairs.above] != key[pairs.below]
    up, down = differ & inside[pairs.below], differ & inside[pairs.above]
    top, bottom = inside & (runs.row == 0), inside & (runs.row == height - 1)
    sides = (
        (runs.start[opens], (0, -1)),
        (runs.stop[closes] - 1, (0, 1)),
        (ranges(pairs.start[up], pairs.length[up]), (-1, 0)),
        (ranges(pairs.start[down] - width, pairs.length[down]), (1, 0)),
        (ranges(runs.start[top], runs.length[top]), (-1, 0)),
        (ranges(runs.start[bottom], runs.length[bottom]), (1, 0)),
    )
    ways = np.repeat(np.array([way for _, way in sides]), [len(pixels) for pixels, _ in sides], axis=0)
    return np.concatenate([pixels for pixels, _ in sides]), ways


def dilated(runs: RunLengths, step: Floats, radius: float, *, value: bool = True) -> RunLengths:
    """The mask (bool) of pixels within ``radius`` of those with ``value``; ``step`` is a pixel's (height, width)."""
    most, (height, width) = int(radius / step[0] + 1e-9), runs.shape
    away = np.arange(-most, most + 1)
    # The disc's half width at each height; the 1e-9 is for radii of whole pixels.
    half = (np.sqrt(np.maximum(radius**2 - (away * step[0]) ** 2, 0.0)) / step[1] + 1e-9).astype(np.int64)
    seeds = [_seeds(runs, runs.value == value, way) for way in (-1, 0, 1)]
    stretches = sum(len(start) for start, _ in seeds) * most + 1
    rows = max(1, STRETCHES * height // stretches)
    starts, values = [], []
    for top in range(0, height, rows):
        tall = min(rows, height - top)
        row, left, right = [], [], []
        for (start, length), ways in zip(seeds, (away < 0, away == 0, away > 0), strict=True):
            # At each vertical distance, only these stretches reach the strip.
            ends = np.clip([top - away[ways], top + tall - away[ways]], 0, height) * width
            first, last = np.searchsorted(start, ends)
            index = ranges(first, last - first)
            down, reach = (np.repeat(of[ways], last - first) for of in (away - top, half))
            at, begin = np.divmod(start.take(index), width)
            row.append(at + down)
            left.append(begin - reach)
            right.append(begin + length.take(index) + reach)
        strip = covering((tall, width), *map(np.concatenate, (row, left, right)))
        starts.append(strip.start + top * width)
        values.append(strip.value)
    return RunLengths(runs.shape, np.concatenate(starts), np.concatenate(values))


def _seeds(runs: RunLengths, chosen: Where, way: int) -> tuple[Ints, Ints]:
    """First pixels and lengths of the stretches from which the disc must be laid up (-1), along (0) or down (1).

    A pixel with a chosen neighbour on its way need not be: what it reaches there, the neighbour reaches as well.
    """
    if way == 0:
        return runs.start[chosen], runs.length[chosen]
    above, below, start, length = runs.overlaps
    own, beyond = (above, below) if way > 0 else (below, above)
    ends = chosen.take(own) & ~chosen.take(beyond)
    return start[ends] - (runs.shape[1] if way > 0 else 0), length[ends]


def covering(shape: tuple[int, int], row: Ints, left: Ints, right: Ints) -> RunLengths:
    """The mask (bool) of all pixels in any of these stretches; they may overlap and exceed the mask."""
    height, width = shape
    left, right = np.maximum(left, 0), np.minimum(right, width)
    inside = (row >= 0) & (row < height) & (left < right)
    start, length = row[inside] * width + left[inside], (right - left)[inside]
    # Sorted as one number, with the length in the lower bits.
    bits = int(width).bit_length()
    both = np.sort(start << bits | length, kind="stable")
    start = both >> bits
    reach = np.maximum.accumulate(start + (both & ((1 << bits) - 1)))
    first = np.append(True, start[1:] > reach[:-1])[: len(start)]
    start, stop = start[first], reach[np.append(first[1:], True)[: len(reach)]]
    cut = distinct(np.concatenate([np.arange(height, dtype=np.int64) * width, start, stop[stop < height * width]]))
    inside = np.searchsorted(start, cut, side="right") > np.searchsorted(stop, cut, side="right")
    return RunLengths(shape, cut, inside).relabelled(inside)


def combined(*masks: RunLengths) -> RunLengths:
    """Masks of one shape as one: bit k of a value says whether the k-th mask holds the pixel."""
    cut = distinct(np.concatenate([mask.start for mask in masks]))
    code = np.zeros(len(cut), dtype=np.uint8)
    for bit, mask in enumerate(masks):
        code |= mask.value[mask.at(cut)].astype(np.uint8) << bit
    return RunLengths(masks[0].shape, cut, code).relabelled(code)


def framed(runs: RunLengths, rows: int, columns: int, outside: Any = False) -> RunLengths:
    """The mask padded by rows and columns of ``outside`` on each side, or cropped if these are negative."""
    tall, wide = (runs.shape[0] + 2 * rows, runs.shape[1] + 2 * columns)
    left, right = np.maximum(runs.left + columns, 0), np.minimum(runs.left + runs.length + columns, wide)
    row = runs.row + rows
    kept = (row >= 0) & (row < tall) & (left < right)
    start, stop = (row * wide + left)[kept], (row * wide + right)[kept]
    # A row's first pixel and what follows its last run are frame, unless a run begins there.
    cut = np.concatenate([np.arange(tall, dtype=np.int64) * wide, stop[stop < tall * wide], start])
    value = np.concatenate([np.full(len(cut) - len(start), outside, runs.value.dtype), runs.value[kept]])
    # The last of equal cuts counts: a run before the frame.
    cut, last = np.unique(cut[::-1], return_index=True)
    value = value[::-1][last]
    return RunLengths((tall, wide), cut, value).relabelled(value)
