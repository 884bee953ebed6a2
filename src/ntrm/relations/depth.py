"""Depth of invasion: how far below the natural surface an invasive tumour reaches.

The greatest distance, over the pixels of BCC and SCC, to the nearest pixel above the surface; keratin is above it.
Carcinoma in situ (IEC) does not invade.
"""

from __future__ import annotations

import numpy as np

from ntrm.labels import LabelSchema, Mask
from ntrm.relations.margins import NO_TUMOUR_CLASSES, outline_pixels
from ntrm.relations.measured import SCAN_EDGE, Measured, not_assessed
from ntrm.relations.outline import Outline, trace_outline
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
) -> Measured:
    """Depth of the deepest invasive tumour in one piece; ``touches_edge`` says that the scan cuts it off."""
    from scipy.spatial import cKDTree

    around = trace_outline(mask, schema, resolution) if outline is None else outline
    tumour = outline_pixels(mask, schema, invasive)
    if not set(invasive) & set(schema.names):
        return not_assessed(NAME, NO_TUMOUR_CLASSES)
    if around.reason or touches_edge or not len(tumour):
        return not_assessed(NAME, around.reason or (SCAN_EDGE if touches_edge else NOTHING_INVADES))
    surface = around.surface
    distances, nearest = cKDTree(surface * around.scale_um).query(tumour * around.scale_um)
    at = int(np.argmax(distances))
    (row, column), (up, across) = tumour[at].tolist(), surface[nearest[at]].tolist()
    return Measured(NAME, float(distances[at]) / 1000.0, line=((up, across), (row, column)))
