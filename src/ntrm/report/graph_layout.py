"""Where circles, lines and arrows of a tissue graph go: size by area, width by boundary or by attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations
from typing import Any, NamedTuple

from ntrm.core.wording import OUTSIDE, area_text
from ntrm.report.html import share_text
from ntrm.results.documents import Edge, Network, Node

WIDTH, HEIGHT = 580.0, 430.0
REACH = (175.0, 155.0)  # Half axes of the ellipse on which the tissues stand
SMALL, LARGE = 6.0, 30.0  # Radii of nodes
THIN, THICK = 0.8, 16.0  # Widths of edges
LEAST_SHOWN = 0.1  # Of the strongest: weaker ones of the network's relations are left out of its drawing

Graph = dict[str, Any]  # What graph.svg shows


def _circle(
    name: str, centre: complex, radius: float, index: int | None, tooltip: str = "", suffix: str = ""
) -> dict[str, object]:
    """A tissue, and its name, which stands away from the middle, so that no line runs through it.

    ``index`` is its class's, None for the outside; ``suffix`` stands after the name.
    """
    x, y = centre.real, centre.imag
    right, down = (x - WIDTH / 2) / REACH[0], (y - HEIGHT / 2) / REACH[1]
    if abs(right) >= 0.3:
        anchor, label = "start" if right > 0 else "end", (x + math.copysign(radius + 6, right), y + 4.5)
    else:
        below = down > 0 or not (right or down)
        anchor, label = "middle", (x, y + radius + 15 if below else y - radius - 6)
    node = {"name": name, "centre": (x, y), "radius": radius, "index": index, "tooltip": tooltip, "suffix": suffix}
    return node | {"label": label, "anchor": anchor}


def ellipse(names: Sequence[str]) -> dict[str, complex]:
    """Points on an ellipse (the imaginary part goes down), clockwise from the top; one alone in the middle.

    >>> ellipse(["EPI"])
    {'EPI': (290+215j)}
    """
    across, down = REACH if len(names) > 1 else (0.0, 0.0)
    angles = (2 * math.pi * k / len(names) for k in range(len(names)))
    middle = complex(WIDTH / 2, HEIGHT / 2)
    return {n: middle + complex(across * math.sin(a), -down * math.cos(a)) for n, a in zip(names, angles, strict=True)}


def width_of(value: float, most: float) -> float:
    """Width of a line for a value between 0 and ``most``.

    >>> width_of(0, 5), width_of(5, 5)
    (0.8, 16.0)
    """
    return THIN + (THICK - THIN) * (value / most if most > 0 else 0.0)


def _graph(title: str, nodes: Sequence[object], **edges: Sequence[object]) -> Graph:
    return {"title": title, "width": WIDTH, "height": HEIGHT, "nodes": nodes, "lines": (), "arrows": (), **edges}


def graph_drawing(nodes: Sequence[Node], edges: Sequence[Edge], order: Sequence[str], cancers: set[str]) -> Graph:
    """The tissue graph as a drawing; circles follow ``order``, the list of all classes. Edges of cancers stand out."""
    present = {node.id for node in nodes} | {name for edge in edges for name in (edge.source, edge.target)}
    at = ellipse([name for name in (OUTSIDE, *order) if name in present])
    longest, lines = max((edge.boundary_mm for edge in edges), default=0.0), []
    for edge in sorted(edges, key=lambda edge: -edge.boundary_mm):
        pair, shares = (edge.source, edge.target), (edge.share_of_source, edge.share_of_target)
        of = ", ".join(f"{share_text(share)} of {name}" for name, share in zip(pair, shares, strict=True))
        lines.append(
            {
                "start": at[edge.source],
                "end": at[edge.target],
                "width": width_of(edge.boundary_mm, longest),
                "tooltip": f"{' – '.join(pair)}: {edge.boundary_mm:.2f} mm, {of}",
                "cancer": not cancers.isdisjoint(pair),
            }
        )
    circles = [_circle(OUTSIDE, at[OUTSIDE], SMALL + 3, None)] if OUTSIDE in at else []
    total, largest = sum(node.area_mm2 for node in nodes), max((node.area_mm2 for node in nodes), default=0.0) or 1.0
    for node in nodes:
        # A node's area grows with its tissue's.
        radius = SMALL + (LARGE - SMALL) * math.sqrt(node.area_mm2 / largest)
        tooltip = f"{node.id}, {node.title}: {area_text(node.area_mm2)} mm² in {node.regions} regions"
        fraction = share_text(node.area_mm2 / total if total else None)
        circles.append(_circle(node.id, at[node.id], radius, order.index(node.id), tooltip, fraction))
    return _graph("Tissue graph", circles, lines=lines)


class Relation(NamedTuple):
    """What one tissue took from another, as means over windows."""

    sender: str
    receiver: str
    attention: float  # Mean over the layers, too
    layers: tuple[float, ...]  # Attention by layer
    windows: int  # How many have the edge
    weight: float | None  # Of the edge, where the network trains it


def strongest(network: Network, count: int) -> list[Relation]:
    """Relations between two tissues, the strongest first."""
    attention, weight, relations = network.mean_attention, network.edge_weight, []
    for (i, sender), (j, receiver) in permutations(enumerate(network.names), 2):
        if attention[i][j] > 0:
            layers = tuple(layer[i][j] for layer in network.attention)
            known = None if weight is None else weight[i][j]
            relations.append(Relation(sender, receiver, attention[i][j], layers, network.edge_windows[i][j], known))
    return sorted(relations, key=lambda relation: -relation.attention)[:count]


def network_graph(network: Network, order: Sequence[str]) -> Graph:
    """The network's attention: an arrow from sender to receiver, as wide as the attention is strong."""
    relations = strongest(network, len(network.names) ** 2)
    most = relations[0].attention if relations else 0.0
    shown = [relation for relation in relations if relation.attention >= LEAST_SHOWN * most]
    present = {name for relation in shown for name in (relation.sender, relation.receiver)}
    at, arrows = ellipse([name for name in order if name in present]), []
    for one in shown:
        start, end, width = at[one.sender], at[one.receiver], 0.45 * width_of(one.attention, most)
        # Bent, so that the ways there and back are apart; the head is drawn by itself, since no marker scales well.
        bend = (start + end) / 2 + 0.16j * (end - start)
        way = (end - bend) / (abs(end - bend) or 1.0)
        base, side = end - (16 + width) * way, 0.45j * (6 + width) * way
        told = f"{one.sender} → {one.receiver}: attention {one.attention:.3f} in {one.windows} windows"
        head = (end - 10 * way, base + side, base - side)
        arrows.append({"start": start, "bend": bend, "end": base, "head": head, "width": width, "tooltip": told})
    circles = [_circle(name, centre, 9, order.index(name)) for name, centre in at.items()]
    return _graph("What the network used", circles, arrows=arrows)
