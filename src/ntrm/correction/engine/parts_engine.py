"""Today's engine: compact parts of regions, and names carried on by looks and relations."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from ntrm.core.progress import SILENT, Progress
from ntrm.correction.engine import Click, NotReadyError, Proposal, Review
from ntrm.correction.engine.graph import RegionGraph, is_kept
from ntrm.correction.engine.prepare import make_region_graph, origin_of, region_graph_in
from ntrm.correction.engine.propose import Learned, learn, propose, propose_elsewhere
from ntrm.correction.engine.review import likely_errors_first
from ntrm.correction.log import Stamp, stamp_of
from ntrm.correction.mask import SlideMask
from ntrm.correction.state import State
from ntrm.correction.units import Units
from ntrm.results.paths import HIDDEN, REGION_GRAPH
from ntrm.slides.inputs import SlideInput

if TYPE_CHECKING:
    from ntrm.inference.predictor import Predictor

OPEN_GRAPHS = 4
"""One of 100,000 parts takes some 100 MB, most take a tenth of that."""


class PartsEngine:
    """Proposes by the region graph of a slide, which is made once and kept with the results."""

    def __init__(self) -> None:
        self._damaged: set[tuple[SlideMask, Stamp]] = set()
        """Graphs that could not be read, although their first lines say what they were made of."""

    def is_ready(self, mask: SlideMask) -> bool:
        """Whether the region graph is there; it is read when it is needed."""
        path = mask.folder / HIDDEN / REGION_GRAPH
        return (mask, stamp_of(path)) not in self._damaged and is_kept(path, origin_of(mask))

    def prepare(self, mask: SlideMask, slide: SlideInput, predictor: Predictor, progress: Progress = SILENT) -> None:
        """Make the region graph."""
        make_region_graph(mask, slide, predictor, progress)

    def units(self, mask: SlideMask, *, whole_regions: bool) -> Units:
        """Its undivided regions, or its nodes."""
        graph = self._graph(mask)
        return graph.regions if whole_regions else graph.parts

    def learn(self, slides: Sequence[tuple[SlideMask, State]]) -> Learned:
        """The graphs of these slides, and the names given to their nodes."""
        return learn([(self._graph(mask), state) for mask, state in slides])

    def propose(self, mask: SlideMask, state: State, click: Click, classifier: Learned | None = None) -> Proposal:
        """What follows from a click here, or in the first of other slides."""
        graph = self._graph(mask)
        if classifier is None:
            return propose(graph, state, click)
        return propose_elsewhere(classifier, click, graph, state)

    def order(self, mask: SlideMask, state: State) -> Review:
        """By what the network doubts; what was corrected so far does not count."""
        return likely_errors_first(self._graph(mask))

    def _graph(self, mask: SlideMask) -> RegionGraph:
        stamp = stamp_of(mask.folder / HIDDEN / REGION_GRAPH)
        graph = None if stamp is None else _read(mask, stamp)
        if graph is None:
            self._damaged.add((mask, stamp))
            raise NotReadyError(
                "the parts of this slide are not known yet",
                hint="have them found first, or name whole regions without carrying the name on",
            )
        return graph


@lru_cache(OPEN_GRAPHS)
def _read(mask: SlideMask, _: Stamp) -> RegionGraph | None:
    return region_graph_in(mask)


PARTS = PartsEngine()
