"""Where the tumour ends: the pixels from which clearance and depth are measured. Strays count for nothing.

A connected part (8 neighbours) of one cancer is *firm* if it is no speck, that is not smaller than
``SMALLEST_REGION_MM2``, and if its cancer is present, both by the rule of ``ntrm.evaluation.cancers``. What is not firm
but lies near a firm part is a nest cut at its tip and counts; what lies further off is a *stray*: a few wrong pixels of
a predicted mask must not decide a clearance. In the predicted masks of 30 drawn sections 350 of 410 specks within
``NEST_UM`` of a larger part were tumour in truth, and 2 of 55 beyond; of 249 specks in true masks 248 lie within.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.evaluation.cancers import SMALLEST_REGION_MM2
from ntrm.relations.nearest import nearest_of
from ntrm.relations.runs import Runs
from ntrm.relations.survey import Survey, Surveyor

Points = NDArray[np.float64]
Ints = NDArray[np.int64]
Where = NDArray[np.bool_]

NEST_UM = 250.0
"""What is not firm and further than this from all firm parts is a stray."""

NO_TUMOUR_CLASSES = "the classes know no tumour"
ONLY_STRAYS = f"too little tumour to go by: below {SMALLEST_REGION_MM2:g} mm² each, or too unsure to call it present"


@dataclass(frozen=True, eq=False)
class Tumour:
    """The tumour of one piece."""

    rim: Ints
    """(n, 2) row and column of the pixels that touch anything else."""
    strays: int
    """Parts that were left out."""
    known: bool = True
    """Whether the schema has any of the classes."""

    def missing(self, otherwise: str) -> str:
        """Why there is nothing to measure from; empty where there is."""
        if len(self.rim):
            return ""
        return ONLY_STRAYS if self.strays else otherwise


def find_tumour(
    mask: Runs,
    schema: LabelSchema,
    resolution: Resolution,
    names: tuple[str, ...],
    present: Collection[str] | None = None,
) -> Tumour:
    """The tumour of the classes ``names``, of which those ``present`` have firm parts; all, if None."""
    surveyor = Surveyor(mask.shape[1], schema, names)
    surveyor.add_runs(mask)
    return tumour_of(surveyor.survey(resolution), names, present)


def tumour_of(survey: Survey, names: tuple[str, ...], present: Collection[str] | None = None) -> Tumour:
    """The same of a piece that was surveyed, with the sides of these classes."""
    schema, regions = survey.schema, survey.regions
    wanted = [schema.index(name) for name in names if name in schema.names]
    sure = [schema.index(name) for name in schema.names if present is None or name in present]
    ours = np.isin(regions.tissue, wanted)
    firm = ours & np.isin(regions.tissue, sure) & (regions.area_mm2 >= SMALLEST_REGION_MM2)
    counts = firm | _nests(survey, firm, ours & ~firm)
    return Tumour(survey.rim(counts), int(ours.sum()) - int(counts.sum()), bool(wanted))


def _nests(survey: Survey, firm: Where, others: Where) -> Where:
    """(R,) which of the ``others`` are near a firm part."""
    near = np.zeros(len(firm), dtype=bool)
    if not (firm.any() and others.any()):
        return near
    step = np.array([survey.resolution.y, survey.resolution.x])
    sides = survey.sides
    specks = np.flatnonzero(others[sides.region])
    _, first = np.unique(sides.pixel[specks], return_index=True)
    specks = specks[first]
    places = survey.places(sides.pixel[specks]) * step
    distances, _ = nearest_of(survey.rim(firm) * step, places, within=NEST_UM)
    near[sides.region[specks[distances <= NEST_UM]]] = True
    return near
