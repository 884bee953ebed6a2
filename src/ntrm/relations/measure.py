"""Everything that is measured on one piece, its outline traced once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ntrm.core.labels import CANCERS, LabelSchema, Mask
from ntrm.core.mpp import Resolution
from ntrm.relations.depth import INVASIVE, depth_of
from ntrm.relations.margins import Clearance, clearance_of
from ntrm.relations.measured import PURPOSE, Measured
from ntrm.relations.orientation import orientation_of
from ntrm.relations.outline import Outline, check_mask, trace_outline
from ntrm.relations.survey import Survey, survey_mask
from ntrm.relations.tumour import tumour_of


@dataclass(frozen=True, eq=False)
class PieceMeasurements:
    """Clearance, depth and orientation of one piece."""

    clearance: Clearance
    depth: Measured
    orientation: Measured
    outline: Outline
    strays: int = 0
    """Parts of tumour that did not count."""

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
    return measurements(survey_mask(mask, schema, resolution), around, touches_edge=touches_edge, present=present)


def measurements(
    survey: Survey, outline: Outline, *, touches_edge: bool = False, present: Collection[str] | None = None
) -> PieceMeasurements:
    """The same of a piece that was surveyed and whose outline was traced."""
    tumour, invasive = (tumour_of(survey, names, present) for names in (CANCERS, INVASIVE))
    return PieceMeasurements(
        clearance_of(outline, tumour, touches_edge=touches_edge),
        depth_of(outline, invasive, touches_edge=touches_edge),
        orientation_of(outline),
        outline,
        tumour.strays,
    )
