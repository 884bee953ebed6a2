"""The outline of a piece of skin: which stretch of it is the natural surface, and which the knife made.

The *body* is the largest connected component of what is neither background, ignored nor keratin, with its holes filled:
loose bits, flakes and pearls take no part, and under keratin its outline is the true surface. Narrow cracks that open
to the outside are filled as well, since a tear is neither surface nor margin.
The outline consists of the pixel sides between body and outside, in order. Keratin beyond a side, or epidermis behind
it, speaks for the natural surface; dermis, fat or glands behind it speak for a cut; a tumour says nothing. The surface
is the stretch with the largest sum: one stretch, so a worn or ulcerated spot within it belongs to it, and keratin
that a cut exposes does not. Its two ends are then moved to the corner that the knife left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.arrays import Floats, Ints
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.regions.polygons import follow_rings
from ntrm.regions.runs import RunLengths, Where, combined, components, dilated, framed, runs_of, sides_of
from ntrm.regions.surface import best_arc, bridge_plugs, settle_ends

KERATIN = "KER"
EVIDENCE = {"EPI": 0.7, "IEC": 0.7, "RET": -1.0, "HYP": -1.0, "GLD": -1.0, "PAP": -1.0, "INF": -0.5}
"""What the tissue behind a side says; keratin beyond it says 1, what is not named here 0."""

NO_TISSUE = "no tissue in the piece"
NO_SURFACE_CLASSES = "the classes know no epidermis and no keratin: the skin surface cannot be told"
NO_SURFACE = "no skin surface in the piece"

LEAST_SURFACE_UM = 300.0  # Evidence for less surface than this is none …
LEAST_FRACTION = 0.1
"""… nor is evidence for less than this fraction of the outline: keratin pearls and follicles lie at cuts, too."""
MOST_PIXELS = 1 << 24  # Finer masks are subsampled to this many pixels for the outline, so that memory stays bounded
SMOOTH_UM = 150.0  # Directions along the outline are means over this length

EMBEDDED_FRACTION = 0.58
"""Half a disc has 0.61 of its outline along the arc; keratin that covers a surface touches it with half at most."""
CRACK_UM = 65.0  # Half the width of the widest crack that is closed
CRACK_DEPTH_UM = 80.0  # Shallower dents belong to the outline: cut edges are ragged
BULK_UM = 50.0
"""Radius of a disc that fits into the bulk of a body, but not into a spur of wrong labels that sticks out of it."""
GAP_UM = 130.0  # Half the width of the widest gap over which the fragments of a piece are joined, to find its surface
FRAGMENT_FRACTION = 0.05
"""A second component of at least this fraction of the tissue makes a piece fragmented; loose bits stay below 0.02."""


@dataclass(frozen=True, eq=False)
class Outline:
    """The outline of one piece. Coordinates are (row, column) in pixels of the original mask."""

    resolution: Resolution
    stride: int  # Every stride-th row and column of the mask was used
    sides: Floats  # (n, 2) middles of the pixel sides, in order around the body
    inner: Ints  # (n, 2) the pixel of the body at each side
    outer: Ints  # (n, 2) the pixel outside
    is_surface: Where  # (n,) whether the side belongs to the natural surface; the others were cut
    covered: Where  # (n,) whether keratin lies beyond the side
    fragments: int  # Components that hold a fair fraction of the tissue
    bulk: Ints | None
    """Top, left, bottom and right (first and last pixels) of the body without thin spurs; None if it is but spurs."""
    body: RunLengths | None = None  # What lies within, in the pixels that were used; None where there is no tissue
    corner: tuple[int, int] = (0, 0)  # Where the body's array begins in these
    reason: str = ""  # Why there is no surface; empty where there is one

    @property
    def scale_um(self) -> Floats:
        """µm per pixel of the mask along rows and columns."""
        return np.array([self.resolution.y, self.resolution.x])

    @property
    def step_um(self) -> Floats:
        """The same for the pixels that were used."""
        return self.scale_um * self.stride

    def holds(self, pixels: Ints) -> Where:
        """(n,) whether pixels (n, 2) of the mask lie in the body, or beside it."""
        found = np.zeros(len(pixels), dtype=bool)
        if self.body is not None:
            last = np.array(self.body.shape) - 1
            for step in product((-1, 0, 1), repeat=2):
                row, column = (pixels // self.stride - self.corner + step).clip(0, last).T
                found |= self.body.value[self.body.at(row * self.body.shape[1] + column)]
        return found

    @cached_property
    def surface(self) -> Floats:
        """(m, 2) pixels just above the surface, from its one end to the other, straight over plugs of keratin."""
        order = _in_order(self.is_surface)
        outer = self.outer[order].astype(np.float64)
        ahead = np.roll(self.sides, -1, axis=0)
        twice_area = float((self.sides[:, 0] * ahead[:, 1] - self.sides[:, 1] * ahead[:, 0]).sum())
        bridges = bridge_plugs(self.sides[order] * self.scale_um, self.covered[order], twice_area > 0)
        begin, stretches = 0, []
        for first, last in bridges:
            count = int(np.hypot(*((outer[last] - outer[first]) / self.stride))) + 2
            stretches += [outer[begin : first + 1], np.linspace(outer[first], outer[last], count)[1:-1]]
            begin = last
        return np.concatenate([*stretches, outer[begin:]])

    @property
    def cut_order(self) -> Ints:
        """Indices of the sides that were cut, from the end of the surface around to its beginning."""
        return _in_order(~self.is_surface)

    @cached_property
    def normals(self) -> Floats:
        """(n, 2) unit vectors out of the body, in µm, smoothed over ``SMOOTH_UM`` of the outline."""
        raw = (self.outer - self.inner) * self.step_um
        # A long side weighs more: a row step crosses a side as long as a column step.
        raw = raw / np.hypot(*raw.T)[:, None] * np.where(raw[:, :1] != 0, self.step_um[1], self.step_um[0])
        return mean_directions(raw, self.step_um, mode="wrap")


def mean_directions(vectors: Floats, step_um: Floats, mode: str) -> Floats:
    """(n, 2) unit vectors of running means over ``SMOOTH_UM``; ``mode`` says how they go on at the ends."""
    width = max(int(SMOOTH_UM / float(step_um.mean())), 1)
    smooth = ndimage.uniform_filter1d(vectors, min(width, len(vectors)), axis=0, mode=mode)
    length = np.hypot(*smooth.T)[:, None]
    return np.asarray(np.divide(smooth, length, out=np.zeros_like(smooth), where=length > 0))


def _in_order(stretch: Where) -> Ints:
    """Indices of one stretch of a ring, in order although it may run across the seam."""
    indices = np.flatnonzero(stretch)
    gap = np.flatnonzero(np.diff(indices) > 1)
    return np.roll(indices, -(int(gap[0]) + 1)) if gap.size else indices


def trace_outline(runs: RunLengths, schema: LabelSchema, resolution: Resolution) -> Outline:
    """Find the outline of the piece in a mask, and which of it is surface; a mask of very many pixels is thinned."""
    (height, width), stride = runs.shape, 1
    while -(-height // stride) * -(-width // stride) > MOST_PIXELS:
        stride += 1
    if not {KERATIN, "EPI", "IEC"} & set(schema.names):
        return _nothing(resolution, stride, NO_SURFACE_CLASSES)
    labels, corner = _cropped(runs.window(0, 0, height, width, stride), schema)
    step = np.array([resolution.y, resolution.x]) * stride
    body, fragments = find_body(_flesh(labels, schema), step)
    if body is None:
        return _nothing(resolution, stride, NO_TISSUE)
    sides, inner, outer = body_sides(body)
    weights, covered = _evidence(labels, schema, inner, outer)
    lengths = np.where(inner[:, 0] != outer[:, 0], step[1], step[0])
    start, stop, total = best_arc(weights * lengths)
    enough = total >= max(LEAST_SURFACE_UM, LEAST_FRACTION * float(lengths.sum()))
    bulk = bulk_box(body, step)
    return Outline(
        resolution=resolution,
        stride=stride,
        sides=(sides + corner) * stride,
        inner=(inner + corner) * stride,
        outer=(outer + corner) * stride,
        is_surface=settle_ends(start, stop, sides * step, covered, weights) if enough else np.zeros(len(sides), bool),
        covered=covered,
        fragments=fragments,
        bulk=None if bulk is None else (bulk + np.tile(corner, 2)) * stride,
        body=body,
        corner=(int(corner[0]), int(corner[1])),
        reason="" if enough else NO_SURFACE,
    )


def _nothing(resolution: Resolution, stride: int, reason: str) -> Outline:
    none, never = np.zeros((0, 2), dtype=np.int64), np.zeros(0, dtype=bool)
    return Outline(resolution, stride, none.astype(np.float64), none, none, never, never, 0, None, reason=reason)


def _cropped(runs: RunLengths, schema: LabelSchema) -> tuple[RunLengths, Ints]:
    """The box that holds tissue, within a frame of ignored pixels, and (row, column) of its corner in the mask."""
    outside = IGNORE if schema.background_index is None else schema.background_index
    tissue = (runs.value != IGNORE) & (runs.value != outside)
    if not tissue.any():
        return runs_of(np.full((1, 1), IGNORE, dtype=np.uint8)), np.zeros(2, dtype=np.int64)
    rows, columns = runs.row[tissue], runs.left[tissue]
    top, left = int(rows[0]), int(columns.min())
    right = int((columns + runs.length[tissue]).max())
    box = runs.window(top, left, int(rows[-1]) + 1 - top, right - left)
    return framed(box, 1, 1, IGNORE), np.array([top - 1, left - 1])


def _flesh(labels: RunLengths, schema: LabelSchema) -> RunLengths:
    """Where there is tissue that is not keratin, or keratin within such tissue."""
    table = np.zeros(256, dtype=bool)
    table[[tissue.index for tissue in schema.tissues if tissue.name not in {schema.background, KERATIN}]] = True
    flesh = table[labels.value]
    if KERATIN in schema.names:
        flesh = flesh | embedded(labels, labels.value == schema.index(KERATIN), flesh)
    return labels.relabelled(flesh)


def _evidence(labels: RunLengths, schema: LabelSchema, inner: Ints, outer: Ints) -> tuple[Floats, Where]:
    """For each side: above 0 for surface, below 0 for a cut; and whether keratin lies beyond."""
    behind = np.zeros(256)
    behind[: len(schema)] = [EVIDENCE.get(name, 0.0) for name in schema.names]
    tissues, beyond = (labels.value[labels.at(at[:, 0] * labels.shape[1] + at[:, 1])] for at in (inner, outer))
    # No label is -1.
    covered = np.asarray(beyond.astype(int) == (schema.index(KERATIN) if KERATIN in schema.names else -1))
    return np.where(covered, 1.0, behind[tissues]), covered


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
    """The main component without holes and cracks, and the number of components with a fair fraction of the tissue.

    The mask lies within an empty frame, one pixel wide at least.
    """
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
