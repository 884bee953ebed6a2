"""Today's engine: the parts of a slide as a graph, made from slide and model once, and kept with the results.

The graph is needed to propose what follows from a click; the corrected mask follows from mask and log alone.
"""

from __future__ import annotations

from contextlib import closing
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ntrm.core.arrays import Floats, Ints
from ntrm.core.errors import DataError, RefusedError
from ntrm.core.io import holding
from ntrm.core.labels import IGNORE
from ntrm.core.progress import SILENT, Progress
from ntrm.correct.engine import NotReadyError, Proposal, Review
from ntrm.correct.engine.graph import RegionGraph, region_graph_of
from ntrm.correct.engine.propose import Learned, learned, propose
from ntrm.correct.log import Stamp, Step, stamp_of
from ntrm.correct.mask import SlideMask
from ntrm.correct.state import State
from ntrm.correct.units import Units
from ntrm.results.folder import SlideFolder
from ntrm.results.paths import HIDDEN, REGION_GRAPH, REGION_GRAPH_LOCK
from ntrm.slides.inputs import SlideInput, source_fingerprint

if TYPE_CHECKING:
    from ntrm.models.predictor import Predictor

OPEN_GRAPHS = 4  # One of 100,000 parts takes some 100 MB, most take a tenth of that


class PartsEngine:
    """Carries names on by looks and relations of compact parts of regions."""

    def is_ready(self, mask: SlideMask) -> bool:
        """Whether the parts of a slide are known, so that names can be carried on."""
        return region_graph_in(mask) is not None

    def prepare(self, mask: SlideMask, slide: SlideInput, predictor: Predictor, progress: Progress = SILENT) -> None:
        """Find the parts of a slide, unless they are known; takes as long as segmenting it.

        ``slide`` is the file that was segmented, another one is refused; ``predictor`` has the model of the results,
        see ``SlideMask.check_model``. Where another process finds them already, this waits for it.
        """
        own, source = source_fingerprint(slide.path), mask.segmented[1].source
        if own is None or own != source:
            raise RefusedError(
                f"{mask.folder.name} was made from another file",
                got="a slide that cannot be read" if own is None else f"a slide with other content ({own[:12]})",
                expected=f"the slide that was segmented ({str(source)[:12]})",
                hint="give the slide as it was when it was segmented",
            )
        # The network must see the slide as it did when it was segmented.
        stained = mask.summary.stain_norm
        if stained is not None and stained.matrix is not None:
            predictor = predictor.recolouring(stained.matrix)
        SlideFolder(mask.folder).check()
        with holding(mask.folder / HIDDEN / REGION_GRAPH_LOCK, wait=True):
            if not self.is_ready(mask):
                _made(mask, slide, predictor, progress).save(mask.folder / HIDDEN / REGION_GRAPH, _origin(mask))

    def units(self, mask: SlideMask, *, whole_regions: bool) -> Units:
        """The undivided regions, or the parts; ``NotReadyError`` where these are not known."""
        graph = region_graph_in(mask) if whole_regions else _graph(mask)
        if graph is None:
            return Units.in_mask(mask.regions)
        return graph.regions if whole_regions else graph.parts

    def learn(self, mask: SlideMask, state: State) -> Learned:
        """What the clicks in a slide say about others."""
        return learned(_graph(mask), state)

    def propose(self, mask: SlideMask, state: State, click: Step, source: Learned | None = None) -> Proposal:
        """What a click would change; its places lie in the slide, or in that from which ``source`` was learned."""
        return propose(_graph(mask), state, click, source)

    def order(self, mask: SlideMask) -> Review:
        """The regions, likely errors first, or by area where no parts are known; corrections so far do not count."""
        graph = region_graph_in(mask)
        return largest_first(mask) if graph is None else likely_errors_first(graph)


PARTS = PartsEngine()


def region_graph_in(mask: SlideMask) -> RegionGraph | None:
    """The graph that was kept; None where there is none of this mask, model and version, or a damaged one."""
    return _read(mask, stamp_of(mask.folder / HIDDEN / REGION_GRAPH))


@lru_cache(OPEN_GRAPHS)
def _read(mask: SlideMask, stamp: Stamp) -> RegionGraph | None:
    path = mask.folder / HIDDEN / REGION_GRAPH
    try:
        graph = None if stamp is None else RegionGraph.read(path, mask.schema, _origin(mask))
    except DataError:
        return None
    return graph if graph is not None and graph.runs.shape == mask.shape else None


def _graph(mask: SlideMask) -> RegionGraph:
    graph = region_graph_in(mask)
    if graph is None:
        hint = "have them found first, or name whole regions without carrying the name on"
        raise NotReadyError("the parts of this slide are not known yet", hint=hint)
    return graph


def _origin(mask: SlideMask) -> str:
    return f"mask {mask.record.mask}, model {(mask.summary.model or {}).get('sha256')}"


def _made(mask: SlideMask, slide: SlideInput, predictor: Predictor, progress: Progress) -> RegionGraph:
    """Memory is that of the mask, the sums over the parts and some windows."""
    from ntrm.correct.engine.parts import parts_of
    from ntrm.correct.engine.pool import Pooling, smooth_density
    from ntrm.models.windows import Stitching
    from ntrm.segment.predict import tiles_ahead
    from ntrm.slides.isolated import open_isolated

    labels, stitching = mask.labels(), Stitching(predictor.config.window, int(mask.summary.options["overlap"]))
    # The network has seen windows all of whose pixels have a name.
    windows = [each for each in stitching.windows(*mask.shape) if not (labels[each.slices] == IGNORE).any()]
    with closing(open_isolated(slide.path, alone=slide.alone)) as reader:
        grid = mask.grid(reader, slide.mpp)
        density = smooth_density(lambda w: grid.read(w.top, w.left, *w.tile_shape), *mask.shape)
        parts = parts_of(labels, mask.schema, mask.resolution, density)
        pooling, batches = Pooling(predictor, parts, stitching), -(-len(windows) // predictor.batch)
        for these, tiles in progress.track(tiles_ahead(grid, windows, predictor.batch), batches, mask.folder.name):
            pooling.add(these, tiles)
    pooled = pooling.means()
    return region_graph_of(parts, mask.schema, pooled.pop("probabilities"), pooled)


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
    """All regions; the pixel is one of the part in the middle. By area alone right ones come first, by doubt crumbs."""
    parts = middle_parts(graph)[np.argsort(-likely_errors(graph), kind="stable")]
    pixels = np.bincount(graph.region, graph.pixels)[graph.region[parts]].astype(np.int64)
    return Review("likely errors", graph.parts.first[parts], graph.tissue[parts], pixels)


def largest_first(mask: SlideMask) -> Review:
    """Regions where no region graph is known; without glass, which would often be the first."""
    units, pixels = Units.in_mask(mask.regions), mask.regions.table.pixels
    order = np.argsort(-pixels, kind="stable")
    order = order[units.tissue[order] != mask.schema.background_index]
    return Review("area", units.first[order], units.tissue[order], pixels[order])
