"""Everything that is measured on one piece, its outline traced once: clearance, depth of invasion, orientation.

The greatest distance, over the pixels of BCC and SCC, to the nearest pixel above the surface; keratin is above it.
Carcinoma in situ (IEC) does not invade; specks do not count.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.analysis.cancers import NO_TUMOUR_CLASSES, Tumour, tumour_of
from ntrm.analysis.margins import Clearance, clearance_of
from ntrm.analysis.measured import PURPOSE, SCAN_EDGE, Measured, not_assessed
from ntrm.analysis.nearest import extreme_of
from ntrm.analysis.outline import SMOOTH_UM, Outline, check_mask, trace_outline
from ntrm.analysis.regions import Regions, scan_mask
from ntrm.core.labels import CANCERS, LabelSchema, Mask
from ntrm.core.mpp import Resolution

INVASIVE = ("BCC", "SCC")
NOTHING_INVADES = "no invasive tumour in the piece"
DEPTH = "depth of invasion"


def invasion_depth(
    mask: Mask,
    schema: LabelSchema,
    resolution: Resolution,
    *,
    touches_edge: bool = False,
    invasive: tuple[str, ...] = INVASIVE,
) -> Measured:
    """Depth of the deepest invasive tumour in one piece; ``touches_edge`` says that the scan cuts it off."""
    around, regions = trace_outline(mask, schema, resolution), scan_mask(mask, schema, resolution)
    return depth_of(around, tumour_of(regions, schema, invasive), touches_edge=touches_edge)


def depth_of(around: Outline, tumour: Tumour, *, touches_edge: bool = False) -> Measured:
    """The same, given the outline and the invasive tumour."""
    if not tumour.known:
        return not_assessed(DEPTH, NO_TUMOUR_CLASSES)
    reason = around.reason or (SCAN_EDGE if touches_edge else tumour.missing(NOTHING_INVADES))
    if reason:
        return not_assessed(DEPTH, reason)
    surface = around.surface
    depth_um, at, above = extreme_of(surface * around.scale_um, tumour.rim * around.scale_um, largest=True)
    (row, column), (up, across) = tumour.rim[at].tolist(), surface[above].tolist()
    return Measured(DEPTH, depth_um / 1000.0, line=((up, across), (row, column)))


# Orientation: where the skin surface faces, and so by which angle to turn the picture to put the surface up.
#
# The direction is that of the mean outward normal along the surface: 0° faces the top of the picture, 90° its right
# side, clockwise. A stretch weighs by its length as seen from that side: the flanks of a bulge count no more than the
# skin that it stands on. (By plain length the normals would add up to the normal of the line between the surface's
# ends, so that half a bulge at a cut would turn the whole piece.)


ORIENTATION = "orientation"
ALL_AROUND = "the surface faces all sides: none is up"
LEAST_AGREEMENT = 0.2
"""Length of the mean of unit normals below which they agree on no side; a half circle has 0.64."""


def orientation(mask: Mask, schema: LabelSchema, resolution: Resolution) -> Measured:
    """Degrees from the top of the picture, clockwise, in which the surface faces.

    The picture turned anticlockwise by as much has the surface up. The line runs from one end of the surface to the
    other.
    """
    return orientation_of(trace_outline(mask, schema, resolution))


def orientation_of(around: Outline) -> Measured:
    """The same, given the outline."""
    if around.reason:
        return not_assessed(ORIENTATION, around.reason, "degrees")
    places = around.surface
    normals, lengths = _normals(places * around.scale_um, around)
    mean = (normals * lengths[:, None]).sum(axis=0)
    agreement = float(np.hypot(*mean)) / float(lengths.sum())
    if agreement < LEAST_AGREEMENT:
        return not_assessed(ORIENTATION, ALL_AROUND, "degrees")
    seen = np.maximum(normals @ (mean / np.hypot(*mean)), 0.0)
    row, column = (normals * (lengths * seen)[:, None]).sum(axis=0).tolist()
    ends = tuple((float(at[0]), float(at[1])) for at in (places[0], places[-1]))
    return Measured(ORIENTATION, math.degrees(math.atan2(column, -row)) % 360.0, "degrees", line=(ends[0], ends[1]))


def _normals(places_um: NDArray[np.float64], around: Outline) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Outward unit normals of the steps along the surface, smoothed, and the lengths of the steps in µm."""
    steps = np.diff(places_um, axis=0)
    across = np.stack([-steps[:, 1], steps[:, 0]], axis=1)
    if float(across.sum(axis=0) @ around.normals[around.is_surface].sum(axis=0)) < 0:
        across = -across
    width = max(int(SMOOTH_UM / float(around.step_um.mean())), 1)
    smooth = ndimage.uniform_filter1d(across, min(width, len(across)), axis=0, mode="nearest")
    length = np.hypot(*smooth.T)[:, None]
    unit = np.divide(smooth, length, out=np.zeros_like(smooth), where=length > 0)
    return unit, np.hypot(*steps.T)


