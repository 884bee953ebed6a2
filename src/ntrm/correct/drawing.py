"""Pixels that a person draws: the stroke of a brush, an area, one side of a region that a line divides.

A pixel belongs to a stroke or to an area if its centre does. Points are (n, 2) as x and y in pixels of the mask, from
the top left corner of its first pixel; they may lie outside. A stroke takes memory for the rows that it passes, not for
the mask.
"""

from __future__ import annotations

from bisect import bisect

import numpy as np

from ntrm.core.arrays import Floats, Ints, ranges
from ntrm.core.errors import UsageError
from ntrm.core.labels import IGNORE, Mask
from ntrm.core.mpp import Resolution
from ntrm.correct.log import Place
from ntrm.correct.pixels import PixelSet
from ntrm.regions.polygons import fill
from ntrm.regions.runs import components, covering, runs_of

MOST_ROUNDS = 64  # A drawing may pass so many times the rows of the mask; more is no drawing, and would take long


def stroke(points: Floats, width_um: float, shape: tuple[int, int], resolution: Resolution) -> PixelSet:
    """What a round brush of this width paints along a line; never thinner than the pixels that the line passes."""
    step = np.array([resolution.x, resolution.y])
    radius = max(width_um, float(np.hypot(*step))) / 2
    line = points * step
    ends = np.stack([line, line]) if len(line) == 1 else np.stack([line[:-1], line[1:]])
    low, high = ends[..., 1].min(axis=0) - radius, ends[..., 1].max(axis=0) + radius
    first, count = _passed(low / step[1], high / step[1], shape[0])
    segment, row = np.repeat(np.arange(len(count)), count), ranges(first, count)
    left, right = _across(ends[0, segment], ends[1, segment], (row + 0.5) * step[1], radius)
    # Far outside is as good as just outside, and infinity is no whole number.
    begin = np.clip(np.ceil(left / step[0] - 0.5 - 1e-9), -1, shape[1] + 1).astype(np.int64)
    end = np.clip(np.floor(right / step[0] - 0.5 + 1e-9) + 1, -1, shape[1] + 1).astype(np.int64)
    runs = covering(shape, row, begin, end)
    return PixelSet.of_runs(runs, runs.value)


def _across(begin: Floats, end: Floats, y: Floats, radius: float) -> tuple[Floats, Floats]:
    """(n,) where a segment's neighbourhood begins and ends along the line at height y: two discs, and what is between.

    Where the line misses it, the end comes before the beginning.
    """
    left, right = np.full(len(y), np.inf), np.full(len(y), -np.inf)
    for centre in (begin, end):
        half = np.sqrt(np.maximum(radius**2 - (y - centre[:, 1]) ** 2, -0.0))
        near = np.abs(y - centre[:, 1]) <= radius
        left = np.where(near, np.minimum(left, centre[:, 0] - half), left)
        right = np.where(near, np.maximum(right, centre[:, 0] + half), right)
    along = end - begin
    length = np.hypot(*along.T)
    ux, uy = np.divide(along, length[:, None], out=np.zeros_like(along), where=length[:, None] > 0).T
    below = y - begin[:, 1]
    # 0 ≤ ux·x + uy·below ≤ length and |ux·below − uy·x| ≤ radius, each an interval of x − begin.
    one = _between(ux, -uy * below, length - uy * below)
    other = _between(uy, ux * below - radius, ux * below + radius)
    first, last = np.maximum(one[0], other[0]) + begin[:, 0], np.minimum(one[1], other[1]) + begin[:, 0]
    inside = (first <= last) & (length > 0)
    return np.where(inside, np.minimum(left, first), left), np.where(inside, np.maximum(right, last), right)


def _between(factor: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """All x with low ≤ factor · x ≤ high; with a factor of 0, all or none."""
    flat = np.abs(factor) < 1e-12
    safe = np.where(flat, 1.0, factor)
    bounds = np.sort(np.stack([low / safe, high / safe]), axis=0)
    holds = flat & (low <= 0) & (high >= 0)
    return (
        np.where(flat, np.where(holds, -np.inf, np.inf), bounds[0]),
        np.where(flat, np.where(holds, np.inf, -np.inf), bounds[1]),
    )


def area(points: Floats, shape: tuple[int, int]) -> PixelSet:
    """What lies inside a closed line; where it crosses itself, an odd number of turns is inside."""
    y, most = points[:, 1], np.array(shape[::-1])
    _passed(np.minimum(y, np.roll(y, -1)), np.maximum(y, np.roll(y, -1)), shape[0])  # refused before it takes long
    left, top = np.clip(np.floor(points.min(axis=0)), 0, most).astype(int).tolist()
    right, bottom = np.clip(np.ceil(points.max(axis=0)), 0, most).astype(int).tolist()
    return PixelSet.of_window(fill([points], right - left, bottom - top, left, top), top, left, shape[1])


def split_by_line(mask: Mask, points: Floats, place: Place, resolution: Resolution) -> PixelSet:
    """The part of the region at ``place`` that lies on its side of a line; the pixels under the line stay as they are.

    ``mask`` (H, W) has classes as they are now.
    """
    shape, width = (mask.shape[0], mask.shape[1]), mask.shape[1]
    row, column = place
    if not (0 <= row < shape[0] and 0 <= column < width) or mask[row, column] == IGNORE:
        raise UsageError("no region is known here", got=f"row {row}, column {column}", hint="choose another place")
    line = stroke(points, 0.0, shape, resolution)
    if line.holds(np.array([row * width + column]))[0]:
        raise UsageError("the place lies on the line", hint="choose a place beside it")
    # Rows around the place that hold its class without a gap: its region lies in them.
    gaps = [-1, *np.flatnonzero(~(mask == mask[row, column]).any(axis=1)).tolist(), shape[0]]
    after = bisect(gaps, row)
    top, bottom = gaps[after - 1] + 1, gaps[after]
    at, rows = (row - top) * width + column, mask[top:bottom]
    whole = _region_at(rows, at)
    chosen = _region_at(np.where(line.rows(top, bottom - top, width), np.uint8(IGNORE), rows), at)
    under = PixelSet(line.start - top * width, line.stop - top * width)
    if not whole - chosen - under:
        hint = "draw it across the region, from one edge to another"
        raise UsageError("the line does not divide the region", hint=hint)
    return PixelSet(chosen.start + top * width, chosen.stop + top * width)


def _region_at(labels: Mask, at: int) -> PixelSet:
    """The connected pixels of one class around a pixel, given by its flattened index."""
    runs = runs_of(labels)
    run = runs.at(np.array([at]))[0]
    number, _ = components(runs, np.asarray(runs.value == runs.value[run]))
    return PixelSet.of_runs(runs, np.asarray(number == number[run]))


def _passed(low: Floats, high: Floats, height: int) -> tuple[Ints, Ints]:
    """First row that each segment may pass, and how many; refuses drawings that are too long."""
    first = np.clip(np.floor(low - 0.5), 0, height).astype(np.int64)
    count = np.clip(np.ceil(high + 0.5), 0, height).astype(np.int64) - first
    count = np.maximum(count, 0)
    total = int(count.sum())
    if total > MOST_ROUNDS * height + 4 * len(count):
        raise UsageError(
            "the drawing is too long",
            got=f"{total // max(height, 1)} times the height of the section",
            expected=f"at most {MOST_ROUNDS}",
            hint="draw it in several steps",
        )
    return first, count
