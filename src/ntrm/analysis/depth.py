"""Depth of invasion: how far below the natural surface an invasive tumour reaches.

The greatest distance, over the pixels of BCC and SCC, to the nearest pixel above the surface; keratin is above it.
Carcinoma in situ (IEC) does not invade; specks do not count.
"""

from __future__ import annotations

from ntrm.analysis.cancers import NO_TUMOUR_CLASSES, Tumour, tumour_of
from ntrm.analysis.measured import SCAN_EDGE, Measured, not_assessed
from ntrm.analysis.nearest import extreme_of
from ntrm.analysis.outline import Outline, trace_outline
from ntrm.analysis.regions import scan_mask
from ntrm.core.labels import LabelSchema, Mask
from ntrm.core.mpp import Resolution

INVASIVE = ("BCC", "SCC")
NOTHING_INVADES = "no invasive tumour in the piece"
NAME = "depth of invasion"


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
        return not_assessed(NAME, NO_TUMOUR_CLASSES)
    reason = around.reason or (SCAN_EDGE if touches_edge else tumour.missing(NOTHING_INVADES))
    if reason:
        return not_assessed(NAME, reason)
    surface = around.surface
    depth_um, at, above = extreme_of(surface * around.scale_um, tumour.rim * around.scale_um, largest=True)
    (row, column), (up, across) = tumour.rim[at].tolist(), surface[above].tolist()
    return Measured(NAME, depth_um / 1000.0, line=((up, across), (row, column)))
