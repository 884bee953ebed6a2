"""Where circles and lines of a tissue graph go: size by area, width by boundary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ntrm.core.wording import OUTSIDE, area_text
from ntrm.report.html import share_text
from ntrm.results.documents import Edge, Node

WIDTH, HEIGHT = 580.0, 430.0
REACH = (175.0, 155.0)  # Half axes of the ellipse on which the tissues stand
SMALL, LARGE = 6.0, 30.0  # Radii of nodes
THIN, THICK = 0.8, 16.0  # Widths of edges

Graph = dict[str, Any]  # What graph.svg shows


def _circle(
    name: str, centre: complex, radius: float, index: int | None, tooltip: str = "", suffix: str = ""
) -> dict[str, object]:
    """A tissue of a class, None for the outside; its name stands away from the middle, where no line runs through."""
    x, y = centre.real, centre.imag
    right = (x - WIDTH / 2) / REACH[0]
    if abs(right) >= 0.3:
        anchor, label = "start" if right > 0 else "end", (x + math.copysign(radius + 6, right), y + 4.5)
    else:
        anchor, label = "middle", (x, y - radius - 6 if y < HEIGHT / 2 else y + radius + 15)
    node = {"name": name, "centre": (x, y), "radius": radius, "index": index, "tooltip": tooltip, "suffix": suffix}
    return node | {"label": label, "anchor": anchor}


def graph_drawing(nodes: Sequence[Node], edges: Sequence[Edge], order: Sequence[str], cancers: set[str]) -> Graph:
    """The tissue graph as a drawing; circles follow ``order``, the list of all classes. Edges of cancers stand out."""
    present = {node.id for node in nodes} | {name for edge in edges for name in (edge.source, edge.target)}
    # On an ellipse (the imaginary part goes down), clockwise from the top; one alone in the middle.
    names, at = [name for name in (OUTSIDE, *order) if name in present], {}
    for name, angle in zip(names, np.linspace(0, 2 * math.pi, len(names), endpoint=False).tolist(), strict=True):
        out = complex(REACH[0] * math.sin(angle), -REACH[1] * math.cos(angle)) if len(names) > 1 else 0
        at[name] = complex(WIDTH / 2, HEIGHT / 2) + out
    longest, lines = max((edge.boundary_mm for edge in edges), default=0.0) or 1.0, []
    for edge in sorted(edges, key=lambda edge: -edge.boundary_mm):
        one, other, width = edge.source, edge.target, THIN + (THICK - THIN) * edge.boundary_mm / longest
        told = f"{one} – {other}: {edge.boundary_mm:.2f} mm, {share_text(edge.share_of_source)} of {one}"
        told += f", {share_text(edge.share_of_target)} of {other}"
        line = {"start": at[one], "end": at[other], "width": width, "tooltip": told}
        lines.append(line | {"cancer": not cancers.isdisjoint((one, other))})
    circles = [_circle(OUTSIDE, at[OUTSIDE], SMALL + 3, None)] if OUTSIDE in at else []
    total, largest = sum(node.area_mm2 for node in nodes), max((node.area_mm2 for node in nodes), default=0.0) or 1.0
    for node in nodes:
        # A node's area grows with its tissue's.
        radius = SMALL + (LARGE - SMALL) * math.sqrt(node.area_mm2 / largest)
        tooltip = f"{node.id}, {node.title}: {area_text(node.area_mm2)} mm² in {node.regions} regions"
        fraction = share_text(node.area_mm2 / total if total else None)
        circles.append(_circle(node.id, at[node.id], radius, order.index(node.id), tooltip, fraction))
    return {"width": WIDTH, "height": HEIGHT, "nodes": circles, "lines": lines}