# Everything that is measured on one piece, its outline traced once; also in plain words.


@dataclass(frozen=True, eq=False)
class PieceMeasurements:
    """Clearance, depth and orientation of one piece."""

    clearance: Clearance
    depth: Measured
    orientation: Measured
    outline: Outline
    strays: int = 0
    """Regions of tumour that did not count."""

    def as_dict(self) -> dict[str, Any]:
        """For ``summary.json``."""
        return {
            "clearance": self.clearance.as_dict(),
            "invasion_depth": self.depth.as_dict(),
            "orientation": self.orientation.as_dict(),
            "purpose": PURPOSE,
        }

    def columns(self) -> dict[str, float | str | None]:
        """For ``pieces.csv``: a column with the unit in its name, and one for the reason where there is no value."""
        return {
            "deep_clearance_mm": self.clearance.deep.value,
            "deep_clearance_reason": self.clearance.deep.reason,
            "lateral_clearance_mm": self.clearance.lateral.value,
            "lateral_clearance_reason": self.clearance.lateral.reason,
            "invasion_depth_mm": self.depth.value,
            "invasion_depth_reason": self.depth.reason,
            "orientation_deg": self.orientation.value,
            "orientation_reason": self.orientation.reason,
        }


def measure_piece(
    mask: Mask,
    schema: LabelSchema,
    resolution: Resolution,
    *,
    touches_edge: bool = False,
    present: Collection[str] | None = None,
    outline: Outline | None = None,
) -> PieceMeasurements:
    """Measure the piece in ``mask``; ``touches_edge`` says that the scan cuts it off.

    Of cancers that are not ``present`` only what lies near those that are counts as tumour; all are, if None.
    """
    check_mask(mask, schema)
    around = trace_outline(mask, schema, resolution) if outline is None else outline
    regions = scan_mask(mask, schema, resolution)
    return measurements(regions, around, schema, touches_edge=touches_edge, present=present)


def measurements(
    regions: Regions,
    outline: Outline,
    schema: LabelSchema,
    *,
    touches_edge: bool = False,
    present: Collection[str] | None = None,
) -> PieceMeasurements:
    """The same of a piece whose regions were found and whose outline was traced."""
    tumour, invasive = (tumour_of(regions, schema, names, present) for names in (CANCERS, INVASIVE))
    return PieceMeasurements(
        clearance_of(outline, tumour, touches_edge=touches_edge),
        depth_of(outline, invasive, touches_edge=touches_edge),
        orientation_of(outline),
        outline,
        tumour.strays,
    )


def measurement_sentences(measured: PieceMeasurements) -> tuple[str, ...]:
    """Each measurement with its unit, or why there is none; the purpose last."""
    parts = (measured.clearance.deep, measured.clearance.lateral, measured.depth)
    lines = [_sentence(part) for part in parts]
    facing = measured.orientation
    if facing.value is None:
        lines.append(_sentence(facing))
    else:
        lines.append(f"The skin surface faces {facing.value:.0f}° clockwise from the top of the picture.")
    if measured.strays:
        lines.append(_strays(measured.strays))
    return (*lines, f"These numbers are {PURPOSE}.")


def _strays(count: int) -> str:
    some = "1 stray spot" if count == 1 else f"{count} stray spots"
    return f"{some} of tumour did not count for clearance: too small or too unsure, and far from any larger part."


def _sentence(part: Measured) -> str:
    text = str(part)
    return f"{text[0].upper()}{text[1:]}."
