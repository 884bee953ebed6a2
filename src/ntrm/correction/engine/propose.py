"""What a click would change: the parts that it names, and those that would follow.

What follows from a new click is the difference that it makes: parts that get another name when it is added to all
earlier clicks. So what was accepted before stays as it is, however far the new click is carried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ntrm.analysis.regions import Regions
from ntrm.analysis.runs import Runs
from ntrm.core.arrays import Ints
from ntrm.core.errors import UsageError, choices_error
from ntrm.core.labels import LabelSchema
from ntrm.correction.engine import Click, Proposal, no_units
from ntrm.correction.engine.graph import RegionGraph
from ntrm.correction.engine.spread import Settings, Spread, spread
from ntrm.correction.log import Place
from ntrm.correction.pixels import PixelSet
from ntrm.correction.state import State
from ntrm.correction.units import Units

MOST_CLICKS = 128
"""The latest clicks that are carried on; older ones keep what they have named."""
MOST_AT_ONCE = MOST_CLICKS // 2
"""Of more parts that are named at once, so many are carried on, evenly chosen: memory grows with each."""


def propose(graph: RegionGraph, state: State, click: Click) -> Proposal:
    """What ``click`` would change in a slide that is corrected so far."""
    _check(graph.schema, click)
    given = graph.schema.index(click.tissue)
    pointed = _nodes(graph, click.places)
    nodes = np.flatnonzero(np.isin(graph.region, graph.region[pointed])) if click.whole_regions else pointed
    named = graph.parts.pixels(nodes)
    if click.how is None:
        return Proposal(graph.schema, graph.resolution, click, graph.parts, nodes, named)
    carried = _evenly(pointed)
    before = dict([*_clicked(graph, state).items()][-(MOST_CLICKS - len(carried)) :])
    after = {node: tissue for node, tissue in before.items() if node not in set(pointed.tolist())}
    after |= dict.fromkeys(carried.tolist(), given)
    without, result = (_spread(graph, clicks, click) for clicks in (before, after))
    moved = np.flatnonzero(result.tissue != without.tissue)
    kept = np.concatenate([nodes, _nodes(graph, (*state.left_out, *click.left_out), missing_ok=True)])
    return _following(graph, state, click, nodes, named, np.setdiff1d(moved, kept), result)


def propose_regions(regions: Regions, schema: LabelSchema, click: Click) -> Proposal:
    """The same where no region graph is known: the connected ``regions`` are named, and nothing follows."""
    _check(schema, click)
    units = Units.in_mask(regions)
    found = np.unique([units.at(place) for place in click.places])
    alone = replace(click, whole_regions=True, how=None, left_out=())
    return Proposal(schema, regions.table.resolution, alone, units, found, units.pixels(found))


def check_tissue(schema: LabelSchema, tissue: str) -> None:
    """Refuse a name that is no class."""
    if tissue not in schema.names:
        raise choices_error("the model does not know this tissue", tissue, schema.names)


def _check(schema: LabelSchema, click: Click) -> None:
    check_tissue(schema, click.tissue)
    if not click.places:
        raise UsageError("nothing is chosen", expected="at least one place", hint="choose a region first")


class Learned(NamedTuple):
    """What people named in some slides."""

    graphs: list[RegionGraph]
    clicks: dict[int, int]
    """The class given to each node, all graphs counted through."""


def learn(slides: Sequence[tuple[RegionGraph, State]]) -> Learned:
    """What people named in these slides."""
    clicks, at = dict[int, int](), 0
    for graph, state in slides:
        clicks |= {node + at: tissue for node, tissue in _clicked(graph, state).items()}
        at += len(graph)
    return Learned([graph for graph, _ in slides], clicks)


def propose_elsewhere(learned: Learned, click: Click, there: RegionGraph, theirs: State) -> Proposal:
    """What a click in the first slide of ``learned`` would change in another: parts that look like the one named."""
    here, both = learned.graphs[0], concatenate_graphs([*learned.graphs, there])
    at = len(both) - len(there)
    before = {node + at: tissue for node, tissue in _clicked(there, theirs).items()} | learned.clicks
    after = before | dict.fromkeys(_nodes(here, click.places).tolist(), here.schema.index(click.tissue))
    without, result = (_spread(both, clicks, click) for clicks in (before, after))
    moved = np.flatnonzero(result.tissue != without.tissue) - at
    kept = _nodes(there, theirs.left_out, missing_ok=True)
    named = Spread(there, result.tissue[at:], result.reason[at:], result.source[at:])
    moved = np.setdiff1d(moved[moved >= 0], kept)
    return _following(there, theirs, replace(click, places=()), no_units(), PixelSet.empty(), moved, named)


def _following(
    graph: RegionGraph,
    state: State,
    click: Click,
    nodes: Ints,
    named: PixelSet,
    moved: Ints,
    result: Spread,
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


def _nodes(graph: RegionGraph, places: Sequence[Place], *, missing_ok: bool = False) -> Ints:
    """The parts at these places, each once."""
    parts, found = graph.parts, []
    for place in places:
        try:
            found.append(parts.at(place))
        except UsageError:
            if not missing_ok:
                raise
    return np.unique(np.array(found, dtype=np.int64))


def _clicked(graph: RegionGraph, state: State) -> dict[int, int]:
    """The latest clicks: the class given to each part."""
    parts, clicks = graph.parts, dict[int, int]()
    for place, tissue in state.clicks:
        node = parts.at(place)
        clicks.pop(node, None)
        clicks[node] = tissue
    return dict([*clicks.items()][-MOST_CLICKS:])


def _spread(graph: RegionGraph, clicks: dict[int, int], click: Click) -> Spread:
    return spread(graph, clicks, Settings(reach=click.reach))


def concatenate_graphs(graphs: Sequence[RegionGraph]) -> RegionGraph:
    """Graphs of several slides of one model as one without borders between them; it has no mask."""
    first = graphs[0]
    sizes = np.array([0, *(len(graph) for graph in graphs)])
    shift = np.cumsum(sizes)
    regions = np.cumsum([0, *(int(graph.region.max(initial=-1)) + 1 for graph in graphs)])
    empty = Runs((0, 0), no_units(), no_units())
    every = {
        name: np.concatenate([getattr(graph, name) for graph in graphs])
        for name in ("tissue", "pixels", "centroid", "ratios", "probabilities")
    }
    return RegionGraph(
        first.schema,
        first.resolution,
        empty,
        region=np.concatenate([graph.region + at for graph, at in zip(graphs, regions, strict=False)]),
        edges=np.concatenate([graph.edges + at for graph, at in zip(graphs, shift, strict=False)]),
        features={
            name: np.concatenate([graph.features[name] for graph in graphs])
            for name in first.features
            if all(name in graph.features for graph in graphs)
        },
        **every,
    )
