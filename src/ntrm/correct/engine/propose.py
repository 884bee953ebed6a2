"""What a click would change: the parts that it names, and those that would follow.

What follows from a new click is the difference that it makes: parts that get another name when it is added to all
earlier clicks. So what was accepted before stays as it is, however far the new click is carried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ntrm.core.arrays import Ints
from ntrm.correct.engine import Proposal, no_units
from ntrm.correct.engine.graph import RegionGraph
from ntrm.correct.engine.spread import Settings, Spread, spread
from ntrm.correct.log import Place, Step
from ntrm.correct.state import State
from ntrm.regions.runs import RunLengths

MOST_CLICKS = 128  # The latest clicks that are carried on; older ones keep what they have named
MOST_AT_ONCE = MOST_CLICKS // 2
"""Of more parts that are named at once, so many are carried on, evenly chosen: memory grows with each."""


class Learned(NamedTuple):
    """What is known from a slide: its parts, and the class that each click gave to one, the latest last."""

    graph: RegionGraph
    clicks: dict[int, int]


def learned(graph: RegionGraph, state: State) -> Learned:
    """From the corrections of a slide so far."""
    clicks = dict[int, int]()
    for place, tissue in state.clicks:
        node = graph.parts.at(place)
        clicks.pop(node, None)
        clicks[node] = tissue
    return Learned(graph, clicks)


def propose(graph: RegionGraph, state: State, click: Step, source: Learned | None = None) -> Proposal:
    """What ``click`` would change in a slide that is corrected so far; its places lie there, or in the ``source``."""
    own = learned(graph, state)
    pointed = _nodes((source or own).graph, click.places)
    if source is None:
        every, first, known = graph, 0, own.clicks
        nodes = np.flatnonzero(np.isin(graph.region, graph.region[pointed])) if click.whole_regions else pointed
    else:
        every, first, nodes = _joined(source.graph, graph), len(source.graph), no_units()
        known = {first + node: tissue for node, tissue in own.clicks.items()} | source.clicks
        click = replace(click, places=(), left_out=())
    named = graph.parts.pixels(nodes)
    some = np.linspace(0, len(pointed) - 1, MOST_AT_ONCE).astype(np.int64)
    carried = pointed if len(pointed) <= MOST_AT_ONCE else pointed[some]
    before = dict([*known.items()][-(MOST_CLICKS - len(carried)) :])
    after = {node: tissue for node, tissue in before.items() if node not in set(pointed.tolist())}
    after |= dict.fromkeys(carried.tolist(), graph.schema.index(click.tissue or ""))
    settings = Settings(reach=click.reach or 1.0)
    without, result = (spread(every, clicks, settings) for clicks in (before, after))
    result = Spread(graph, result.tissue[first:], result.reason[first:])
    kept = np.concatenate([nodes, _nodes(graph, (*state.left_out, *click.left_out))])
    moved = np.setdiff1d(np.flatnonzero(result.tissue != without.tissue[first:]), kept)
    # Except what a person has named.
    hand, parts = state.by_hand | named, graph.parts
    sets = {int(index): parts.pixels(moved[result.tissue[moved] == index]) for index in set(result.tissue[moved])}
    followed = {index: rest for index, pixels in sets.items() if (rest := pixels - hand)}
    followers = moved[~hand.holds(parts.first[moved])]
    return Proposal(click, parts, nodes, named, followers, result.tissue[followers], followed, result.why)


def _nodes(graph: RegionGraph, places: Sequence[Place]) -> Ints:
    """The parts at these places, each once."""
    return np.unique(np.array([graph.parts.at(place) for place in places], dtype=np.int64))


def _joined(here: RegionGraph, there: RegionGraph) -> RegionGraph:
    """The graphs of two slides of one model as one without borders between them; it has no mask."""
    names = ("tissue", "region", "pixels", "centroid", "ratios", "probabilities")
    both = {name: np.concatenate([getattr(here, name), getattr(there, name)]) for name in names}
    shared = here.features.keys() & there.features.keys()
    return RegionGraph(
        here.schema,
        here.resolution,
        RunLengths((0, 0), no_units(), no_units()),
        edges=np.concatenate([here.edges, there.edges + len(here)]),
        features={name: np.concatenate([here.features[name], there.features[name]]) for name in shared},
        **both,
    )
