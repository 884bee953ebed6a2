"""Depth of invasion: how far below the natural surface an invasive tumour reaches.

The greatest distance, over the pixels of BCC and SCC, to the nearest pixel above the surface; keratin is above it.
Carcinoma in situ (IEC) does not invade; specks do not count.
"""

from __future__ import annotations

import numpy as np

from ntrm.labels import LabelSchema, Mask
from ntrm.relations.measured import SCAN_EDGE, Measured, not_assessed
from ntrm.relations.outline import Outline, trace_outline
from ntrm.relations.runs import runs_of
from ntrm.relations.tumour import NO_TUMOUR_CLASSES, Tumour, find_tumour, nearest_of
from ntrm.resolution import Resolution

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
    outline: Outline | None = None,
    tumour: Tumour | None = None,
) -> Measured:
    """Depth of the deepest invasive tumour in one piece; ``touches_edge`` says that the scan cuts it off."""
    around = trace_outline(mask, schema, resolution) if outline is None else outline
    found = find_tumour(runs_of(mask), schema, resolution, invasive) if tumour is None else tumour
    if not found.known:
        return not_assessed(NAME, NO_TUMOUR_CLASSES)
    reason = around.reason or (SCAN_EDGE if touches_edge else found.missing(NOTHING_INVADES))
    if reason:
        return not_assessed(NAME, reason)
    surface = around.surface
    distances, nearest = nearest_of(surface * around.scale_um, found.rim * around.scale_um)
    at = int(np.argmax(distances))
    (row, column), (up, across) = found.rim[at].tolist(), surface[nearest[at]].tolist()
    return Measured(NAME, float(distances[at]) / 1000.0, line=((up, across), (row, column)))
