"""Everything that is measured on one piece, its outline traced once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ntrm.labels import CANCERS, LabelSchema, Mask
from ntrm.relations.depth import INVASIVE, invasion_depth
from ntrm.relations.margins import Clearance, clearance
from ntrm.relations.measured import PURPOSE, Measured
from ntrm.relations.orientation import orientation
from ntrm.relations.outline import Outline, trace_outline
from ntrm.relations.runs import runs_of
from ntrm.relations.tumour import find_tumour
from ntrm.resolution import Resolution


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
    around = trace_outline(mask, schema, resolution) if outline is None else outline
    runs = runs_of(mask)
    tumour, invasive = (find_tumour(runs, schema, resolution, names, present) for names in (CANCERS, INVASIVE))
    return PieceMeasurements(
        clearance(mask, schema, resolution, touches_edge=touches_edge, outline=around, tumour=tumour),
        invasion_depth(mask, schema, resolution, touches_edge=touches_edge, outline=around, tumour=invasive),
        orientation(mask, schema, resolution, outline=around),
        around,
        tumour.strays,
    )
