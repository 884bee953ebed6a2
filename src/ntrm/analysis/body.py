"""The body of a piece of skin: its main part without holes and cracks, and the pixel sides around it in order.

Masks are runs within an empty frame, one pixel wide at least; how they grow, shrink and are combined stands below.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.analysis.polygons import follow_rings
from ntrm.analysis.runs import Floats, Ints, Runs, Where, components, distinct, sides_of

STRETCHES = 1 << 20
"""Stretches of a growing mask that are put together at a time, about."""

EMBEDDED_SHARE = 0.58
"""Half a disc has 0.61 of its outline along the arc; keratin that covers a surface touches it with half at most."""
CRACK_UM = 65.0
"""Half the width of the widest crack that is closed."""
CRACK_DEPTH_UM = 80.0
"""Shallower dents belong to the outline: cut edges are ragged."""
BULK_UM = 50.0
"""Radius of a disc that fits into the bulk of a body, but not into a spur of wrong labels that sticks out of it."""
GAP_UM = 130.0
"""Half the width of the widest gap over which the parts of a fragmented piece are joined, to find its surface."""
FRAGMENT_SHARE = 0.05
"""A second part of at least this share of the tissue makes a piece fragmented; loose bits stay below 0.02."""


def embedded(runs: Runs, keratin: Where, flesh: Where) -> Where:
    """Runs of keratin that belong to parts which flesh surrounds for the most part: pearls, also opened ones.

    ``keratin`` and ``flesh`` say which runs are of these.
    """
    part, count = components(Runs(runs.shape, runs.start, keratin), keratin)
    pairs, beside = runs.overlaps, runs.beside
    sides, enclosed = np.zeros((2, count))
    ones = np.ones(len(beside), dtype=np.int64)
    for one, other, shared in (
        (beside, beside + 1, ones),
        (beside + 1, beside, ones),
        (pairs.above, pairs.below, pairs.length),
        (pairs.below, pairs.above, pairs.length),
    ):
        border = keratin[one] & ~keratin[other]
        here, there, length = part[one[border]], other[border], shared[border]
        sides += np.bincount(here, weights=length, minlength=count)
        enclosed += np.bincount(here, weights=length * flesh[there], minlength=count)
    # One more entry, which runs of no part find.
    return np.append(enclosed > EMBEDDED_SHARE * sides, False)[part]


def find_body(tissue: Runs, step: Floats) -> tuple[Runs | None, int]:
    """The main part without holes and cracks, and the number of parts with a fair share of the tissue."""
    part, pixels = _parts(tissue)
    if not len(pixels):
        return None, 0
    large = pixels >= FRAGMENT_SHARE * pixels.sum()
    large[pixels.argmax()] = True
    body = tissue.relabelled(np.append(large, False)[part])
    fragments = int(large.sum())
    if fragments > 1:
        body = _main_part(_closed(body, step, GAP_UM))
    body = filled_inlets(without_holes(body), step, CRACK_UM, CRACK_DEPTH_UM)
    return _main_part(without_holes(body)), fragments


def _parts(mask: Runs) -> tuple[NDArray[np.int32], Ints]:
    """For each run the number of its part, -1 outside; and the pixels of each part."""
    part, count = components(mask, mask.value)
    return part, np.bincount(part[mask.value], mask.length[mask.value], count).astype(np.int64)


def _main_part(mask: Runs) -> Runs:
    part, pixels = _parts(mask)
    return mask.relabelled(part == pixels.argmax())


def without_holes(mask: Runs) -> Runs:
    """The mask and what it encloses: all that the frame is not joined with."""
    around, _ = components(Runs(mask.shape, mask.start, ~mask.value), ~mask.value)
    return mask.relabelled(around != around[0])


def _closed(mask: Runs, step: Floats, radius_um: float) -> Runs:
    """Closing by a disc; the frame is widened so that the disc is never cut off."""
    rows, columns = (int(radius_um / size) + 2 for size in step)
    near = grown(framed(mask, rows, columns), step, radius_um)
    far = grown(near, step, radius_um, value=False)
    closed = combined(mask, framed(Runs(far.shape, far.start, ~far.value), -rows, -columns))
    return closed.relabelled(closed.value > 0)


def filled_inlets(body: Runs, step: Floats, radius_um: float, depth_um: float) -> Runs:
    """The body, and what lies in inlets narrower than twice the radius and deeper than ``depth_um``.

    Depth is the distance to what lies outside the closed body. Shallow dents are left as they are.
    """
    closed = without_holes(_closed(body, step, radius_um))
    shallow = grown(closed, step, depth_um, value=False)
    every = combined(body, closed, shallow)
    gained = (every.value & 3) == 2
    inlet, count = components(Runs(every.shape, every.start, gained), gained)
    deep = np.zeros(count + 1, dtype=bool)
    deep[inlet[every.value == 2]] = True
    return every.relabelled((every.value & 1).astype(bool) | (gained & deep[inlet]))


def bulk_box(body: Runs, step: Floats) -> Ints | None:
    """Top, left, bottom and right (first and last pixels) of what discs of ``BULK_UM`` within the body reach.

    Thin spurs take no part; None for a body that is thin all over.
    """
    near = grown(body, step, BULK_UM, value=False)
    core = ~near.value
    if not core.any():
        return None
    row, left, right = near.row[core], near.left[core], (near.left + near.length)[core] - 1
    reach = (BULK_UM / step).astype(np.int64)
    return np.concatenate([np.array([row.min(), left.min()]) - reach, np.array([row.max(), right.max()]) + reach])


def body_sides(body: Runs) -> tuple[Floats, Ints, Ints]:
    """The pixel sides around the body in order, with the pixels (row, column) inside and outside of each.

    The body is in one part and has no holes, so that from each corner one side leads on: its inside at the right.
    """
    pixels, outward = sides_of(body, body.value)
    inner = np.stack(np.divmod(pixels, body.shape[1]), axis=1)
    # Where a side begins, as a corner of pixels: at the upper left of its pixel, or one further down or right.
    down, right = outward.T
    begin = inner + np.stack([(down > 0) | (right < 0), (down > 0) | (right > 0)], axis=1)
    ahead = np.stack([right, -down], axis=1)
    width = body.shape[1] + 1
    corner, goal = (at[:, 0] * width + at[:, 1] for at in (begin, begin + ahead))
    order = np.argsort(corner)
    ring, number = follow_rings(order[np.searchsorted(corner[order], goal)].astype(np.int32))
    ring = ring[number == 0]
    inner, outer = inner[ring], (inner + outward)[ring]
    return (inner + outer) / 2, inner, outer


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
    cut = distinct(np.concatenate([np.arange(height, dtype=np.int64) * width, start, stop[stop < height * width]]))
    inside = np.searchsorted(start, cut, side="right") > np.searchsorted(stop, cut, side="right")
    return Runs(shape, cut, inside).relabelled(inside)


def combined(*masks: Runs) -> Runs:
    """Masks of one shape as one: bit k of a value says whether the k-th mask holds the pixel."""
    cut = distinct(np.concatenate([mask.start for mask in masks]))
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
