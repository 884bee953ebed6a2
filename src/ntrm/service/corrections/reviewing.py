"""The regions of a slide in the order in which a person steps through them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ntrm.analysis.regions import Regions
from ntrm.analysis.runs import Ints
from ntrm.correction.graph import RegionGraph
from ntrm.correction.log import Place
from ntrm.correction.review import parts_to_review
from ntrm.service.corrections.slide_corrections import SlideCorrections
from ntrm.service.corrections.units import Units

Columns = tuple[Ints, Ints, Ints]
"""Of each region a pixel (flattened), the network's class, and how many pixels it has."""


@dataclass(frozen=True)
class RegionToReview:
    """A region that a person may want to look at."""

    place: Place
    """A pixel of the part in its middle."""
    tissue: int
    """The network's class."""
    pixels: int
    by_hand: bool
    """Whether a person named that part."""


def regions_to_review(there: SlideCorrections, most: int) -> list[RegionToReview]:
    """At most so many: likely errors first, or the largest first where the parts of the slide are not known."""
    if there.graph is None:
        background = there.mask.schema.background_index
        first, tissue, pixels = (column[:most] for column in _by_area(there.opened.regions, background))
    else:
        first, tissue, pixels = (column[:most] for column in _by_likely_errors(there.graph))
    rows, columns = np.divmod(first, there.mask.shape[1])
    named = there.now.by_hand.holds(first)
    every = zip(*(column.tolist() for column in (rows, columns, tissue, pixels, named)), strict=True)
    return [RegionToReview((row, column), *about) for row, column, *about in every]


def _by_likely_errors(graph: RegionGraph) -> Columns:
    parts = parts_to_review(graph)
    pixels = np.bincount(graph.region, graph.pixels)[graph.region[parts]].astype(np.int64)
    return Units.parts(graph).first[parts], graph.tissue[parts], pixels


def _by_area(regions: Regions, background: int | None) -> Columns:
    """Without glass, which would often be the first."""
    units, pixels = Units.in_mask(regions), regions.table.pixels
    order = np.argsort(-pixels, kind="stable")
    order = order[units.tissue[order] != background]
    return units.first[order], units.tissue[order], pixels[order]
