"""Which cancers a section holds, from its tissues: several may be present, or none; and where the tumour ends.

The rule, the same for predicted and true masks:

- A *region* is a connected area of one cancer, as everywhere (``ntrm.regions.regions``). One smaller than
  ``SMALLEST_REGION_MM2`` is a speck and counts for nothing.
- The *weight* of a region is its mean confidence, halved if it is *misplaced*. An IEC, which by definition lies in the
  epidermis, is misplaced if next to none of its boundary is with the epidermis, what lies on it or below it, or a
  follicle; a BCC or SCC if most of its boundary is with another cancer: then it looks like a part of that one.
- The *confidence of presence* is ``Σ wᵢ · (exp(−Aᵢ₋₁ / T) − exp(−Aᵢ / T))`` over the regions of weight wᵢ, the surest
  first, with Aᵢ their area so far and T = ``TYPICAL_AREA_MM2``; for equal weights ``w · (1 − exp(−area / T))``. It
  matters how sure and how large the regions are together, not into how many a tumour is cut, and a further region
  never lowers it. Regions are not taken for independent witnesses: a network that mistakes one cancer for another
  does so in all of its regions.
- A cancer is *present* from ``PRESENT_FROM`` on. For a certain and well-placed tumour that is 0.014 mm²; a misplaced
  region alone never suffices.

Chosen on 833 real mask tiles of 75 sections at 10x: strays of other cancers in a section add up to 0.0041 mm² at most,
in specks of at most 0.0005 mm²; the smallest cancer that was meant has 0.051 mm². Of the real regions of 0.02 mm² or
more 2 of 190 BCC, none of 207 SCC and 6 of 171 IEC are misplaced by the rule. On true masks it names the cancer of
all 73 real sections that show one, and exactly the cancers of 348 of 350 synthetic sections; in the other two it
leaves out an IEC of 0.001 and 0.006 mm².

Clearance and depth are measured from the pixels at the tumour's rim. A region of a cancer is *firm* if it is not
smaller than ``SMALLEST_REGION_MM2`` (a speck) and its cancer is present. What is not firm but lies within ``NEST_UM``
of a firm region is a nest cut at its tip and counts. What lies further off is a *stray* and does not count: a few wrong
pixels of a predicted mask must not decide a clearance. How this was chosen: docs/results/measurements.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Floats, Ints
from ntrm.core.labels import CANCERS, CancerFinding, LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.core.wording import counted
from ntrm.regions.nearest import nearest_of
from ntrm.regions.region_table import RegionTable
from ntrm.regions.regions import Regions, table_of_mask
from ntrm.regions.runs import RunLengths, Where

SMALLEST_REGION_MM2 = 0.002
"""A disc 50 µm across, 45 pixels at 10x. Smaller ones in real masks are mostly slips of the annotator's pen."""

TYPICAL_AREA_MM2 = 0.02  # Area at which a tumour counts with 63 % of its confidence

PRESENT_FROM = 0.5

MISPLACED = 0.5  # Factor on the confidence of a region that is not where its cancer lies

FOREIGN_SHARE = 0.5
"""A region of BCC or SCC with more than this fraction of its boundary next to other cancers is misplaced."""

HOMES = {"IEC": ("EPI", "FOL", "PAP", "KER", "BKG")}
"""Tissues that a cancer must touch: in situ carcinoma lies in the epidermis or a follicle, under keratin or air."""

HOME_SHARE = 0.05  # Least fraction of the boundary that must be with them

NEST_UM = 250.0
CONFIRMED = 0.5  # A region is a person's word if a person named, or accepted, this fraction of it

NO_TUMOUR_CLASSES = f"no class is called {', '.join(CANCERS[:-1])} or {CANCERS[-1]}"
ONLY_STRAYS = f"too little tumour to go by: below {SMALLEST_REGION_MM2:g} mm² each, or too unsure to call it present"


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
    return cancers_of(table_of_mask(mask, confidence, schema, resolution), schema)


def cancers_of(table: RegionTable, schema: LabelSchema, among: Where | None = None) -> tuple[CancerFinding, ...]:
    """The same from a table of regions, or from some ``among`` them (R,)."""
    lengths_um, chosen = table.lengths_um(schema), among is None or among
    if schema.unnamed_index is not None:
        lengths_um[:, schema.unnamed_index] = 0.0  # what it lies beside is not known there
    ours = {name: (table.tissue == schema.index(name)) & chosen for name in CANCERS if name in schema.names}
    return tuple(_finding_of(name, table, own, lengths_um, schema) for name, own in ours.items())


