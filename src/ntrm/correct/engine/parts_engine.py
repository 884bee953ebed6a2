"""Today's engine: compact parts of regions, and names carried on by looks and relations."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ntrm.core.progress import SILENT, Progress
from ntrm.correct.engine import NotReadyError, Proposal, Review
from ntrm.correct.engine.graph import RegionGraph
from ntrm.correct.engine.prepare import make_region_graph, region_graph_in
from ntrm.correct.engine.propose import propose, propose_elsewhere
from ntrm.correct.engine.review import likely_errors_first
from ntrm.correct.log import Stamp, Step, stamp_of
from ntrm.correct.mask import SlideMask
from ntrm.correct.state import State
from ntrm.correct.units import Units
from ntrm.results.paths import HIDDEN, REGION_GRAPH
from ntrm.slides.inputs import SlideInput

if TYPE_CHECKING:
    from ntrm.models.predictor import Predictor

OPEN_GRAPHS = 4  # One of 100,000 parts takes some 100 MB, most take a tenth of that


class PartsEngine:
    """Proposes by the region graph of a slide, which is made once and kept with the results."""

    def is_ready(self, mask: SlideMask) -> bool:
        """Whether the parts of a slide are known: its region graph is there and can be read."""
        return _read(mask, stamp_of(mask.folder / HIDDEN / REGION_GRAPH)) is not None

    def prepare(self, mask: SlideMask, slide: SlideInput, predictor: Predictor, progress: Progress = SILENT) -> None:
        """Find the parts, and keep them with the results; takes as long as segmenting the slide."""
        make_region_graph(mask, slide, predictor, progress)

    def units(self, mask: SlideMask, *, whole_regions: bool) -> Units:
        """The parts, or the undivided regions; ``NotReadyError`` where they are not known."""
        graph = _graph(mask)
        return graph.regions if whole_regions else graph.parts

    def propose(
        self, mask: SlideMask, state: State, click: Step, source: tuple[SlideMask, State] | None = None
    ) -> Proposal:
        """What a click would change; its places lie in the slide itself, or in the ``source`` it is carried on from."""
        if source is None:
            return propose(_graph(mask), state, click)
        return propose_elsewhere(_graph(source[0]), source[1], click, _graph(mask), state)

    def order(self, mask: SlideMask) -> Review:
        """The regions, likely errors first; what was corrected so far does not count."""
        return likely_errors_first(_graph(mask))


def _graph(mask: SlideMask) -> RegionGraph:
    graph = _read(mask, stamp_of(mask.folder / HIDDEN / REGION_GRAPH))
    if graph is None:
        hint = "have them found first, or name whole regions without carrying the name on"
        raise NotReadyError("the parts of this slide are not known yet", hint=hint)
    return graph


@lru_cache(OPEN_GRAPHS)
def _read(mask: SlideMask, stamp: Stamp) -> RegionGraph | None:
    return None if stamp is None else region_graph_in(mask)


PARTS = PartsEngine()
