"""Pieces so simple that everything about them can be told by hand."""

import math

import numpy as np

from ntrm.core.labels import IGNORE, SKIN
from ntrm.regions.measure import measure_piece
from ntrm.regions.outline import trace_outline
from ntrm.regions.regions import scan_mask

EPI, GLD, INF, RET, FOL, PAP, HYP, KER, BKG, BCC, SCC, IEC = range(len(SKIN))
TOP, BOTTOM, LEFT, RIGHT = 20, 90, 15, 165  # First row and column of the block of skin, and those after its last


def block(nothing=IGNORE):
    """Dermis under 4 rows of epidermis under 5 of keratin; cut at the sides and below."""
    mask = np.full((110, 180), nothing, dtype=np.uint8)
    mask[TOP:BOTTOM, LEFT:RIGHT] = RET
    mask[TOP : TOP + 4, LEFT:RIGHT] = EPI
    mask[TOP - 5 : TOP, LEFT:RIGHT] = KER
    return mask


def measured(mask, schema, resolution, **more):
    """What is measured of the piece in a mask."""
    regions = scan_mask(mask, schema, resolution)
    return measure_piece(regions, trace_outline(regions.runs, schema, resolution), schema, **more)


def least_of(found):
    """The smaller clearance, or one that says why there is none."""
    return min(found.deep, found.lateral, key=lambda each: math.inf if each.value is None else each.value)


def far_apart(points, others, scale):
    """(n, m) distances in µm, the literal way."""
    gaps = (np.asarray(points)[:, None] - np.asarray(others)[None]) * np.asarray(scale)
    return np.sqrt((gaps**2).sum(axis=2))
