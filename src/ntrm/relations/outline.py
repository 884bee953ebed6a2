"""Once around a piece of skin: which stretch of its outline is the natural surface, and which the knife made.

The *body* is the largest connected part of what is neither background, ignored nor keratin, with its holes filled:
loose bits, flakes and pearls take no part, and under keratin its outline is the true surface. Narrow cracks that open
to the outside are filled as well, since a tear is neither surface nor margin.
The outline consists of the pixel sides between body and outside, in order. Keratin beyond a side, or epidermis behind
it, speaks for the natural surface; dermis, fat or glands behind it speak for a cut; a tumour says nothing. The surface
is the stretch with the largest sum: one stretch, so a worn or ulcerated place within it belongs to it, and keratin
that a cut exposes does not. Its two ends are then moved to the corner that the knife left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, LabelSchema, Mask
from ntrm.core.mpp import Resolution
from ntrm.relations.body import body_sides, bulk_box, embedded, find_body
from ntrm.relations.corners import settle_ends
from ntrm.relations.plugs import bridge_plugs
from ntrm.relations.runs import Runs, runs_of

Points = NDArray[np.float64]
Where = NDArray[np.bool_]

SURFACE_TISSUES = ("EPI", "IEC")
KERATIN = "KER"
CUT_TISSUES = ("RET", "HYP", "GLD", "PAP")
EVIDENCE = ((SURFACE_TISSUES, 0.7), (CUT_TISSUES, -1.0), (("INF",), -0.5))
"""What the tissue behind a side says; keratin beyond it says 1, what is not named here 0."""

NO_TISSUE = "no tissue in the piece"
NO_SURFACE_CLASSES = "the classes know no epidermis and no keratin: the skin surface cannot be told"
NO_SURFACE = "no skin surface in the piece"

LEAST_SURFACE_UM = 300.0
"""Evidence for less surface than this is none."""
LEAST_SHARE = 0.1
"""… nor is evidence for less than this share of the outline: keratin pearls and follicles lie at cuts, too."""
MOST_PIXELS = 1 << 24
"""Finer masks are thinned to this many pixels before the outline is looked for, so that memory stays bounded."""


@dataclass(frozen=True, eq=False)
class Outline:
    """The outline of one piece. Coordinates are (row, column) of the mask that was given, in pixels."""

    resolution: Resolution
    stride: int
    """Only every so manieth pixel of the mask was looked at, in both directions."""
    sides: Points
    """(n, 2) middles of the pixel sides, in order around the body."""
    inner: NDArray[np.int64]
    """(n, 2) the pixel of the body at each side."""
    outer: NDArray[np.int64]
    """(n, 2) the pixel outside."""
    is_surface: Where
    """(n,) whether the side belongs to the natural surface; the others were cut."""
    covered: Where
    """(n,) whether keratin lies beyond the side."""
    fragments: int
    """Parts that hold a fair share of the tissue."""
    bulk: NDArray[np.int64] | None
    """Top, left, bottom and right (first and last pixels) of the body without thin spurs; None if it is but spurs."""
    reason: str = ""
    """Why there is no surface; empty where there is one."""

    @property
    def scale_um(self) -> NDArray[np.float64]:
        """µm per pixel of the mask along rows and columns."""
        return np.array([self.resolution.y, self.resolution.x])

    @property
    def step_um(self) -> NDArray[np.float64]:
        """The same for the pixels that were looked at."""
        return self.scale_um * self.stride

    @cached_property
    def surface(self) -> Points:
        """(m, 2) pixels just above the surface, from its one end to the other, straight over plugs of keratin."""
        order = self.surface_order
        outer = self.outer[order].astype(np.float64)
        bridges = bridge_plugs(self.sides[order] * self.scale_um, self.covered[order], self._area > 0)
        kept, parts = 0, []
        for first, last in bridges:
            parts.append(outer[kept : first + 1])
            count = int(np.hypot(*((outer[last] - outer[first]) / self.stride))) + 2
            parts.append(np.linspace(outer[first], outer[last], count)[1:-1])
            kept = last
        return np.concatenate([*parts, outer[kept:]])

    @property
    def surface_order(self) -> NDArray[np.int64]:
        """Indices of the sides of the surface, from its first to its last around the ring."""
        return _in_order(self.is_surface)

    @property
    def cut_order(self) -> NDArray[np.int64]:
        """Indices of the other sides, from the end of the surface around to its beginning."""
        return _in_order(~self.is_surface)

    @property
    def _area(self) -> float:
        """Twice the signed area in (row, column)."""
        ahead = np.roll(self.sides, -1, axis=0)
        return float((self.sides[:, 0] * ahead[:, 1] - self.sides[:, 1] * ahead[:, 0]).sum())

    @cached_property
    def normals(self) -> Points:
        """(n, 2) unit vectors out of the body, in µm, smoothed over ``SMOOTH_UM`` of the outline."""
        raw = (self.outer - self.inner) * self.step_um
        # A long side weighs more: a row step crosses a side as long as a column step.
        raw = raw / np.hypot(*raw.T)[:, None] * np.where(raw[:, :1] != 0, self.step_um[1], self.step_um[0])
        width = max(int(SMOOTH_UM / float(self.step_um.mean())), 1)
        smooth = ndimage.uniform_filter1d(raw, min(width, len(raw)), axis=0, mode="wrap")
        length = np.hypot(*smooth.T)[:, None]
        return np.asarray(np.divide(smooth, length, out=np.zeros_like(smooth), where=length > 0))


SMOOTH_UM = 150.0
"""Directions along the outline are means over this length."""


def _in_order(stretch: Where) -> NDArray[np.int64]:
    """Indices of one stretch of a ring, in order although it may run across the seam."""
    found = np.flatnonzero(stretch)
    gap = np.flatnonzero(np.diff(found) > 1)
    return np.roll(found, -(int(gap[0]) + 1)) if gap.size else found


def trace_outline(mask: Mask, schema: LabelSchema, resolution: Resolution) -> Outline:
    """Find the outline of the piece in ``mask`` and tell surface from cut."""
    check_mask(mask, schema)
    stride = stride_for((mask.shape[0], mask.shape[1]))
    return trace_thinned(mask[::stride, ::stride], stride, schema, resolution)


def stride_for(shape: tuple[int, int]) -> int:
    """Of the pixels of a mask every so manieth is looked at, in both directions.

    >>> stride_for((4096, 4096)), stride_for((4096, 4097))
    (1, 2)
    """
    stride = 1
    while -(-shape[0] // stride) * -(-shape[1] // stride) > MOST_PIXELS:
        stride += 1
    return stride


def trace_thinned(thinned: Mask, stride: int, schema: LabelSchema, resolution: Resolution) -> Outline:
    """The same from every ``stride``-th pixel of a mask, whose µm/px are ``resolution``."""
    if not {KERATIN, *SURFACE_TISSUES} & set(schema.names):
        return _nothing(resolution, stride, NO_SURFACE_CLASSES)
    seen, corner = _cropped(thinned, schema)
    step = np.array([resolution.y, resolution.x]) * stride
    body, fragments = find_body(_flesh(runs_of(seen), schema), step)
    if body is None:
        return _nothing(resolution, stride, NO_TISSUE)
    sides, inner, outer = body_sides(body)
    weights, covered = _evidence(seen, schema, inner, outer)
    lengths = np.where(inner[:, 0] != outer[:, 0], step[1], step[0])
    start, stop, total = best_arc(weights * lengths)
    found = total >= max(LEAST_SURFACE_UM, LEAST_SHARE * float(lengths.sum()))
    return Outline(
        resolution=resolution,
        stride=stride,
        sides=(sides + corner) * stride,
        inner=(inner + corner) * stride,
        outer=(outer + corner) * stride,
        is_surface=settle_ends(start, stop, sides * step, covered, weights) if found else np.zeros(len(sides), bool),
        covered=covered,
        fragments=fragments,
        bulk=None if (box := bulk_box(body, step)) is None else (box + np.tile(corner, 2)) * stride,
        reason="" if found else NO_SURFACE,
    )


def _cropped(mask: Mask, schema: LabelSchema) -> tuple[Mask, NDArray[np.int64]]:
    """The part that holds tissue within a frame of nothing, and (row, column) of its corner in the mask."""
    outside = IGNORE if schema.background_index is None else schema.background_index
    tissue = (mask != IGNORE) & (mask != outside)
    rows, columns = np.flatnonzero(tissue.any(axis=1)), np.flatnonzero(tissue.any(axis=0))
    if not rows.size:
        return np.full((1, 1), IGNORE, dtype=np.uint8), np.zeros(2, dtype=np.int64)
    part = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    return np.pad(part, 1, constant_values=IGNORE), np.array([rows[0] - 1, columns[0] - 1])


def _flesh(seen: Runs, schema: LabelSchema) -> Runs:
    """Where there is tissue that is not keratin, or keratin within such tissue."""
    table = np.zeros(256, dtype=bool)
    table[[tissue.index for tissue in schema.tissues if tissue.name not in {schema.background, KERATIN}]] = True
    flesh = table[seen.value]
    if KERATIN in schema.names:
        flesh = flesh | embedded(seen, seen.value == schema.index(KERATIN), flesh)
    return seen.relabelled(flesh)


def check_mask(mask: Mask, schema: LabelSchema) -> None:
    """Refuse what is no label mask of this schema."""
    if mask.ndim != 2 or mask.dtype != np.uint8:
        raise DataError("this is no label mask", got=f"{mask.dtype} {mask.shape}", expected="uint8 (height, width)")
    wrong = (mask >= len(schema)) & (mask != IGNORE)
    if wrong.any():
        raise DataError(
            "the mask has labels that the schema does not know",
            got=f"label {int(mask[wrong][0])}",
            expected=f"0 to {len(schema) - 1}, or {IGNORE} for nothing",
            mend="give the schema that the mask was made with",
        )


def _nothing(resolution: Resolution, stride: int, reason: str) -> Outline:
    none = np.zeros((0, 2), dtype=np.int64)
    never = np.zeros(0, dtype=bool)
    return Outline(resolution, stride, none.astype(np.float64), none, none, never, never, 0, None, reason)


def _evidence(
    seen: Mask, schema: LabelSchema, inner: NDArray[np.int64], outer: NDArray[np.int64]
) -> tuple[NDArray[np.float64], Where]:
    """For each side: above 0 for surface, below 0 for a cut; and whether keratin lies beyond."""
    behind = np.zeros(256)
    for names, weight in EVIDENCE:
        for name in set(names) & set(schema.names):
            behind[schema.index(name)] = weight
    covered = np.zeros(len(outer), dtype=bool)
    if KERATIN in schema.names:
        covered = np.asarray(seen[tuple(outer.T)] == schema.index(KERATIN))
    return np.where(covered, 1.0, behind[seen[tuple(inner.T)]]), covered


def best_arc(values: NDArray[np.float64]) -> tuple[int, int, float]:
    """Stretch of a closed ring with the largest sum: first index, index after the last (may exceed n), the sum.

    >>> best_arc(np.array([2.0, -1, -5, 1, 3]))
    (3, 6, 6.0)
    """
    size = len(values)
    total = np.concatenate([[0.0], np.cumsum(values)])  # (n + 1,)
    plain = total - np.minimum.accumulate(total)
    stop = int(plain.argmax())
    best = (int(total[: stop + 1].argmin()), stop, float(plain[stop]))
    # Across the seam: the whole ring less the stretch with the smallest sum.
    fall = total - np.maximum.accumulate(total)
    end = int(fall.argmin())
    begin = int(total[: end + 1].argmax())
    around = float(total[size] - fall[end])
    return (end, size + begin, around) if around > best[2] else best
