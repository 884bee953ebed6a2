"""In which order a person looks at the regions of a slide, and which part stands for each of them.

Likely errors first: a region's area times the square of the network's mean doubt in it. Area alone begins with large
regions that are nearly always right, and doubt alone with crumbs.
"""

from __future__ import annotations

import numpy as np

from ntrm.core.arrays import Floats, Ints
from ntrm.correct.engine import Review
from ntrm.correct.engine.graph import RegionGraph
from ntrm.correct.mask import SlideMask
from ntrm.correct.units import Units


def middle_parts(graph: RegionGraph) -> Ints:
    """(R,) of each region the part nearest to its centre; slivers, below half of the largest part, are passed over."""
    count, weight = int(graph.region.max(initial=-1)) + 1, graph.pixels.astype(np.float64)
    total = np.bincount(graph.region, weight, count)
    centre = np.stack([np.bincount(graph.region, weight * axis, count) / total for axis in graph.centroid.T], axis=1)
    largest = np.zeros(count)
    np.maximum.at(largest, graph.region, weight)
    away = np.hypot(*(graph.centroid - centre[graph.region]).T)
    away[weight < largest[graph.region] / 2] = np.inf
    order = np.lexsort((away, graph.region))
    return np.asarray(order[np.searchsorted(graph.region[order], np.arange(count))])


def likely_errors(graph: RegionGraph) -> Floats:
    """(R,) pixels of each region times the square of the mean doubt in it; doubt is 1 − probability of its class."""
    count = int(graph.region.max(initial=-1)) + 1
    sure = graph.probabilities[np.arange(len(graph)), graph.tissue]
    pixels, doubt = (np.bincount(graph.region, graph.pixels * by, count) for by in (np.ones(len(graph)), 1.0 - sure))
    return np.asarray(doubt**2 / pixels)


def likely_errors_first(graph: RegionGraph) -> Review:
    """All regions; the pixel is one of the part in the middle."""
    parts = middle_parts(graph)[np.argsort(-likely_errors(graph), kind="stable")]
    pixels = np.bincount(graph.region, graph.pixels)[graph.region[parts]].astype(np.int64)
    return Review("likely errors", graph.parts.first[parts], graph.tissue[parts], pixels)


def largest_first(mask: SlideMask) -> Review:
    """Regions where no region graph is known; without glass, which would often be the first."""
    units, pixels = Units.in_mask(mask.regions), mask.regions.table.pixels
    order = np.argsort(-pixels, kind="stable")
    order = order[units.tissue[order] != mask.schema.background_index]
    return Review("area", units.first[order], units.tissue[order], pixels[order])
