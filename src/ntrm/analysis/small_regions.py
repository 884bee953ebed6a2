"""Regions too small to be tissue, relabelled as what lies around them; strip by strip, as if the mask were in memory.

A region (``ntrm.analysis.regions``) of less than so many pixels is small. Each of its pixels takes the tissue of the
nearest pixel that is in no small region; of several, of the uppermost, then the leftmost. One that has none so near as
``reach_of`` says stays as it is, which bounds how much of a mask must be known at once. Background is a tissue like the
others; where the network did not look, there is nothing, which neither gives nor takes. Pieces have no say: a region is
as large as it is in the whole mask.

Memory grows with the outlines, not with the pixels.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.analysis.regions import scan, strip_rows
from ntrm.analysis.runs import Ints, Where, stretched
from ntrm.core.io import whole_file
from ntrm.core.labels import IGNORE
from ntrm.core.mpp import Resolution

Bytes = NDArray[np.uint8]

REACH = 2.0
"""In sides of a square as large as the least region: no small region that is not among others is so thick."""
TOGETHER = 1 << 18
"""Pixels whose nearest are looked for at a time, about."""
FAR = 1 << 60


class RemovedRegions(NamedTuple):
    """What was relabelled."""

    regions: int
    pixels: int


class _Stretches(NamedTuple):
    """Stretches of pixels along rows, in reading order."""

    start: Ints
    """(n,) index of the first pixel in the flattened mask."""
    stop: Ints
    value: Bytes
    """(n,) tissue."""
    region: NDArray[np.int32]

    def chosen(self, which: Where | slice) -> _Stretches:
        return _Stretches(self.start[which], self.stop[which], self.value[which], self.region[which])

    def between(self, first: int, last: int) -> _Stretches:
        """Those in whole rows, given by the indices of their first pixel and of the first one after them."""
        return self.chosen(slice(*np.searchsorted(self.start, [first, last])))


def reach_of(smallest: float) -> int:
    """Pixels within which the nearest tissue must lie.

    >>> reach_of(64), reach_of(1.5)
    (16, 3)
    """
    return math.ceil(REACH * math.sqrt(smallest))


def write_without_small_regions(path: Path, labels: Bytes, smallest: float, rows: int | None = None) -> RemovedRegions:
    """Write ``labels`` (H, W; may lie on disk) to a file as ``slide.bands`` keeps them, but without small regions.

    ``smallest`` are the pixels that a region must have; ``rows`` are read at a time, which has no say in the result.
    """
    (height, width), reach = labels.shape, reach_of(smallest)
    small, tissue = find_small_regions(labels, smallest, rows)
    rows = rows or max(strip_rows(width), 2 * reach)
    regions, pixels = [np.zeros(0, dtype=np.int32)], 0
    with whole_file(path) as partial, partial.open("wb") as stream:
        for top in range(0, height, rows):
            strip = np.array(labels[top : top + rows])
            around = tissue.between((top - reach) * width, (top + rows + reach) * width)
            for some in _portions(small.between(top * width, (top + rows) * width)):
                places, whose = (
                    stretched(some.start, some.stop - some.start),
                    np.repeat(some.region, some.stop - some.start),
                )
                value = _nearest(places, around, width, reach)
                found = value != IGNORE
                strip.reshape(-1)[places[found] - top * width] = value[found]
                regions.append(np.unique(whose[found]))
                pixels += int(np.count_nonzero(found))
            if (strip != IGNORE).any():
                # 255 + 1 overflows to 0, which is how nothing is stored.
                stream.write((strip + np.uint8(1)).data)
            else:
                stream.seek(strip.size, os.SEEK_CUR)
        stream.truncate(height * width)
    return RemovedRegions(len(np.unique(np.concatenate(regions))), pixels)


def find_small_regions(labels: Bytes, smallest: float, rows: int | None = None) -> tuple[_Stretches, _Stretches]:
    """The regions of less than ``smallest`` pixels, and all tissue that is in none of them."""
    found = scan(labels, Resolution.square(1.0), rows=rows)
    runs = found.runs
    every = _Stretches(runs.start, runs.stop, runs.value, found.region)
    # One more entry, which what is nothing finds.
    small = np.append(found.table.pixels < smallest, False)[np.maximum(found.region, -1)]
    return every.chosen(small), every.chosen(~small & (found.region >= 0))


def _portions(small: _Stretches) -> list[_Stretches]:
    """About ``TOGETHER`` pixels each; none where there is nothing."""
    if not len(small.start):
        return []
    before = np.cumsum(small.stop - small.start) // TOGETHER
    cuts = np.flatnonzero(np.diff(before)) + 1
    return [_Stretches(*each) for each in zip(*(np.split(each, cuts) for each in small), strict=True)]


def _nearest(places: Ints, tissue: _Stretches, width: int, reach: int) -> Bytes:
    """For each of some flattened indices the tissue nearest to it; ``IGNORE`` if there is none within ``reach``."""
    # One more at each end, too far from everything.
    start, stop = np.append(tissue.start, FAR), np.append(-FAR, tissue.stop)
    best, value = np.full(len(places), reach**2 + 1), np.full(len(places), IGNORE, dtype=np.uint8)
    column = places % width
    active = np.arange(len(places))
    for away in range(reach + 1):
        active = active[best[active] >= away**2]
        for down in (-away, away)[: 1 + (away > 0)]:
            here, across = places[active] + down * width, column[active]
            following = np.searchsorted(tissue.start, here, side="right")
            left, right = np.maximum(here - (stop[following] - 1), 0), start[following] - here
            # Not beyond the ends of the row.
            left, right = np.where(left > across, FAR, left), np.where(right >= width - across, FAR, right)
            by = np.minimum(np.minimum(left, right), reach + 1) ** 2 + away**2
            # Of equally near ones the uppermost: those above are above all before them, those below are not.
            nearer = (by <= np.minimum(best[active], reach**2)) if down < 0 else (by < best[active])
            at = active[nearer]
            best[at] = by[nearer]
            value[at] = tissue.value[(following - (left <= right))[nearer]]
    return value
