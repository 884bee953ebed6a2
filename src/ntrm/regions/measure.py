"""Clearance, depth of invasion and orientation of one piece: numbers, or the reason why there is none.

*Clearance* is the smallest distance from tumour to the margin that the knife made, deep and lateral apart. It runs
between the middles of pixels, less one pixel of the outline, as neighbours lie one pixel apart although nothing lies
between them: a tumour that the cut goes through has a clearance of 0. The natural surface, tears, holes and loose bits
are no margin. The margin is *lateral* from either end of the surface to where it first faces away from the surface
nearest to it (within ``DEEP_WITHIN_DEG``, over at least ``DEEP_RUN_UM``); what lies between is *deep*. Where a piece
tapers, as a shave does, its tips are the lateral margin.

*Depth of invasion* is the greatest distance, over the pixels of BCC and SCC, to the nearest pixel above the surface;
keratin is above it. Carcinoma in situ (IEC) does not invade. Stray specks of tumour count for neither. Only the body of
a piece, its largest part, has a surface and a margin that are known: where tumour lies in another part, be it a loose
bit, a piece has neither clearance nor depth.

*Orientation* is the direction of the mean outward normal along the surface: 0° faces the top of the image, 90° its
right side, clockwise. A stretch weighs by its length as seen from that side: the flanks of a bulge count no more than
the skin that it stands on. (By plain length the normals would add up to the normal of the line between the surface's
ends, so that half a bulge at a cut would turn the whole piece.)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import ndimage

from ntrm.core.arrays import Floats, Ints
from ntrm.core.labels import CANCERS, LabelSchema
from ntrm.core.wording import NO_TUMOUR, NOTHING_INVADES, PURPOSE, counted, whole_degrees
from ntrm.regions.cancers import NO_TUMOUR_CLASSES, SMALLEST_REGION_MM2, Tumour, tumour_of
from ntrm.regions.nearest import farthest, nearest_of
from ntrm.regions.outline import Outline, mean_directions
from ntrm.regions.regions import Regions
from ntrm.regions.runs import Where

INVASIVE = ("BCC", "SCC")
DEEP, LATERAL = "deep clearance", "lateral clearance"
DEPTH, ORIENTATION = "depth of invasion", "orientation"

DEEP_WITHIN_DEG = 45.0
DEEP_RUN_UM = 300.0
LEAST_AGREEMENT = 0.2  # Length of the mean of unit normals below which they agree on no side; a half circle has 0.64

FRAGMENTED = "fragmented: the cut margin cannot be told"
SCAN_EDGE = "the piece is cut by the scan's edge"
NO_MARGIN = "margin not identifiable: no stretch of the outline was cut"
ELSEWHERE = "fragmented: tumour lies in a part whose surface and margin cannot be told"
ALL_AROUND = "the surface faces all sides: none is up"


@dataclass(frozen=True)
class Measurement:
    """One number with its unit and the line it was taken along, or the reason why it cannot be assessed."""

    name: str
    value: float | None
    unit: str = "mm"
    reason: str = ""
    line: tuple[tuple[float, float], tuple[float, float]] | None = None
    """Two points as (row, column) in pixels of the mask."""

    def shifted(self, row: float, column: float) -> Measurement:
        """The same in the pixels of a larger mask, in which the piece begins at (row, column)."""
        if self.line is None:
            return self
        (r0, c0), (r1, c1) = self.line
        return replace(self, line=((r0 + row, c0 + column), (r1 + row, c1 + column)))

    def __str__(self) -> str:
        if self.value is None:
            return f"{self.name}: not assessed ({self.reason})"
        return f"{self.name}: {self.value:.2f} mm" if self.unit == "mm" else f"{self.name}: {whole_degrees(self.value)}"


@dataclass(frozen=True, eq=False)
class PieceMeasurements:
    """Clearance towards either margin, depth and orientation of one piece."""

    deep: Measurement
    lateral: Measurement
    depth: Measurement
    orientation: Measurement
    outline: Outline
    strays: int = 0  # Regions of tumour that did not count

    @property
    def sentences(self) -> tuple[str, ...]:
        """Each measurement with its unit, or why there is none; the purpose last."""
        return sentences_of((self.deep, self.lateral, self.depth), self.orientation, self.strays)


def measure_piece(
    regions: Regions,
    outline: Outline,
    schema: LabelSchema,
    *,
    touches_edge: bool = False,
    present: Collection[str] | None = None,
) -> PieceMeasurements:
    """Measure a piece by its regions and its outline; ``touches_edge`` says that the scan cuts it off.

    Of cancers that are not ``present`` only what lies near those that are counts as tumour; all are, if None.
    """
    table, known = regions.table, [name for name in CANCERS if name in schema.names]
    cancers = np.isin(table.tissue, [schema.index(name) for name in known])
    pixels, region = regions.borders(cancers)
    held = np.zeros(len(table), dtype=bool)
    held[region[outline.holds(pixels)]] = True
    loose = cancers & ~held  # beside the body of the piece
    # Specks beside the body, as in keratin, are strays however near: they have no depth, and no margin.
    specks = loose & (table.area_mm2 < SMALLEST_REGION_MM2)
    tumour = tumour_of(regions, schema, CANCERS, present, specks)
    in_situ = [schema.index(name) for name in known if name not in INVASIVE]
    # All of the tumour invades, where no region is of another cancer.
    invasive = replace(tumour, known=len(known) > len(in_situ))
    if np.isin(table.tissue, in_situ).any():
        invasive = tumour_of(regions, schema, INVASIVE, present, specks)
    return PieceMeasurements(
        *_clearances(outline, tumour, touches_edge, apart=bool(loose[tumour.counts].any())),
        _depth(outline, invasive, touches_edge, apart=bool(loose[invasive.counts].any())),
        _orientation(outline),
        outline,
        tumour.strays,
    )


def _not_assessed(name: str, reason: str, unit: str = "mm") -> Measurement:
    return Measurement(name, None, unit, reason)


def _clearances(
    outline: Outline, tumour: Tumour, touches_edge: bool, *, apart: bool
) -> tuple[Measurement, Measurement]:
    """Deep and lateral."""
    obstacles = (
        (NO_TUMOUR_CLASSES, not tumour.known),
        (outline.reason, bool(outline.reason)),
        (SCAN_EDGE, touches_edge),
        (FRAGMENTED, outline.fragments > 1),
        (NO_MARGIN, bool(outline.is_surface.all())),
        (tumour.missing(NO_TUMOUR), not len(tumour.rim)),
        (ELSEWHERE, apart),
    )
    reason = next((reason for reason, holds in obstacles if holds), "")
    if reason:
        return _not_assessed(DEEP, reason), _not_assessed(LATERAL, reason)
    deep, cut = _is_deep(outline), ~outline.is_surface
    return (
        _smallest_distance(DEEP, tumour.rim, outline, deep & cut),
        _smallest_distance(LATERAL, tumour.rim, outline, ~deep & cut),
    )


def _is_deep(outline: Outline) -> Where:
    """(n,) sides of the deep margin; those of the surface are False."""
    surface, cut = np.flatnonzero(outline.is_surface), outline.cut_order
    sides_um = outline.sides * outline.scale_um
    _, nearest = nearest_of(sides_um[surface], sides_um[cut])
    facing = outline.normals[surface[nearest]]
    away = -(outline.normals[cut] * facing).sum(axis=1) >= math.cos(math.radians(DEEP_WITHIN_DEG))
    width = max(int(DEEP_RUN_UM / float(outline.step_um.mean())), 1)
    lasting = np.flatnonzero(ndimage.binary_opening(away, np.ones(width)))
    deep = np.zeros(len(outline.sides), dtype=bool)
    if lasting.size:
        # Both ends stay lateral, be it only the tip of a piece that tapers.
        deep[cut[max(int(lasting[0]), 1) : min(int(lasting[-1]) + 1, len(cut) - 1)]] = True
    return deep


def _smallest_distance(name: str, tumour: Ints, outline: Outline, margin: Where) -> Measurement:
    if not margin.any():
        return _not_assessed(name, f"the outline has no {name.split(maxsplit=1)[0]} margin")
    outside = outline.outer[margin]
    distances_um, beyond = nearest_of(outside * outline.scale_um, tumour * outline.scale_um)
    nearest = distances_um.argmin()
    start, end = tumour[nearest], outside[beyond[nearest]]
    between = (end - start).astype(np.float64)
    # One pixel of the outline along this very line: of a mask that was thinned, the edge is known no better.
    pixel_um = float(np.hypot(*(between / max(float(np.hypot(*between)), 1e-9) * outline.step_um)))
    # Rounded, so that a margin that the tumour reaches is exactly 0.
    return Measurement(
        name, max(0.0, round(float(distances_um[nearest]) - pixel_um, 6)) / 1000.0, line=(_point(start), _point(end))
    )


def _point(at: Ints | Floats) -> tuple[float, float]:
    return float(at[0]), float(at[1])


def _depth(outline: Outline, tumour: Tumour, touches_edge: bool, *, apart: bool) -> Measurement:
    reason = outline.reason or (SCAN_EDGE if touches_edge else tumour.missing(NOTHING_INVADES))
    if not tumour.known or reason:
        return _not_assessed(DEPTH, reason if tumour.known else NO_TUMOUR_CLASSES)
    if apart:
        return _not_assessed(DEPTH, ELSEWHERE)
    surface = outline.surface
    depth_um, deepest, above = farthest(surface * outline.scale_um, tumour.inside, outline.scale_um)
    return Measurement(DEPTH, depth_um / 1000.0, line=(_point(surface[above]), _point(deepest)))


def _orientation(outline: Outline) -> Measurement:
    """The image rotated anticlockwise by the value has the surface up; the line joins the ends of the surface."""
    if outline.reason:
        return _not_assessed(ORIENTATION, outline.reason, "degrees")
    surface = outline.surface
    steps = np.diff(surface * outline.scale_um, axis=0)
    across = np.stack([-steps[:, 1], steps[:, 0]], axis=1)
    if float(across.sum(axis=0) @ outline.normals[outline.is_surface].sum(axis=0)) < 0:
        across = -across
    normals, lengths = mean_directions(across, outline.step_um, mode="nearest"), np.hypot(*steps.T)
    mean = (normals * lengths[:, None]).sum(axis=0)
    if float(np.hypot(*mean)) / float(lengths.sum()) < LEAST_AGREEMENT:
        return _not_assessed(ORIENTATION, ALL_AROUND, "degrees")
    seen = np.maximum(normals @ (mean / np.hypot(*mean)), 0.0)
    row, column = (normals * (lengths * seen)[:, None]).sum(axis=0).tolist()
    degrees = math.degrees(math.atan2(column, -row)) % 360.0
    return Measurement(ORIENTATION, degrees, "degrees", line=(_point(surface[0]), _point(surface[-1])))


def sentences_of(lengths: Sequence[Measurement], facing: Measurement, strays: int = 0) -> tuple[str, ...]:
    """Each with its unit, or why there is none; the purpose last. ``strays`` regions of tumour did not count."""
    texts = [str(one) for one in (*lengths, facing)]
    lines = [f"{text[0].upper()}{text[1:]}." for text in texts]
    if facing.value is not None:
        lines[-1] = f"The skin surface faces {whole_degrees(facing.value)} clockwise from the top of the picture."
    if strays:
        reason = "too small or too unsure, and far from any larger part"
        lines.append(f"{counted(strays, 'stray spot')} of tumour did not count for clearance: {reason}.")
    return (*lines, f"These numbers are {PURPOSE}.")
