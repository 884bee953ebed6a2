"""``graph.json`` of a slide: the tissue graph of each piece, and what the network itself used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ntrm.core.io import write_json
from ntrm.results.paths import GRAPH
from ntrm.results.typed_json import Document, as_document, number, read_as

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
    """Two tissues that touch, or a tissue and the outside."""

    source: str
    target: str
    boundary_mm: float
    share_of_source: float
    share_of_target: float
    contacts: int


@dataclass(frozen=True)
class PieceGraph:
    """The tissue graph of one piece."""

    text: tuple[str, ...]
    """In sentences."""
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


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

    @property
    def mean_attention(self) -> Matrix:
        """Over the layers; 0 without any."""
        size, layers = range(len(self.names)), self.attention
        return tuple(tuple(sum(m[i][j] for m in layers) / max(len(layers), 1) for j in size) for i in size)


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
    write_json(folder / GRAPH, {**about, "network": as_document(network), "pieces": graphs, "outside_pieces": rest})


def read_graph(piece: Document) -> PieceGraph:
    """Of a piece, from ``graph.json``."""
    nodes, edges = piece["graph"]["nodes"], piece["graph"]["edges"]
    regions = defaultdict[str, list[Document]](list)
    for node in nodes:
        if node["kind"] == "region":
            regions[node["tissue"]].append(node)
    return PieceGraph(
        text=read_as(tuple[str, ...], piece["text"]),
        nodes=tuple(_read_node(node, regions[node["id"]]) for node in nodes if node["kind"] == "tissue"),
        edges=tuple(read_as(Edge, edge) for edge in edges if edge["kind"] == "boundary"),
    )


def _read_node(node: Document, regions: Sequence[Document]) -> Node:
    names = {"name": node["id"], "title": node.get("title") or node["id"], **_means(regions)}
    found: Node = read_as(Node, {**node, **names})
    return found


def _means(regions: Sequence[Document]) -> Document:
    """Of a tissue, from its regions; what a person named is no part of the network's confidence."""
    areas, person = [number(region["area_mm2"]) for region in regions], [0.0] * len(regions)
    corrected = any("by_hand" in region for region in regions)
    if corrected:
        person = [number(region.get("by_hand", 0)) + number(region.get("followed", 0)) for region in regions]
    rows = [*zip(regions, areas, person, strict=True)]
    known = [(number(r["confidence"]), area * (1 - share)) for r, area, share in rows if "confidence" in r]
    by_person = weighted_mean([*zip(person, areas, strict=True)]) if corrected else None
    return {"confidence": weighted_mean(known), "by_person": by_person}


def read_network(document: Document | None) -> Network | None:
    """From ``graph.json``; None for a network without relations."""
    if document is None:
        return None
    network: Network = read_as(Network, document)
    matrices = (*network.attention, network.edge_windows, network.edge_weight)
    if any({len(each), *map(len, each)} != {len(network.names)} for each in matrices if each is not None):
        raise ValueError("relations of the network do not fit their names")
    if not {name for edge in network.strongest_windows for name in (edge.source, edge.target)} <= {*network.names}:
        raise ValueError("windows of unknown tissues")
    return network


def weighted_mean(known: Sequence[tuple[float, float]]) -> float | None:
    """Of values, weighted by areas."""
    total = sum(area for _, area in known)
    return sum(value * area for value, area in known) / total if total > 0 else None
