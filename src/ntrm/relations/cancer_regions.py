"""The regions of cancers in a piece that was surveyed, as the rule of ``ntrm.evaluation.cancers`` wants them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ntrm.core.labels import CANCERS

# The rule itself, below what looks for regions in a mask that is held as a whole.
from ntrm.evaluation.cancers import SMALLEST_REGION_MM2, CancerFinding, Regions, finding_of
from ntrm.relations.survey import BACKGROUND, DOWN, LEFT, NOTHING, RIGHT, UP, Survey


def cancers_of(survey: Survey) -> tuple[CancerFinding, ...]:
    """What ``cancer_types`` says of the same mask: a finding for each cancer that its schema knows."""
    schema = survey.schema
    contacts_um = _contacts(survey)
    known = [name for name in CANCERS if name in schema.names]
    return tuple(finding_of(name, _regions(survey, schema.index(name), contacts_um), schema) for name in known)


def _regions(survey: Survey, tissue: int, contacts_um: NDArray[np.float64]) -> Regions:
    table = survey.regions
    own = np.flatnonzero(table.tissue == tissue)
    areas = table.area_mm2[own]
    counts = areas >= SMALLEST_REGION_MM2
    sure = np.ones(len(own)) if table.confidence is None else table.confidence[own]
    return Regions(
        areas_mm2=areas[counts],
        confidences=sure[counts],
        contacts_um=contacts_um[own[counts]],
        specks=int((~counts).sum()),
        specks_mm2=float(areas[~counts].sum()),
    )


def _contacts(survey: Survey) -> NDArray[np.float64]:
    """(R, K) µm of boundary of each region of a cancer with each class around it; nothing and the edge are none."""
    classes, sides = len(survey.schema), survey.sides
    tissue = np.append(survey.regions.tissue, [-1, -1])
    tissue[BACKGROUND] = -1 if survey.schema.background_index is None else survey.schema.background_index
    lengths = np.zeros(len(survey.regions) * classes)
    for way, side_um in (
        (RIGHT, survey.resolution.y),
        (LEFT, survey.resolution.y),
        (DOWN, survey.resolution.x),
        (UP, survey.resolution.x),
    ):
        chosen = (sides.way == way) & (sides.beyond != NOTHING)
        code = sides.region[chosen].astype(np.int64) * classes + tissue[sides.beyond[chosen]]
        lengths += np.bincount(code, minlength=lengths.size) * side_um
    return lengths.reshape(-1, classes)
