"""Everything that is measured on one piece, its outline traced once; also in plain words."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ntrm.analysis.cancers import tumour_of
from ntrm.analysis.depth import INVASIVE, depth_of
from ntrm.analysis.margins import Clearance, clearance_of
from ntrm.analysis.measured import PURPOSE, Measured
from ntrm.analysis.orientation import orientation_of
from ntrm.analysis.outline import Outline, check_mask, trace_outline
from ntrm.analysis.regions import Regions, scan_mask
from ntrm.core.labels import CANCERS, LabelSchema, Mask
from ntrm.core.mpp import Resolution


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
