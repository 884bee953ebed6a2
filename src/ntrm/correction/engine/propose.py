"""What a click would change: the parts that it names, and those that would follow.

What follows from a new click is the difference that it makes: parts that get another name when it is added to all
earlier clicks. So what was accepted before stays as it is, however far the new click is carried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ntrm.analysis.regions import Regions
from ntrm.analysis.runs import Runs
from ntrm.core.arrays import Ints
from ntrm.core.errors import UsageError, choices_error
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.correction.engine.graph import RegionGraph
from ntrm.correction.engine.spread import DEFAULT, Settings, Spread, spread
from ntrm.correction.log import DRAW, NAME, Place, Step
from ntrm.correction.pixels import PixelSet
from ntrm.correction.state import Corrections
from ntrm.correction.units import Units

MOST_CLICKS = 128
"""The latest clicks that are carried on; older ones keep what they have named."""
MOST_AT_ONCE = MOST_CLICKS // 2
"""Of more parts that are named at once, so many are carried on, evenly chosen: memory grows with each."""


@dataclass(frozen=True)
class Click:
    """What a person says about some parts."""

    places: tuple[Place, ...]
    """One in each of them."""
    tissue: str
    whole_regions: bool = False
    """Names the connected regions of the network's mask around the places."""
    how: str | None = DEFAULT
    """How the name is carried on; None: it is not."""
    reach: float = 1.0
    left_out: tuple[Place, ...] = ()
    """Parts that must not follow."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """What would change if a person accepts."""

    schema: LabelSchema
    resolution: Resolution
    click: Click
    nodes: Ints
    """Parts that are named; regions where no region graph is known."""
    named: PixelSet
    followers: Ints
    """Parts that would follow; without those that a person named before."""
    names: Ints
    """Their new classes."""
    spread: Spread | None
    """Why they follow; None where nothing is carried on."""
    followed: dict[int, PixelSet] = field(default_factory=dict)
    """By class: their pixels, without those that a person named or drew before."""

    @property
    def regions(self) -> int:
        """Parts that change."""
        return len(self.nodes) + len(self.followers)

    @property
    def area_mm2(self) -> float:
        """That of all these pixels."""
        pixels = self.named.pixels + sum(each.pixels for each in self.followed.values())
        return pixels * self.resolution.pixel_area_um2 / 1e6

    def step(self, origin: str, by: str | None = None) -> Step:
        """For the log."""
        names = self.schema.names
        return Step(
            action=NAME,
            tissue=self.click.tissue,
            places=self.click.places,
            whole_regions=self.click.whole_regions,
            left_out=self.click.left_out,
            spread=self.click.how,
            reach=None if self.click.how is None else float(self.click.reach),
            named=self.named.text,
            followed={names[index]: pixels.text for index, pixels in sorted(self.followed.items())},
            regions=self.regions,
            area_mm2=self.area_mm2,
            origin=origin,
            by=by,
        )


def propose(graph: RegionGraph, corrections: Corrections, click: Click) -> Proposal:
    """What ``click`` would change in a slide that is corrected so far."""
    _check(graph.schema, click)
    given = graph.schema.index(click.tissue)
    pointed = _nodes(graph, click.places)
    nodes = np.flatnonzero(np.isin(graph.region, graph.region[pointed])) if click.whole_regions else pointed
    named = Units.parts(graph).pixels(nodes)
    if click.how is None:
        return Proposal(graph.schema, graph.resolution, click, nodes, named, _none(), _none(), None)
    carried = _evenly(pointed)
    before = dict([*_clicked(graph, corrections).items()][-(MOST_CLICKS - len(carried)) :])
    after = {node: tissue for node, tissue in before.items() if node not in set(pointed.tolist())}
    after |= dict.fromkeys(carried.tolist(), given)
    without, result = (_spread(graph, clicks, click) for clicks in (before, after))
    moved = np.flatnonzero(result.tissue != without.tissue)
    kept = np.concatenate([nodes, _nodes(graph, (*corrections.left_out, *click.left_out), missing_ok=True)])
    return _following(graph, corrections, click, nodes, named, np.setdiff1d(moved, kept), result)


def propose_regions(regions: Regions, schema: LabelSchema, click: Click) -> Proposal:
    """The same where no region graph is known: the connected ``regions`` are named, and nothing follows."""
    _check(schema, click)
    units = Units.in_mask(regions)
    found = np.unique([units.at(place) for place in click.places])
    alone = replace(click, whole_regions=True, how=None, left_out=())
    return Proposal(schema, regions.table.resolution, alone, found, units.pixels(found), _none(), _none(), None)


def check_tissue(schema: LabelSchema, tissue: str) -> None:
    """Refuse a name that is no class."""
    if tissue not in schema.names:
        raise choices_error("the model does not know this tissue", tissue, schema.names)


def _check(schema: LabelSchema, click: Click) -> None:
    check_tissue(schema, click.tissue)
    if not click.places:
        raise UsageError("nothing is chosen", expected="at least one place", hint="choose a region first")


def drawn_step(named: PixelSet, resolution: Resolution, tissue: str, origin: str, by: str | None = None) -> Step:
    """Names pixels that a person has drawn."""
    area = named.pixels * resolution.pixel_area_um2 / 1e6
    return Step(action=DRAW, tissue=tissue, named=named.text, area_mm2=area, origin=origin, by=by)


def propose_elsewhere(
    here: RegionGraph, corrections: Corrections, click: Click, there: RegionGraph, theirs: Corrections
) -> Proposal:
    """What a click in one slide would change in another: parts that look like the one that was named."""
    both = concatenate_graphs([here, there])
    own = _clicked(there, theirs)
    before = {node + len(here): tissue for node, tissue in own.items()} | _clicked(here, corrections)
    after = before | dict.fromkeys(_nodes(here, click.places).tolist(), here.schema.index(click.tissue))
    without, result = (_spread(both, clicks, click) for clicks in (before, after))
    moved = np.flatnonzero(result.tissue != without.tissue) - len(here)
    kept = _nodes(there, theirs.left_out, missing_ok=True)
    named = Spread(there, result.tissue[len(here) :], result.reason[len(here) :], result.source[len(here) :])
    moved = np.setdiff1d(moved[moved >= 0], kept)
    return _following(there, theirs, replace(click, places=()), _none(), PixelSet.empty(), moved, named)


def _following(
    graph: RegionGraph,
    corrections: Corrections,
    click: Click,
    nodes: Ints,
    named: PixelSet,
    moved: Ints,
    result: Spread,
) -> Proposal:
    """The proposal with what follows from the click, except parts that a person has named."""
    hand, parts = corrections.by_hand | named, Units.parts(graph)
    sets = {int(index): parts.pixels(moved[result.tissue[moved] == index]) for index in set(result.tissue[moved])}
    followed = {index: rest for index, pixels in sets.items() if (rest := pixels - hand)}
    followers = moved[~hand.holds(parts.first[moved])]
    names = result.tissue[followers]
    return Proposal(graph.schema, graph.resolution, click, nodes, named, followers, names, result, followed)


def _evenly(nodes: Ints) -> Ints:
    """At most ``MOST_AT_ONCE`` nodes, evenly spread."""
    if len(nodes) <= MOST_AT_ONCE:
        return nodes
    return nodes[np.linspace(0, len(nodes) - 1, MOST_AT_ONCE).astype(np.int64)]


def _none() -> Ints:
    return np.zeros(0, dtype=np.int64)


def _nodes(graph: RegionGraph, places: Sequence[Place], *, missing_ok: bool = False) -> Ints:
    """The parts at these places, each once."""
    parts, found = Units.parts(graph), []
    for place in places:
        try:
            found.append(parts.at(place))
        except UsageError:
            if not missing_ok:
                raise
    return np.unique(np.array(found, dtype=np.int64))


def _clicked(graph: RegionGraph, corrections: Corrections) -> dict[int, int]:
    """The latest clicks: the class given to each part."""
    parts, clicks = Units.parts(graph), dict[int, int]()
    for place, tissue in corrections.clicks:
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
    empty = Runs((0, 0), _none(), _none())
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
