"""The body of a piece of skin: its main component without holes and cracks, and the pixel sides around it in order.

Masks are runs within an empty frame, one pixel wide at least.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Floats, Ints
from ntrm.regions.polygons import follow_rings
from ntrm.regions.runs import RunLengths, Where, combined, components, dilated, framed, sides_of

EMBEDDED_FRACTION = 0.58
"""Half a disc has 0.61 of its outline along the arc; keratin that covers a surface touches it with half at most."""
CRACK_UM = 65.0  # Half the width of the widest crack that is closed
CRACK_DEPTH_UM = 80.0  # Shallower dents belong to the outline: cut edges are ragged
BULK_UM = 50.0
"""Radius of a disc that fits into the bulk of a body, but not into a spur of wrong labels that sticks out of it."""
GAP_UM = 130.0  # Half the width of the widest gap over which the fragments of a piece are joined, to find its surface
FRAGMENT_FRACTION = 0.05
"""A second component of at least this fraction of the tissue makes a piece fragmented; loose bits stay below 0.02."""


def embedded(runs: RunLengths, keratin: Where, flesh: Where) -> Where:
    """Runs of keratin in components that are mostly surrounded by flesh: pearls, also opened ones.

    ``keratin`` and ``flesh`` say which runs are of these.
    """
    component, count = components(RunLengths(runs.shape, runs.start, keratin), keratin)
    pairs, left = runs.overlaps, runs.with_next
    one, other = np.concatenate([left, pairs.above]), np.concatenate([left + 1, pairs.below])
    length = np.concatenate([np.ones(len(left), dtype=np.int64), pairs.length])
    sides, enclosed = np.zeros((2, count))
    for inner, outer in ((one, other), (other, one)):
        border = keratin[inner] & ~keratin[outer]
        own, shared = component[inner[border]], length[border]
        sides += np.bincount(own, weights=shared, minlength=count)
        enclosed += np.bincount(own, weights=shared * flesh[outer[border]], minlength=count)
    # Runs of no component have -1, the last entry.
    return np.append(enclosed > EMBEDDED_FRACTION * sides, False)[component]


def find_body(tissue: RunLengths, step: Floats) -> tuple[RunLengths | None, int]:
    """The main component without holes and cracks, and the number of components with a fair fraction of the tissue."""
    component, pixels = _components(tissue)
    if not len(pixels):
        return None, 0
    large = pixels >= FRAGMENT_FRACTION * pixels.sum()
    large[pixels.argmax()] = True
    body = tissue.relabelled(np.append(large, False)[component])
    fragments = int(large.sum())
    if fragments > 1:
        body = _largest(_closed(body, step, GAP_UM))
    body = filled_inlets(without_holes(body), step, CRACK_UM, CRACK_DEPTH_UM)
    return _largest(without_holes(body)), fragments


def _components(mask: RunLengths) -> tuple[NDArray[np.int32], Ints]:
    """For each run the number of its component, -1 outside; and the pixels of each component."""
    component, count = components(mask, mask.value)
    return component, np.bincount(component[mask.value], mask.length[mask.value], count).astype(np.int64)


def _largest(mask: RunLengths) -> RunLengths:
    component, pixels = _components(mask)
    return mask.relabelled(component == pixels.argmax())


def without_holes(mask: RunLengths) -> RunLengths:
    """The mask and what it encloses: all that is not connected with the frame."""
    around, _ = components(RunLengths(mask.shape, mask.start, ~mask.value), ~mask.value)
    return mask.relabelled(around != around[0])


def _closed(mask: RunLengths, step: Floats, radius_um: float) -> RunLengths:
    """Closing by a disc; the frame is widened so that the disc is never cut off."""
    rows, columns = (int(radius_um / size) + 2 for size in step)
    near = dilated(framed(mask, rows, columns), step, radius_um)
    far = dilated(near, step, radius_um, value=False)
    closed = combined(mask, framed(RunLengths(far.shape, far.start, ~far.value), -rows, -columns))
    return closed.relabelled(closed.value > 0)


def filled_inlets(body: RunLengths, step: Floats, radius_um: float, depth_um: float) -> RunLengths:
    """The body, and what lies in inlets narrower than twice the radius and deeper than ``depth_um``.

    Depth is the distance to what lies outside the closed body. Shallow dents are left as they are.
    """
    closed = without_holes(_closed(body, step, radius_um))
    shallow = dilated(closed, step, depth_um, value=False)
    code = combined(body, closed, shallow)
    gained = (code.value & 3) == 2
    inlet, count = components(RunLengths(code.shape, code.start, gained), gained)
    deep = np.zeros(count + 1, dtype=bool)
    deep[inlet[code.value == 2]] = True
    return code.relabelled((code.value & 1).astype(bool) | (gained & deep[inlet]))


def bulk_box(body: RunLengths, step: Floats) -> Ints | None:
    """Top, left, bottom and right (first and last pixels) of what discs of ``BULK_UM`` within the body reach.

    Thin spurs are left out; None for a body that is thin everywhere.
    """
    near = dilated(body, step, BULK_UM, value=False)
    core = ~near.value
    if not core.any():
        return None
    row, left, right = near.row[core], near.left[core], (near.left + near.length)[core] - 1
    reach = (BULK_UM / step).astype(np.int64)
    return np.concatenate([np.array([row.min(), left.min()]) - reach, np.array([row.max(), right.max()]) + reach])


def body_sides(body: RunLengths) -> tuple[Floats, Ints, Ints]:
    """The pixel sides around the body in order, with the pixels (row, column) inside and outside of each.

    The body is connected and has no holes, so that from each corner one side leads on: its inside at the right.
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
