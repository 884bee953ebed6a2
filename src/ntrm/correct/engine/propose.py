"""What a click would change: the parts that it names, and those that would follow.

What follows from a new click is the difference that it makes: parts that get another name when it is added to all
earlier clicks. So what was accepted before stays as it is, however far the new click is carried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ntrm.core.arrays import Ints
from ntrm.core.errors import UsageError
from ntrm.core.labels import LabelSchema
from ntrm.correct.engine import Proposal, no_units
from ntrm.correct.engine.graph import RegionGraph
from ntrm.correct.engine.spread import Settings, Spread, spread
from ntrm.correct.log import Place, Step
from ntrm.correct.pixels import PixelSet
from ntrm.correct.state import State
from ntrm.correct.units import Units
from ntrm.regions.regions import Regions
from ntrm.regions.runs import RunLengths

MOST_CLICKS = 128  # The latest clicks that are carried on; older ones keep what they have named
MOST_AT_ONCE = MOST_CLICKS // 2
"""Of more parts that are named at once, so many are carried on, evenly chosen: memory grows with each."""


def propose(graph: RegionGraph, state: State, click: Step) -> Proposal:
    """What ``click`` would change in a slide that is corrected so far."""
    _check(graph.schema, click)
    pointed = _nodes(graph, click.places)
    nodes = np.flatnonzero(np.isin(graph.region, graph.region[pointed])) if click.whole_regions else pointed
    named = graph.parts.pixels(nodes)
    if click.spread is None:
        return Proposal(graph.schema, graph.resolution, click, graph.parts, nodes, named)
    carried = _evenly(pointed)
    before = dict([*_clicked(graph, state).items()][-(MOST_CLICKS - len(carried)) :])
    after = {node: tissue for node, tissue in before.items() if node not in set(pointed.tolist())}
    after |= dict.fromkeys(carried.tolist(), graph.schema.index(click.tissue or ""))
    settings = Settings(reach=click.reach or 1.0)
    without, result = spread(graph, before, settings), spread(graph, after, settings)
    kept = np.concatenate([nodes, _nodes(graph, (*state.left_out, *click.left_out))])
    moved = np.setdiff1d(np.flatnonzero(result.tissue != without.tissue), kept)
    return _following(graph, state, click, nodes, named, moved, result)


def propose_regions(regions: Regions, schema: LabelSchema, click: Step) -> Proposal:
    """The same where no region graph is known: the connected ``regions`` are named, and nothing follows."""
    _check(schema, click)
    units = Units.in_mask(regions)
    found = np.unique([units.at(place) for place in click.places])
    alone = replace(click, whole_regions=True, spread=None, reach=None, left_out=())
    return Proposal(schema, regions.table.resolution, alone, units, found, units.pixels(found))


def propose_elsewhere(here: RegionGraph, ours: State, click: Step, there: RegionGraph, theirs: State) -> Proposal:
    """What a click in one slide would change in another: parts that look like the one named."""
    both, at = _joined(here, there), len(here)
    before = _clicked(here, ours) | {node + at: tissue for node, tissue in _clicked(there, theirs).items()}
    after = before | dict.fromkeys(_nodes(here, click.places).tolist(), here.schema.index(click.tissue or ""))
    settings = Settings(reach=click.reach or 1.0)
    without, result = spread(both, before, settings), spread(both, after, settings)
    moved = np.setdiff1d(np.flatnonzero(result.tissue[at:] != without.tissue[at:]), _nodes(there, theirs.left_out))
    named = Spread(there, result.tissue[at:], result.reason[at:])
    return _following(there, theirs, replace(click, places=()), no_units(), PixelSet.empty(), moved, named)


def _check(schema: LabelSchema, click: Step) -> None:
    schema.index(click.tissue or "")  # refuses a name that is no class
    if not click.places:
        raise UsageError("nothing is chosen", expected="at least one place", hint="choose a region first")


def _following(
    graph: RegionGraph, state: State, click: Step, nodes: Ints, named: PixelSet, moved: Ints, result: Spread
) -> Proposal:
    """The proposal with what follows from the click, except parts that a person has named."""
    hand, parts = state.by_hand | named, graph.parts
    sets = {int(index): parts.pixels(moved[result.tissue[moved] == index]) for index in set(result.tissue[moved])}
    followed = {index: rest for index, pixels in sets.items() if (rest := pixels - hand)}
    followers = moved[~hand.holds(parts.first[moved])]
    names = result.tissue[followers]
    return Proposal(graph.schema, graph.resolution, click, parts, nodes, named, followers, names, followed, result.why)


def _evenly(nodes: Ints) -> Ints:
    """At most ``MOST_AT_ONCE`` nodes, evenly spread."""
    if len(nodes) <= MOST_AT_ONCE:
        return nodes
    return nodes[np.linspace(0, len(nodes) - 1, MOST_AT_ONCE).astype(np.int64)]


def _nodes(graph: RegionGraph, places: Sequence[Place]) -> Ints:
    """The parts at these places, each once."""
    return np.unique(np.array([graph.parts.at(place) for place in places], dtype=np.int64))


def _clicked(graph: RegionGraph, state: State) -> dict[int, int]:
    """The latest clicks: the class given to each part."""
    clicks = dict[int, int]()
    for place, tissue in state.clicks:
        node = graph.parts.at(place)
        clicks.pop(node, None)
        clicks[node] = tissue
    return dict([*clicks.items()][-MOST_CLICKS:])


def _joined(here: RegionGraph, there: RegionGraph) -> RegionGraph:
    """The graphs of two slides of one model as one without borders between them; it has no mask."""
    names = ("tissue", "region", "pixels", "centroid", "ratios", "probabilities")
    both = {name: np.concatenate([getattr(here, name), getattr(there, name)]) for name in names}
    return RegionGraph(
        here.schema,
        here.resolution,
        RunLengths((0, 0), no_units(), no_units()),
        edges=np.concatenate([here.edges, there.edges + len(here)]),
        features={
            name: np.concatenate([values, there.features[name]])
            for name, values in here.features.items()
            if name in there.features
        },
        **both,
    )
