"""The cancers of a piece: which are present, by the rule of ``ntrm.regions.cancer_rule``, and where the tumour ends.

Clearance and depth are measured from the pixels at the tumour's rim. A region of a cancer is *firm* if it is not
smaller than ``SMALLEST_REGION_MM2`` (a speck) and its cancer is present. What is not firm but lies within ``NEST_UM``
of a firm region is a nest cut at its tip and counts. What lies further off is a *stray* and does not count: a few wrong
pixels of a predicted mask must not decide a clearance. How this was chosen: docs/results/measurements.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Ints, plain_array
from ntrm.core.labels import CANCERS, LabelSchema, pixel_counts
from ntrm.core.mpp import Resolution
from ntrm.regions.cancer_rule import SMALLEST_REGION_MM2, CancerFinding, CancerRegions, finding_of
from ntrm.regions.nearest import nearest_of
from ntrm.regions.region_table import RegionTable
from ntrm.regions.regions import Regions, checked_confidence, scan_mask
from ntrm.regions.runs import RunLengths, Where

NEST_UM = 250.0
CONFIRMED = 0.5  # A region is a person's word if a person named, or accepted, this fraction of it

NO_TUMOUR_CLASSES = f"no class is called {', '.join(CANCERS[:-1])} or {CANCERS[-1]}"
ONLY_STRAYS = f"too little tumour to go by: below {SMALLEST_REGION_MM2:g} mm² each, or too unsure to call it present"


@dataclass(frozen=True, eq=False)
class Tumour:
    """The tumour of one piece."""

    counts: Where  # (R,) which regions of the piece it consists of
    inside: RunLengths  # Where it is
    rim: Ints  # (n, 2) row and column of the pixels that touch anything else
    strays: int  # Regions that do not count
    known: bool = True  # Whether the schema has any of the classes

    def missing(self, otherwise: str) -> str:
        """Why there is nothing to measure from; empty where there is something."""
        if len(self.rim):
            return ""
        return ONLY_STRAYS if self.strays else otherwise


def cancer_types(
    mask: NDArray[np.integer[Any]], confidence: NDArray[np.floating] | None, schema: LabelSchema, resolution: Resolution
) -> tuple[CancerFinding, ...]:
    """Findings for each cancer among the classes of ``schema``; none for a schema without cancers.

    ``confidence`` is the probability of the class in ``mask`` at each pixel; None for ground truth, which is certain.

    >>> from ntrm.core.labels import SKIN
    >>> mask = np.full((30, 30), SKIN.index("RET"))
    >>> mask[5:25, 5:25] = SKIN.index("BCC")
    >>> finding = cancer_types(mask, None, SKIN, Resolution.square(6.7))[0]
    >>> finding.name, finding.present, finding.reason
    ('BCC', True, '0.018 mm² in 1 region, mean confidence 1.00, mostly beside RET')
    """
    mask = plain_array("the mask", mask)
    if confidence is not None:
        confidence = checked_confidence(confidence, mask)
    if not set(CANCERS) & set(schema.names):
        return ()
    pixel_counts(mask, len(schema))  # refuses what would become another label as a byte
    return cancers_of(scan_mask(mask.astype(np.uint8), schema, resolution, confidence=confidence).table, schema)


def cancers_of(table: RegionTable, schema: LabelSchema, among: Where | None = None) -> tuple[CancerFinding, ...]:
    """The same from a table of regions, or from some ``among`` them (R,)."""
    lengths_um = table.lengths_um(schema)
    known = [name for name in CANCERS if name in schema.names]
    chosen = np.ones(len(table), dtype=bool) if among is None else among
    found = {name: np.flatnonzero((table.tissue == schema.index(name)) & chosen) for name in known}
    return tuple(finding_of(name, _of_cancer(table, own, lengths_um), schema) for name, own in found.items())


def confirmed_regions(table: RegionTable) -> Where:
    """(R,) regions of which a person named, or accepted, at least half; none where no mask was corrected."""
    return np.zeros(len(table), dtype=bool) if table.person is None else table.person.sum(axis=1) >= CONFIRMED


def is_tumour_confirmed(table: RegionTable, schema: LabelSchema) -> bool:
    """Whether there are regions of cancers that are no specks, all of them confirmed by a person."""
    cancers = [schema.index(name) for name in CANCERS if name in schema.names]
    counted = np.isin(table.tissue, cancers) & (table.area_mm2 >= SMALLEST_REGION_MM2)
    return bool(counted.any() and confirmed_regions(table)[counted].all())


def _of_cancer(table: RegionTable, own: Ints, lengths_um: NDArray[np.float64]) -> CancerRegions:
    areas = table.area_mm2[own]
    counts = areas >= SMALLEST_REGION_MM2
    by_person = None if table.person is None else table.person.sum(axis=1)[own[counts]]
    return CancerRegions(
        areas_mm2=areas[counts],
        confidences=table.trust[own[counts]],
        contacts_um=lengths_um[own[counts]],
        specks=int((~counts).sum()),
        specks_mm2=float(areas[~counts].sum()),
        by_person=by_person,
    )


def tumour_of(
    regions: Regions, schema: LabelSchema, names: tuple[str, ...], present: Collection[str] | None = None
) -> Tumour:
    """The tumour of the classes ``names``; only those ``present`` (None: all) can have firm regions."""
    table = regions.table
    wanted = [schema.index(name) for name in names if name in schema.names]
    sure = [schema.index(name) for name in schema.names if present is None or name in present]
    ours = np.isin(table.tissue, wanted)
    firm = ours & np.isin(table.tissue, sure) & (table.area_mm2 >= SMALLEST_REGION_MM2)
    counts = firm | _nests(regions, firm, ours & ~firm)
    strays = int(ours.sum()) - int(counts.sum())
    return Tumour(counts, regions.within(counts), regions.rim(counts), strays, bool(wanted))


def _nests(regions: Regions, firm: Where, others: Where) -> Where:
    """(R,) which of the ``others`` are near a firm region."""
    near = np.zeros(len(firm), dtype=bool)
    if not (firm.any() and others.any()):
        return near
    step = np.array([regions.table.resolution.y, regions.table.resolution.x])
    pixels, region = regions.borders(others)
    distances, _ = nearest_of(regions.rim(firm) * step, pixels * step, within=NEST_UM)
    near[region[distances <= NEST_UM]] = True
    return near