def _finding_of(name: str, table: RegionTable, own: Where, lengths_um: Floats, schema: LabelSchema) -> CancerFinding:
    """Whether a cancer is there, by its ``own`` regions."""
    large = table.area_mm2 >= SMALLEST_REGION_MM2
    counted, specks = np.flatnonzero(own & large), table.area_mm2[own & ~large]
    areas, trust, contacts_um = table.area_mm2[counted], table.trust[counted], lengths_um[counted]
    misplaced = _misplaced(name, contacts_um, schema)
    confidence = presence_confidence(areas, trust * np.where(misplaced, MISPLACED, 1.0))
    present, area, count = confidence >= PRESENT_FROM, float(areas.sum()), len(areas)
    if count:
        named = 0.0 if table.person is None else float(np.average(table.person.sum(axis=1)[counted], weights=areas))
        known = f"mean confidence {np.average(trust, weights=areas):.2f}"
        reasons = [f"{named:.0%} named by a person"] * (named > 0) + [known] * (named < 1)
        if contacts_um.any():
            reasons.append(f"mostly beside {schema.names[int(contacts_um.sum(axis=0).argmax())]}")
        if misplaced.any():
            reasons.append(f"{'' if misplaced.all() else f'{misplaced.sum()} of {count} '}not where {name} lies")
        reason = ", ".join([_amount(area, count), *reasons]) + ("" if present else ": not enough")
    elif len(specks):
        reason = f"specks only: {_amount(specks.sum(), len(specks))}, each below {SMALLEST_REGION_MM2:g} mm²"
    else:
        reason = f"no {name} found"
    return CancerFinding(name, present, area, count, confidence, reason)


def presence_confidence(areas_mm2: Floats, weights: Floats) -> float:
    """How sure it is that a cancer is there, from its regions' areas and weights.

    >>> round(presence_confidence(np.array([1.0, 1.0]), np.array([0.2, 0.9])), 3)
    0.9
    """
    order = np.argsort(-weights, kind="stable")
    evidence = -np.expm1(-np.cumsum(areas_mm2[order]) / TYPICAL_AREA_MM2)
    return float(np.sum(weights[order] * np.diff(evidence, prepend=0.0)))


def _misplaced(name: str, contacts_um: Floats, schema: LabelSchema) -> NDArray[np.bool_]:
    """(R,) whether a region is not where its cancer occurs; one without a boundary never is misplaced."""
    total = contacts_um.sum(axis=1)
    homes = [schema.index(tissue) for tissue in HOMES.get(name, ()) if tissue in schema.names]
    foreign = [schema.index(other) for other in CANCERS if other != name and other in schema.names]
    touched = contacts_um[:, homes or foreign].sum(axis=1)
    fraction: Floats = np.divide(touched, total, out=np.zeros(len(total)), where=total > 0)
    # For an IEC not the other rule as well: a BCC often undermines all of it.
    misplaced: NDArray[np.bool_] = (fraction < HOME_SHARE) & (total > 0) if homes else fraction > FOREIGN_SHARE
    return misplaced


def _amount(area_mm2: float, count: int) -> str:
    """Area in mm² with two significant digits or two decimals, and the number of regions."""
    decimals = 2 if area_mm2 >= 0.1 else min(6, 1 - math.floor(math.log10(area_mm2)))
    return f"{area_mm2:.{decimals}f} mm² in {counted(count, 'region')}"


def confirmed_regions(table: RegionTable) -> Where:
    """(R,) regions of which a person named, or accepted, at least half; none where no mask was corrected."""
    return np.zeros(len(table), dtype=bool) if table.person is None else table.person.sum(axis=1) >= CONFIRMED


def is_tumour_confirmed(table: RegionTable, schema: LabelSchema) -> bool:
    """Whether there are regions of cancers that are no specks, all of them confirmed by a person."""
    cancers = [schema.index(name) for name in CANCERS if name in schema.names]
    counted = np.isin(table.tissue, cancers) & (table.area_mm2 >= SMALLEST_REGION_MM2)
    return bool(counted.any() and confirmed_regions(table)[counted].all())


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


def tumour_of(
    regions: Regions,
    schema: LabelSchema,
    names: tuple[str, ...],
    present: Collection[str] | None = None,
    but: Where | None = None,
) -> Tumour:
    """The tumour of the classes ``names``; only those ``present`` (None: all) can have firm regions.

    Regions in ``but`` (R,) are strays, however near.
    """
    table = regions.table
    wanted = [schema.index(name) for name in names if name in schema.names]
    sure = [schema.index(name) for name in schema.names if present is None or name in present]
    ours = np.isin(table.tissue, wanted)
    firm = ours & np.isin(table.tissue, sure) & (table.area_mm2 >= SMALLEST_REGION_MM2)
    counts = firm | _nests(regions, firm, ours & ~firm if but is None else ours & ~firm & ~but)
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
