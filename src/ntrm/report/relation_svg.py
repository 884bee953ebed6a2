"""Tissue graphs as SVG: node size by area, edge width by boundary; and the relations that the network used."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from ntrm.report.formatting import area_text, share_text
from ntrm.report.page import Markup
from ntrm.report.slide_documents import OUTSIDE, Edge, Network, Node

WIDTH, HEIGHT = 580.0, 430.0
REACH = (175.0, 155.0)
"""Half axes of the ellipse on which the tissues stand."""
SMALL, LARGE = 6.0, 30.0
"""Radii of nodes."""
THIN, THICK = 0.8, 16.0
"""Widths of edges."""
LEAST_SHOWN = 0.1
"""Of the strongest: weaker ones of the network's relations are left out of its drawing."""

Place = tuple[float, float]


def places(names: Sequence[str]) -> dict[str, Place]:
    """On an ellipse, clockwise from the top; one alone in the middle.

    >>> places(["EPI"])
    {'EPI': (290.0, 215.0)}
    """
    across, down = REACH if len(names) > 1 else (0.0, 0.0)
    angles = [2 * math.pi * at / max(len(names), 1) for at in range(len(names))]
    return {
        name: (WIDTH / 2 + across * math.sin(angle), HEIGHT / 2 - down * math.cos(angle))
        for name, angle in zip(names, angles, strict=True)
    }


def radii(nodes: Sequence[Node]) -> dict[str, float]:
    """A node's area grows with its tissue's."""
    largest = max((node.area_mm2 for node in nodes), default=0.0) or 1.0
    sizes = {node.name: SMALL + (LARGE - SMALL) * math.sqrt(node.area_mm2 / largest) for node in nodes}
    return {**sizes, OUTSIDE: SMALL + 3}


def width_of(value: float, most: float) -> float:
    """Width of a line for a value between 0 and ``most``.

    >>> width_of(0, 5), width_of(5, 5)
    (0.8, 16.0)
    """
    return THIN + (THICK - THIN) * (value / most if most > 0 else 0.0)


def tissue_graph_svg(
    nodes: Sequence[Node], edges: Sequence[Edge], order: Sequence[str], cancers: frozenset[str]
) -> Markup:
    """Who borders on whom; edges of cancers stand out. ``order`` are all classes: each has its number and its place."""
    here = {node.name for node in nodes} | {name for edge in edges for name in (edge.one, edge.other)}
    at = places([name for name in (OUTSIDE, *order) if name in here])
    sizes = radii(nodes)
    longest = max((edge.boundary_mm for edge in edges), default=0.0)
    lines = "".join(_edge(edge, at, longest, cancers) for edge in sorted(edges, key=lambda each: -each.boundary_mm))
    outside = _outside(at[OUTSIDE], sizes[OUTSIDE]) if OUTSIDE in at else ""
    whole = sum(node.area_mm2 for node in nodes)
    circles = "".join(
        _node(node, at[node.name], sizes[node.name], order.index(node.name), node.area_mm2 / whole if whole else None)
        for node in nodes
    )
    return _svg("Tissue graph", f"{lines}{outside}{circles}")


def _edge(edge: Edge, at: Mapping[str, Place], longest: float, cancers: frozenset[str]) -> str:
    (x1, y1), (x2, y2) = at[edge.one], at[edge.other]
    kind = "edge cancer" if cancers & {edge.one, edge.other} else "edge"
    said = (
        f"{edge.one} – {edge.other}: {edge.boundary_mm:.2f} mm, {share_text(edge.share_of_one)} of {edge.one}, "
        f"{share_text(edge.share_of_other)} of {edge.other}"
    )
    return (
        f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke-width="{width_of(edge.boundary_mm, longest):.2f}"><title>{escape(said)}</title></line>'
    )


def _node(node: Node, place: Place, radius: float, index: int, share: float | None) -> str:
    said = f"{node.name}, {node.title}: {area_text(node.area_mm2)} mm² in {node.regions} regions"
    x, y = place
    return (
        f'<circle class="node" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.2f}" style="fill:var(--c{index})">'
        f"<title>{escape(said)}</title></circle>{_name(node.name, place, radius, share_text(share))}"
    )


