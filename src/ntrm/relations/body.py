"""The body of a piece of skin: its main part without holes and cracks, and the pixel sides around it in order.

All masks here are runs within an empty frame, one pixel wide at least.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ntrm.relations.runs import Runs, combined, components, framed, grown, stretched

Points = NDArray[np.float64]
Ints = NDArray[np.int64]
Where = NDArray[np.bool_]

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
    parts, count = components(Runs(runs.shape, runs.start, keratin), outside=False, eight=True)
    touching = runs.touching
    sides, enclosed = np.zeros(count + 1), np.zeros(count + 1)
    beside = np.ones(len(touching.left), dtype=np.int64)
    for one, other, shared in (
        (touching.left, touching.right, beside),
        (touching.right, touching.left, beside),
        (touching.above, touching.below, touching.shared),
        (touching.below, touching.above, touching.shared),
    ):
        border = keratin[one] & ~keratin[other]
        here, there, length = parts[one[border]], other[border], shared[border]
        sides += np.bincount(here, weights=length, minlength=count + 1)
        enclosed += np.bincount(here, weights=length * flesh[there], minlength=count + 1)
    return np.asarray((enclosed > EMBEDDED_SHARE * sides)[parts])


def find_body(tissue: Runs, step: NDArray[np.float64]) -> tuple[Runs | None, int]:
    """The main part without holes and cracks, and the number of parts with a fair share of the tissue."""
    parts, pixels = _parts(tissue)
    if len(pixels) == 1:
        return None, 0
    large = pixels >= FRAGMENT_SHARE * pixels.sum()
    large[pixels.argmax()] = True
    large[0] = False
    body = tissue.relabelled(large[parts])
    fragments = int(large.sum())
    if fragments > 1:
        body = _main_part(_closed(body, step, GAP_UM))
    body = filled_inlets(without_holes(body), step, CRACK_UM, CRACK_DEPTH_UM)
    return _main_part(without_holes(body)), fragments


def _parts(mask: Runs) -> tuple[Ints, NDArray[np.float64]]:
    """For each run the number of its part (4 neighbours), 0 outside; and the pixels of each, 0 for the outside."""
    parts, count = components(mask, outside=False, eight=False)
    pixels = np.bincount(parts, weights=mask.length, minlength=count + 1).astype(np.float64)
    pixels[0] = 0
    return parts, pixels


def _main_part(mask: Runs) -> Runs:
    parts, pixels = _parts(mask)
    return mask.relabelled(parts == pixels.argmax())


def without_holes(mask: Runs) -> Runs:
    """The mask and what it encloses: all that the frame is not joined with (4 neighbours)."""
    around, _ = components(Runs(mask.shape, mask.start, ~mask.value), outside=False, eight=False)
    return mask.relabelled(around != around[0])


def _closed(mask: Runs, step: NDArray[np.float64], radius_um: float) -> Runs:
    """Closing by a disc; the frame is widened so that the disc is never cut off."""
    rows, columns = (int(radius_um / size) + 2 for size in step)
    near = grown(framed(mask, rows, columns), step, radius_um)
    far = grown(near, step, radius_um, value=False)
    closed = combined(mask, framed(Runs(far.shape, far.start, ~far.value), -rows, -columns))
    return closed.relabelled(closed.value > 0)


def filled_inlets(body: Runs, step: NDArray[np.float64], radius_um: float, depth_um: float) -> Runs:
    """The body, and what lies in inlets narrower than twice the radius and deeper than ``depth_um``.

    Depth is the distance to what lies outside the closed body. Shallow dents are left as they are.
    """
    closed = without_holes(_closed(body, step, radius_um))
    shallow = grown(closed, step, depth_um, value=False)
    every = combined(body, closed, shallow)
    gained = (every.value & 3) == 2
    inlets, count = components(Runs(every.shape, every.start, gained), outside=False, eight=True)
    deep = np.zeros(count + 1, dtype=bool)
    deep[inlets[every.value == 2]] = True
    return every.relabelled((every.value & 1).astype(bool) | (gained & deep[inlets]))


def bulk_box(body: Runs, step: NDArray[np.float64]) -> Ints | None:
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


def body_sides(body: Runs) -> tuple[Points, Ints, Ints]:
    """The pixel sides around the body in order, with the pixels (row, column) inside and outside of each.

    The body is in one part and has no holes, so that from each corner one side leads on: its inside at the right.
    """
    inner, outward = sides_of(body)
    # Where a side begins, as a corner of pixels: at the upper left of its pixel, or one further down or right.
    down, right = outward.T
    begin = inner + np.stack([(down > 0) | (right < 0), (down > 0) | (right > 0)], axis=1)
    ahead = np.stack([right, -down], axis=1)
    width = body.shape[1] + 1
    corner, goal = (at[:, 0] * width + at[:, 1] for at in (begin, begin + ahead))
    order = np.argsort(corner)
    following = order[np.searchsorted(corner[order], goal)].tolist()
    ring = [0]
    while (at := following[ring[-1]]) != 0:
        ring.append(at)
    inner, outer = inner[ring], (inner + outward)[ring]
    return (inner + outer) / 2, inner, outer


def sides_of(body: Runs) -> tuple[Ints, Ints]:
    """Pixels of the body with a side to the outside, and the way out of it: (n, 2) each, once per side."""
    touching, inside, width = body.touching, body.value, body.shape[1]
    starts = body.start[touching.right[inside[touching.right]]]
    ends = body.stop[touching.left[inside[touching.left]]] - 1
    first = np.maximum(body.start[touching.above] + width, body.start[touching.below])
    found = [(starts, (0, -1)), (ends, (0, 1))]
    for within, other, back, way in (
        (touching.below, touching.above, 0, (-1, 0)),
        (touching.above, touching.below, width, (1, 0)),
    ):
        border = inside[within] & ~inside[other]
        length = touching.shared[border]
        found.append((stretched(first[border] - back, length), way))
    pixels = np.concatenate([flat for flat, _ in found])
    ways = np.repeat(np.array([way for _, way in found]), [len(flat) for flat, _ in found], axis=0)
    return np.stack([pixels // width, pixels % width], axis=1), ways
