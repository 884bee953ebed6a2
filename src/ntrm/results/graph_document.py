"""``graph.json`` of a slide: the tissue graph of each piece, and what the network itself used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ntrm.core.io import write_json
from ntrm.results.json_files import STRICT, Document
from ntrm.results.paths import GRAPH

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Node:
    """A tissue of the graph."""

    name: str
    title: str
    area_mm2: float
    regions: int
    confidence: float | None
    """Mean over its regions, weighted by area."""
    by_person: float | None = None
    """Fraction of its area that a person named or accepted; None where nobody corrected the slide."""


@dataclass(frozen=True)
class Edge:
    """Two tissues that touch, or a tissue and the outside; in the file also two regions, with a boundary alone."""

    source: str
    target: str
    boundary_mm: float
    share_of_source: float = 0.0
    share_of_target: float = 0.0
    contacts: int = 0
    kind: str = "boundary"


@dataclass(frozen=True)
class Item:
    """A node of the file: a tissue, a region of one, or the outside."""

    id: str
    kind: str
    title: str = ""
    tissue: str = ""
    area_mm2: float = 0.0
    regions: int = 0
    confidence: float | None = None
    by_hand: float | None = None
    followed: float | None = None

    @property
    def by_person(self) -> float:
        """Fraction of a region that a person named, or that followed."""
        return (self.by_hand or 0.0) + (self.followed or 0.0)


@dataclass(frozen=True)
class NodeLink:
    """A graph of the file."""

    nodes: tuple[Item, ...]
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class PieceGraph:
    """The tissue graph of one piece."""

    piece: int
    text: tuple[str, ...]
    """In sentences."""
    graph: NodeLink

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Of the tissues."""
        regions = defaultdict[str, list[Item]](list)
        for item in self.graph.nodes:
            regions[item.tissue].append(item)
        return tuple(_node(item, regions[item.id]) for item in self.graph.nodes if item.kind == "tissue")

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Of the tissues."""
        return tuple(edge for edge in self.graph.edges if edge.kind == "boundary")


def _node(tissue: Item, regions: Sequence[Item]) -> Node:
    """A tissue and the means of its regions; what a person named is no part of the network's confidence."""
    known = [(r.confidence, r.area_mm2 * (1 - r.by_person)) for r in regions if r.confidence is not None]
    by_person = None
    if any(region.by_hand is not None for region in regions):
        by_person = weighted_mean([(region.by_person, region.area_mm2) for region in regions])
    title = tissue.title or tissue.id
    return Node(tissue.id, title, tissue.area_mm2, tissue.regions, weighted_mean(known), by_person)


@dataclass(frozen=True)
class EdgeWindow:
    """A window in pixels of the mask, with the attention along an edge there, as a mean over the layers."""

    top: int
    left: int
    height: int
    width: int
    attention: float


@dataclass(frozen=True)
class StrongestWindows:
    """The windows where one tissue attended most to another, the strongest first."""

    source: str
    target: str
    windows: tuple[EdgeWindow, ...]


@dataclass(frozen=True)
class Network:
    """What the network itself used, as means over windows; the first index sends, the second receives."""

    names: tuple[str, ...]
    attention: tuple[Matrix, ...]
    """By layer; empty for a network without attention."""
    edge_windows: tuple[tuple[int, ...], ...]
    """How many windows have the edge."""
    edge_weight: Matrix | None
    """None for a network that does not train them."""
    strongest_windows: tuple[StrongestWindows, ...]
    windows: int
    """All that were counted."""
    note: str = "what the network used, not biology"

    def __post_init__(self) -> None:
        matrices = (*self.attention, self.edge_windows, self.edge_weight)
        if any({len(each), *map(len, each)} != {len(self.names)} for each in matrices if each is not None):
            raise ValueError("relations of the network do not fit their names")
        if not {name for edge in self.strongest_windows for name in (edge.source, edge.target)} <= {*self.names}:
            raise ValueError("windows of unknown tissues")

    @property
    def mean_attention(self) -> Matrix:
        """Over the layers; 0 without any."""
        size, layers = range(len(self.names)), self.attention
        return tuple(tuple(sum(m[i][j] for m in layers) / max(len(layers), 1) for j in size) for i in size)


@dataclass(frozen=True)
class GraphFile:
    """``graph.json``."""

    __pydantic_config__ = STRICT
    slide_id: str
    pieces: tuple[PieceGraph, ...]
    network: Network | None = None


def write_graph(
    folder: Path,
    about: Document,
    network: Network | None,
    pieces: Mapping[int, tuple[Sequence[str], Document]],
    outside: Document | None,
) -> None:
    """Write ``graph.json``: by the number of a piece its sentences and its node-link graph, then that of the rest."""
    graphs = [{"piece": number, "text": [*text], "graph": graph} for number, (text, graph) in pieces.items()]
    rest = None if outside is None else {"piece": 0, "graph": outside}
    write_json(folder / GRAPH, {**about, "network": network, "pieces": graphs, "outside_pieces": rest})


def weighted_mean(known: Sequence[tuple[float, float]]) -> float | None:
    """Of values, weighted by areas."""
    total = sum(area for _, area in known)
    return sum(value * area for value, area in known) / total if total > 0 else None
