"""Connected regions of a mask by the runs of its rows: of a mask of tissue, far fewer than its pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import BoolMask, Ints
from ntrm.core.links import earliest_linked, ranges
from ntrm.core.threads import thread_map

Number = TypeVar("Number", bound=np.generic)

BAND_PIXELS = 1 << 20
"""Pixels whose runs are looked for together, in one of several threads."""


@dataclass(frozen=True, eq=False)
class RegionRuns:
    """The runs of a mask (H, W), in order, and the region of each.

    Positions count along rows that are one pixel longer than the mask's: every run ends inside its row.
    """

    shape: tuple[int, int]
    starts: Ints
    stops: Ints
    """One past the last pixel of each run."""
    regions: NDArray[np.int32]
    """Number of each run's region, from 0."""
    count: int
    """Of regions."""

    @classmethod
    def of(cls, mask: BoolMask, *, diagonal: bool) -> RegionRuns:
        """Those of a mask; pixels that touch at a corner belong together if ``diagonal`` says so.

        >>> RegionRuns.of(np.eye(3, dtype=bool), diagonal=True).count
        1
        >>> RegionRuns.of(np.eye(3, dtype=bool), diagonal=False).count
        3
        """
        edges = _edges(mask)
        starts, stops = edges[0::2], edges[1::2]
        regions, count = _connected(starts, stops, mask.shape[1] + 1, reach=int(diagonal))
        return cls((mask.shape[0], mask.shape[1]), starts, stops, regions, count)

    @property
    def sizes(self) -> Ints:
        """Pixels of each region."""
        return np.bincount(self.regions, self.stops - self.starts, self.count).astype(np.int64)

    def within(self, mask: BoolMask) -> RegionRuns:
        """The runs of a mask that lies inside this one, in the regions of this one."""
        edges = _edges(mask)
        starts, stops = edges[0::2], edges[1::2]
        regions = self.regions[np.searchsorted(self.starts, starts, side="right") - 1]
        return RegionRuns(self.shape, starts, stops, regions, self.count)

    def boxes(self) -> Ints:
        """(count, 4) top, left, bottom and right of each region, the last two past its pixels."""
        row, left = np.divmod(self.starts, self.shape[1] + 1)
        low, high = np.full((2, self.count), max(self.shape)), np.zeros((2, self.count), dtype=np.int64)
        for axis, (begin, end) in enumerate(((row, row + 1), (left, left + self.stops - self.starts))):
            np.minimum.at(low[axis], self.regions, begin)
            np.maximum.at(high[axis], self.regions, end)
        return np.concatenate([low, high]).T

    def pixels(self, region: int) -> tuple[Ints, Ints]:
        """Rows and columns of a region's pixels, row by row."""
        own = np.flatnonzero(self.regions == region)
        places = ranges(self.starts[own], self.stops[own] - self.starts[own])
        row, column = np.divmod(places, self.shape[1] + 1)
        return row, column

    def at_edge(self) -> BoolMask:
        """Which regions lie at the mask's edge."""
        height, width = self.shape
        row, left = np.divmod(self.starts, width + 1)
        last = self.stops % (width + 1) == width
        return self._any((row == 0) | (row == height - 1) | (left == 0) | last)

    def holding(self, some: BoolMask) -> BoolMask:
        """Which regions hold a pixel of ``some`` (H, W)."""
        if not self.count:
            return np.zeros(0, dtype=bool)
        edges = np.stack([self.starts, self.stops], axis=1).ravel()
        found = np.maximum.reduceat(_with_column(some).view(np.uint8), edges)[0::2]
        return self._any(found > 0)

    def _any(self, runs: BoolMask) -> BoolMask:
        kept = np.zeros(self.count, dtype=bool)
        kept[self.regions[runs]] = True
        return kept

    def painted(self, values: NDArray[Number]) -> NDArray[Number]:
        """(H, W) each region in its value, and 0 elsewhere."""
        height, width = self.shape
        bounds = np.concatenate([[0], np.stack([self.starts, self.stops], axis=1).ravel(), [height * (width + 1)]])
        bounds -= bounds // (width + 1)
        # What lies between runs, and the runs themselves, in turn.
        between = np.zeros(len(bounds) - 1, dtype=values.dtype)
        between[1::2] = values[self.regions]
        return between.repeat(np.diff(bounds)).reshape(height, width)


def _with_column(mask: BoolMask) -> BoolMask:
    """The rows of a mask one after the other, each with a pixel more, which is not in it."""
    framed = np.zeros((mask.shape[0], mask.shape[1] + 1), dtype=bool)
    framed[:, :-1] = mask
    return framed.ravel()


def _edges(mask: BoolMask) -> Ints:
    """Positions at which runs begin and end, in turn."""
    height, width = mask.shape
    rows = max(1, BAND_PIXELS // max(width, 1))

    def found(top: int) -> Ints:
        flat = _with_column(mask[top : top + rows])
        changes = np.empty(flat.size, dtype=bool)
        changes[0] = flat[0]
        np.not_equal(flat[1:], flat[:-1], out=changes[1:])
        return np.asarray(np.flatnonzero(changes) + top * (width + 1))

    if 0 < height <= rows:
        return found(0)
    return np.concatenate([np.zeros(0, dtype=np.int64), *thread_map(found, range(0, height, rows))])


def _connected(starts: Ints, stops: Ints, row: int, *, reach: int) -> tuple[NDArray[np.int32], int]:
    """The region of each run, and the number of regions; runs of neighbouring rows may lie ``reach`` apart."""
    # Runs of the row below, moved up by a row: those that end after a run begins, and begin before it ends.
    first = np.searchsorted(stops - row, starts - reach, side="right")
    last = np.searchsorted(starts - row, stops + reach, side="left")
    counts = np.maximum(last - first, 0)
    above = np.repeat(np.arange(len(starts)), counts)
    origin = earliest_linked(above, ranges(first, counts), len(starts))
    is_first = origin == np.arange(len(origin))
    return (np.cumsum(is_first, dtype=np.int32) - 1)[origin], int(is_first.sum())
