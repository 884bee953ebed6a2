"""Clearance: the least distance from tumour to the margin that the knife made, deep and lateral apart.

Distances run between the middles of pixels, less one pixel, as neighbours lie one pixel apart although nothing lies
between them: a tumour that the cut goes through has a clearance of 0. The natural surface, tears, holes and loose bits
are no margin, and stray specks of tumour do not count. The margin is *lateral* from either end of the surface to where
it first faces away from the surface nearest to it (within ``DEEP_WITHIN_DEG``, over at least ``DEEP_RUN_UM``); what
lies between is *deep*. Where a piece tapers, as a shave does, its tips are the lateral margin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.analysis.cancers import NO_TUMOUR_CLASSES, Tumour, tumour_of
from ntrm.analysis.measured import FRAGMENTED, SCAN_EDGE, Measured, not_assessed
from ntrm.analysis.nearest import extreme_of, nearest_of
from ntrm.analysis.outline import Outline, trace_outline
from ntrm.analysis.regions import scan_mask
from ntrm.core.labels import CANCERS, LabelSchema, Mask
from ntrm.core.mpp import Resolution

DEEP_WITHIN_DEG = 45.0
DEEP_RUN_UM = 300.0

NO_TUMOUR = "no tumour in the piece"
NO_MARGIN = "margin not identifiable: no stretch of the outline was cut"

DEEP, LATERAL = "deep clearance", "lateral clearance"


@dataclass(frozen=True)
class Clearance:
    """Clearance towards the deep and the lateral margin."""

    deep: Measured
    lateral: Measured

    @property
    def least(self) -> Measured:
        """The smaller of the two."""
        known = [part for part in (self.deep, self.lateral) if part.value is not None]
        return min(known, key=lambda part: part.value or 0.0) if known else self.deep

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"deep": self.deep.as_dict(), "lateral": self.lateral.as_dict()}


def clearance(
    mask: Mask,
    schema: LabelSchema,
    resolution: Resolution,
    *,
    touches_edge: bool = False,
    tumours: tuple[str, ...] = CANCERS,
) -> Clearance:
    """Clearance of the tumours in one piece; ``touches_edge`` says that the scan cuts it off."""
    around, regions = trace_outline(mask, schema, resolution), scan_mask(mask, schema, resolution)
    return clearance_of(around, tumour_of(regions, schema, tumours), touches_edge=touches_edge)


def clearance_of(around: Outline, tumour: Tumour, *, touches_edge: bool = False) -> Clearance:
    """The same, given the outline and the tumour."""
    reason = _obstacle(around, tumour, touches_edge)
    if reason:
        return Clearance(not_assessed(DEEP, reason), not_assessed(LATERAL, reason))
    deep = is_deep(around)
    return Clearance(
        _least(DEEP, tumour.rim, around, deep & ~around.is_surface),
        _least(LATERAL, tumour.rim, around, ~deep & ~around.is_surface),
    )


def _obstacle(around: Outline, tumour: Tumour, touches_edge: bool) -> str:
    checks = (
        (NO_TUMOUR_CLASSES, not tumour.known),
        (around.reason, bool(around.reason)),
        (SCAN_EDGE, touches_edge),
        (FRAGMENTED, around.fragments > 1),
        (NO_MARGIN, bool(around.is_surface.all())),
        (tumour.missing(NO_TUMOUR), not len(tumour.rim)),
    )
    return next((reason for reason, holds in checks if holds), "")


def is_deep(around: Outline) -> NDArray[np.bool_]:
    """(n,) sides of the deep margin; those of the surface are False."""
    surface, cut = np.flatnonzero(around.is_surface), around.cut_order
    places = around.sides * around.scale_um
    _, nearest = nearest_of(places[surface], places[cut])
    facing = around.normals[surface[nearest]]
    away = -(around.normals[cut] * facing).sum(axis=1) >= math.cos(math.radians(DEEP_WITHIN_DEG))
    width = max(int(DEEP_RUN_UM / float(around.step_um.mean())), 1)
    lasting = np.flatnonzero(ndimage.binary_opening(away, np.ones(width)))
    deep = np.zeros(len(around.sides), dtype=bool)
    if lasting.size:
        # Both ends stay lateral, be it only the tip of a piece that tapers.
        deep[cut[max(int(lasting[0]), 1) : min(int(lasting[-1]) + 1, len(cut) - 1)]] = True
    return deep


def _least(name: str, tumour: NDArray[np.int64], around: Outline, margin: NDArray[np.bool_]) -> Measured:
    if not margin.any():
        return not_assessed(name, f"the outline has no {name.split(maxsplit=1)[0]} margin")
    outside = around.outer[margin]
    least_um, at, beyond = extreme_of(outside * around.scale_um, tumour * around.scale_um, largest=False)
    start, end = tumour[at], outside[beyond]
    between = (end - start).astype(np.float64)
    # One pixel along this very line.
    pixel_um = float(np.hypot(*(between / max(float(np.hypot(*between)), 1e-9) * around.scale_um)))
    value_mm = max(least_um - pixel_um, 0.0) / 1000.0
    return Measured(name, value_mm, line=(_point(start), _point(end)))


def _point(at: NDArray[np.int64]) -> tuple[float, float]:
    return float(at[0]), float(at[1])
