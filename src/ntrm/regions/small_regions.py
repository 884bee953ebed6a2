"""Regions too small to be tissue get the labels around them. The mask is changed in strips.

A region (``ntrm.regions.regions``) with fewer pixels than a limit is small. Each of its pixels takes the label of the
nearest pixel outside all small regions; among equally near ones the topmost counts, then the leftmost. A pixel without
one within ``reach_of`` keeps its label, which bounds how much of a mask is needed at once. Background is a label like
the others; ignored pixels neither change nor give their label. Pieces do not matter: the size of a region is that in
the whole mask. Memory grows with the outlines, not with the pixels.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Bytes, Ints, ranges
from ntrm.core.labels import IGNORE
from ntrm.regions.regions import region_sizes, strip_rows
from ntrm.regions.runs import Where

REACH = 2.0
"""In sides of a square of the smallest area allowed: a small region that is not next to others is never so thick."""
TOGETHER = 1 << 18  # Pixels that are relabelled together, about
FAR = 1 << 60


class RemovedRegions(NamedTuple):
    """What was relabelled."""

    regions: int
    pixels: int


class _Stretches(NamedTuple):
    """Stretches of pixels along rows, in reading order."""

    start: Ints  # (n,) index of the first pixel in the flattened mask
    stop: Ints
    value: Bytes  # (n,) label
    region: NDArray[np.int32]

    def chosen(self, which: Where | slice) -> _Stretches:
        return _Stretches(self.start[which], self.stop[which], self.value[which], self.region[which])

    def between(self, first: int, last: int) -> _Stretches:
        """Those of some rows, given by the indices of the first pixel and of the first one after the last row."""
        return self.chosen(slice(*np.searchsorted(self.start, [first, last])))


def reach_of(smallest: float) -> int:
    """Pixels within which the nearest label must lie.

    >>> reach_of(64), reach_of(1.5)
    (16, 3)
    """
    return math.ceil(REACH * math.sqrt(smallest))


def remove_small_regions(labels: Bytes, smallest: float) -> RemovedRegions:
    """Remove small regions from ``labels`` (H, W; may lie on disk).

    ``smallest`` are the pixels that a region must have. How many rows a strip has does not change the result.
    """
    (height, width), reach = labels.shape, reach_of(smallest)
    small, others = find_small_regions(labels, smallest)
    rows = max(strip_rows(width), 2 * reach)
    regions, count = [np.zeros(0, dtype=np.int32)], 0
    for top in range(0, height, rows):
        around = others.between((top - reach) * width, (top + rows + reach) * width)
        for portion in _portions(small.between(top * width, (top + rows) * width)):
            length = portion.stop - portion.start
            pixels = ranges(portion.start, length)
            value = _nearest(pixels, around, width, reach)
            changed = value != IGNORE
            labels[np.divmod(pixels[changed], width)] = value[changed]
            regions.append(np.unique(np.repeat(portion.region, length)[changed]))
            count += int(np.count_nonzero(changed))
    return RemovedRegions(len(np.unique(np.concatenate(regions))), count)


def find_small_regions(labels: Bytes, smallest: float) -> tuple[_Stretches, _Stretches]:
    """The regions of less than ``smallest`` pixels, and all other labelled pixels."""
    runs, region, pixels = region_sizes(labels)
    every = _Stretches(runs.start, runs.stop, runs.value, region)
    # The last entry is that of ignored pixels.
    small = np.append(pixels < smallest, False)[region]
    return every.chosen(small), every.chosen(~small & (region >= 0))


def _portions(small: _Stretches) -> list[_Stretches]:
    """Portions of about ``TOGETHER`` pixels each."""
    if not len(small.start):
        return []
    before = np.cumsum(small.stop - small.start) // TOGETHER
    cuts = np.flatnonzero(np.diff(before)) + 1
    return [_Stretches(*columns) for columns in zip(*(np.split(column, cuts) for column in small), strict=True)]


def _nearest(pixels: Ints, tissue: _Stretches, width: int, reach: int) -> Bytes:
    """For each of some flattened indices the label nearest to it; ``IGNORE`` if there is none within ``reach``."""
    # One more at each end, too far from everything.
    start, stop = np.append(tissue.start, FAR), np.append(-FAR, tissue.stop)
    best, value = np.full(len(pixels), reach**2 + 1), np.full(len(pixels), IGNORE, dtype=np.uint8)
    column = pixels % width
    active = np.arange(len(pixels))
    for away in range(reach + 1):
        active = active[best[active] >= away**2]
        for down in sorted({-away, away}):
            target, across = pixels[active] + down * width, column[active]
            following = np.searchsorted(tissue.start, target, side="right")
            left, right = np.maximum(target - (stop[following] - 1), 0), start[following] - target
            # Not beyond the ends of the row.
            left, right = np.where(left > across, FAR, left), np.where(right >= width - across, FAR, right)
            by = np.minimum(np.minimum(left, right), reach + 1) ** 2 + away**2
            # Of equally near ones the topmost: rows above are higher than all rows before them, rows below are not.
            nearer = (by <= np.minimum(best[active], reach**2)) if down < 0 else (by < best[active])
            at = active[nearer]
            best[at] = by[nearer]
            value[at] = tissue.value[(following - (left <= right))[nearer]]
    return value