def _outside(place: Place, radius: float) -> str:
    x, y = place
    shape = f'<circle class="node outside" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.2f}"/>'
    return shape + _name(OUTSIDE, place, radius, "")


def _name(name: str, place: Place, radius: float, beside: str) -> str:
    """Away from the middle, so that no line runs through it."""
    x, y = place
    out = (x - WIDTH / 2) / REACH[0], (y - HEIGHT / 2) / REACH[1]
    if abs(out[0]) < 0.3:
        down = out[1] > 0 or not any(out)
        where = (x, y + radius + 15 if down else y - radius - 6, "middle")
    else:
        where = (x + math.copysign(radius + 6, out[0]), y + 4.5, "start" if out[0] > 0 else "end")
    tail = f' <tspan class="faint">{escape(beside)}</tspan>' if beside else ""
    return f'<text x="{where[0]:.1f}" y="{where[1]:.1f}" text-anchor="{where[2]}">{escape(name)}{tail}</text>'


def strongest(network: Network, count: int) -> list[tuple[str, str, float, float]]:
    """Sender, receiver, attention and edge weight of the relations between two tissues, the strongest first."""
    found = [
        (one, other, network.attention[i][j], network.edge_weight[i][j])
        for i, one in enumerate(network.names)
        for j, other in enumerate(network.names)
        if i != j and network.attention[i][j] > 0
    ]
    return sorted(found, key=lambda each: -each[2])[:count]


def network_svg(network: Network, order: Sequence[str]) -> Markup:
    """Who was attended to by whom: a line from sender to receiver, as wide as the attention is strong."""
    every = strongest(network, len(network.names) ** 2)
    most = every[0][2] if every else 0.0
    shown = [each for each in every if each[2] >= LEAST_SHOWN * most]
    here = {name for each in shown for name in each[:2]}
    at = places([name for name in order if name in here])
    lines = "".join(_curve(one, other, at, value, most) for one, other, value, _ in shown)
    circles = "".join(
        f'<circle class="node" cx="{x:.1f}" cy="{y:.1f}" r="9" style="fill:var(--c{order.index(name)})"/>'
        f"{_name(name, (x, y), 9, '')}"
        for name, (x, y) in at.items()
    )
    return _svg("What the network used", f"{lines}{circles}")


def _curve(one: str, other: str, at: Mapping[str, Place], value: float, most: float) -> str:
    """Bent, so that the ways there and back are apart; an arrow head of its own, since no marker scales well."""
    (x1, y1), (x2, y2) = at[one], at[other]
    dx, dy = x2 - x1, y2 - y1
    bend = ((x1 + x2) / 2 - 0.16 * dy, (y1 + y2) / 2 + 0.16 * dx)
    length = math.dist(bend, (x2, y2)) or 1.0
    ux, uy = (x2 - bend[0]) / length, (y2 - bend[1]) / length
    width = 0.45 * width_of(value, most)
    head = 6 + width
    tip = (x2 - 10 * ux, y2 - 10 * uy)
    base = (tip[0] - head * ux, tip[1] - head * uy)
    side = (-uy * head * 0.45, ux * head * 0.45)
    wings = [(base[0] + side[0], base[1] + side[1]), (base[0] - side[0], base[1] - side[1])]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (tip, *wings))
    said = escape(f"{one} → {other}: attention {value:.3f}")
    return (
        f'<g class="arrow"><title>{said}</title><path d="M{x1:.1f} {y1:.1f}Q{bend[0]:.1f} {bend[1]:.1f} '
        f'{base[0]:.1f} {base[1]:.1f}" stroke-width="{width:.2f}"/><polygon points="{points}"/></g>'
    )


def _svg(title: str, inner: str) -> Markup:
    box = f"0 0 {WIDTH:.0f} {HEIGHT:.0f}"
    return Markup(f'<svg class="graph" viewBox="{box}" role="img" aria-label="{escape(title)}">{inner}</svg>')
