"""Pixels that a person draws: the stroke of a brush, an area, one side of a region that a line divides.

A pixel belongs to a stroke or to an area if its centre does. Points are (n, 2) as x and y in pixels of the mask, from
the top left corner of its first pixel; they may lie outside. Everything is computed row by row: a stroke takes memory
for the rows that it passes, not for the mask.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ntrm.analysis.fill import crossings
from ntrm.analysis.runs import Runs, components, covering, runs_of
from ntrm.core.arrays import Floats, Ints, ranges
from ntrm.core.errors import UsageError
from ntrm.core.labels import IGNORE, Mask
from ntrm.core.mpp import Resolution
from ntrm.correction.log import Place
from ntrm.correction.pixels import PixelSet

MOST_ROUNDS = 64
"""A drawing may pass so many times the rows of the mask; more is no drawing, and would take long."""
TOGETHER = 1 << 18
"""Rows of segments that are computed together, about."""


def stroke(points: Floats, width_um: float, shape: tuple[int, int], resolution: Resolution) -> PixelSet:
    """What a round brush of this width paints along a line; never thinner than the pixels that the line passes."""
    step = np.array([resolution.x, resolution.y])
    radius = max(width_um, float(np.hypot(*step))) / 2
    line = _checked(points, 1) * step
    ends = np.stack([line, line]) if len(line) == 1 else np.stack([line[:-1], line[1:]])
    low, high = ends[..., 1].min(axis=0) - radius, ends[..., 1].max(axis=0) + radius
    rows, lefts, rights = [], [], []
    for segment, row in _rows(low / step[1], high / step[1], shape):
        left, right = _across(ends[0, segment], ends[1, segment], (row + 0.5) * step[1], radius)
        rows.append(row)
        lefts.append(np.ceil(left / step[0] - 0.5 - 1e-9))
        rights.append(np.floor(right / step[0] - 0.5 + 1e-9) + 1)
    return _stretches(shape, rows, lefts, rights)


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
    ring = _checked(points, 3)
    begin, end = ring[:, 1], np.roll(ring[:, 1], -1)
    _passed(np.minimum(begin, end), np.maximum(begin, end), shape[0])  # refused before it takes long
    found = [*crossings([ring], 0, shape[0])]
    row, x = _joined([rows for rows, _ in found]).astype(np.int64), _joined([places for _, places in found])
    order = np.lexsort((x, row))
    row, x = row[order], np.ceil(x[order] - 0.5)
    # A closed line crosses each row an even number of times.
    return _stretches(shape, [row[::2]], [x[::2]], [x[1::2]])


def split_by_line(mask: Mask, points: Floats, place: Place, resolution: Resolution) -> PixelSet:
    """The part of the region at ``place`` that lies on its side of a line; the pixels under the line stay as they are.

    ``mask`` (H, W) has classes as they are now.
    """
    shape, width = (mask.shape[0], mask.shape[1]), mask.shape[1]
    row, column = place
    if not (0 <= row < shape[0] and 0 <= column < width) or mask[row, column] == IGNORE:
        raise UsageError("no region is known here", got=f"row {row}, column {column}", hint="choose another place")
    line = stroke(_checked(points, 2), 0.0, shape, resolution)
    if line.holds(np.array([row * width + column]))[0]:
        raise UsageError("the place lies on the line", hint="choose a place beside it")
    top, bottom = _rows_of_region(mask, place)
    here = runs_of(mask[top:bottom])
    at = here.at(np.array([(row - top) * width + column]))
    region = _component(here, at)
    cut = runs_of(np.where(line.rows(top, bottom - top, width), IGNORE, mask[top:bottom]))
    side = _component(cut, cut.at(np.array([(row - top) * width + column])))
    whole, chosen = PixelSet.of_runs(here, region), PixelSet.of_runs(cut, side)
    under = PixelSet(line.start - top * width, line.stop - top * width)
    if not whole - chosen - under:
        raise UsageError(
            "the line does not divide the region",
            hint="draw it across the region, from one edge to another",
        )
    return PixelSet(chosen.start + top * width, chosen.stop + top * width)


def _rows_of_region(mask: Mask, place: Place) -> tuple[int, int]:
    """First and last row (exclusive) around a place that hold its class without a gap: its region lies in them."""
    row, column = place
    holds = (mask == mask[row, column]).any(axis=1)
    above, below = np.flatnonzero(~holds[:row]), np.flatnonzero(~holds[row:])
    return (int(above[-1]) + 1 if above.size else 0), (row + int(below[0]) if below.size else len(mask))


def _component(runs: Runs, at: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """(n,) which runs make one region with the run ``at``."""
    inside = np.asarray(runs.value == runs.value[at[0]])
    number, _ = components(runs, inside)
    return np.asarray(inside & (number == number[at[0]]))


def _checked(points: Floats, least: int) -> Floats:
    """The points (n, 2) of a drawing; refuses fewer than ``least``, and points that are not finite."""
    line = np.asarray(points, dtype=np.float64).reshape(-1, 2)
    if not np.isfinite(line).all():
        raise UsageError("a point of the drawing has no valid coordinates", expected="finite x and y")
    if len(line) < least:
        raise UsageError("the drawing has too few points", got=len(line), expected=f"at least {least}")
    return line


def _rows(low: Floats, high: Floats, shape: tuple[int, int]) -> Iterator[tuple[Ints, Ints]]:
    """Segments and the rows of the mask that each of them may pass, many at a time."""
    first, count = _passed(low, high, shape[0])
    chunk = np.cumsum(count) // TOGETHER
    for part in np.split(np.arange(len(chunk)), np.flatnonzero(np.diff(chunk)) + 1):
        yield np.repeat(part, count[part]), ranges(first[part], count[part])


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


def _stretches(shape: tuple[int, int], rows: list[Ints], lefts: list[Floats], rights: list[Floats]) -> PixelSet:
    """The pixels of stretches of rows; those outside the mask are left out."""
    # Far outside is as good as just outside, and infinity is no whole number.
    left, right = (np.clip(_joined(of), -1, shape[1] + 1).astype(np.int64) for of in (lefts, rights))
    runs = covering(shape, _joined(rows).astype(np.int64), left, right)
    return PixelSet.of_runs(runs, runs.value)


def _joined(arrays: list[Ints] | list[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *arrays])
