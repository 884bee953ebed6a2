"""Regions too small to be tissue get the labels around them. The mask is changed in strips.

A region (``ntrm.regions.regions``) with fewer pixels than a limit is small. Each of its pixels takes the label of the
nearest pixel outside all small regions; among equally near ones the topmost counts, then the leftmost. A pixel without
one within ``reach_of`` keeps its label, which bounds how much of a mask is needed at once. Background is a label like
the others; ignored pixels neither change nor give their label. Pieces do not matter: the size of a region is that in
the whole mask.
"""

from __future__ import annotations

import math

import numpy as np

from ntrm.core.arrays import Bytes, ranges
from ntrm.core.labels import IGNORE
from ntrm.regions.region_table import summed
from ntrm.regions.regions import read_runs, strip_rows
from ntrm.regions.runs import RunLengths, components, framed

REACH = 2.0
"""In sides of a square of the smallest area allowed: a small region that is not next to others is never so thick."""


def reach_of(smallest: float) -> int:
    """Pixels within which the nearest label must lie.

    >>> reach_of(64), reach_of(1.5)
    (16, 3)
    """
    return math.ceil(REACH * math.sqrt(smallest))


def remove_small_regions(labels: Bytes, smallest: float) -> tuple[int, int]:
    """Relabel regions of less than ``smallest`` pixels in ``labels`` (H, W; may lie on disk): how many, and pixels.

    How many rows a strip has does not change the result.
    """
    (height, width), reach = labels.shape, reach_of(smallest)
    runs, _ = read_runs(labels)
    region, number = components(runs, runs.value != IGNORE)
    sizes = summed(region, runs.length, number)
    small = np.append(sizes < smallest, False)[region]  # the last entry is that of ignored pixels
    others = framed(
        RunLengths(runs.shape, runs.start, np.where(small, np.uint8(IGNORE), runs.value)), reach, reach, IGNORE
    )
    start, length, region = runs.start[small], runs.length[small], region[small]
    # Steps to other pixels, the nearest first, and among these the topmost and leftmost.
    down, across = np.mgrid[-reach : reach + 1, -reach : reach + 1].reshape(2, -1)
    squared = down**2 + across**2
    order = np.argsort(squared, kind="stable")[: np.count_nonzero(squared <= reach**2)]
    wide, rows = width + 2 * reach, max(strip_rows(width) // 4, reach)
    steps = down[order] * wide + across[order]
    changed, count = np.zeros(len(sizes), dtype=bool), 0
    for top in range(0, height, rows):
        first, last = np.searchsorted(start, [top * width, (top + rows) * width])
        if first == last:
            continue
        around = others.window(top, 0, min(rows, height - top) + 2 * reach, wide).dense().ravel()
        row, column = np.divmod(ranges(start[first:last], length[first:last]), width)
        at, waiting = (row - top + reach) * wide + column + reach, np.arange(len(row))
        value = np.full(len(row), IGNORE, dtype=np.uint8)
        for step in steps:
            value[waiting] = around[at[waiting] + step]
            waiting = waiting[value[waiting] == IGNORE]
            if not len(waiting):
                break
        found = value != IGNORE
        labels[row[found], column[found]] = value[found]
        changed[np.repeat(region[first:last], length[first:last])[found]] = True
        count += int(np.count_nonzero(found))
    return int(np.count_nonzero(changed)), count
