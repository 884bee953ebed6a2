"""The tissue graph as a picture: tissues on a circle, an arrow for every edge."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.patches import FancyArrowPatch

from ntrm.core.labels import LabelSchema
from ntrm.inference.predictor import TissueRelations
from ntrm.report.drawing import FAINT, INK, plain, say_nothing_here

THIN, THICK = 0.5, 5.0
"""Widths in points of arrows for boundary ratios 0 and 1."""

Place = tuple[float, float]

_SMALL, _LARGE = 6.0, 15.0
_ALONE = "no tissue was proposed"


def shown_tissues(graph: TissueRelations) -> list[int]:
    """Present tissues, and absent ones that have an edge."""
    linked = graph.adjacency.any(axis=0) | graph.adjacency.any(axis=1)
    return [int(tissue) for tissue in np.flatnonzero(graph.presence | linked)]


def edge_width(ratio: float) -> float:
    """Width of an arrow: grows with the share of the sender's pixels that touch the receiver.

    >>> edge_width(0.0), edge_width(1.0)
    (0.5, 5.0)
    """
    return THIN + (THICK - THIN) * min(max(ratio, 0.0), 1.0)


def draw_graph(axes: Any, graph: TissueRelations, schema: LabelSchema, *, size: float = 9) -> None:
    """Nodes in their tissues' colours, larger for larger areas, hollow where absent; arrows from sender to receiver.

    ``size`` of the names in points; nodes and arrows go with it.
    """
    axes.set_xlim(-1.5, 1.5)
    axes.set_ylim(-1.4, 1.4)
    axes.set_aspect("equal")
    axes.set_axis_off()
    tissues = shown_tissues(graph)
    if not tissues:
        say_nothing_here(axes, _ALONE)
        return
    places, radii = _places(tissues), _radii(graph, tissues, size / 9)
    for source, target in np.argwhere(graph.adjacency):
        _arrow(axes, graph, int(source), int(target), places, radii)
    for tissue in tissues:
        _node(axes, schema, tissue, places[tissue], radii[tissue], present=bool(graph.presence[tissue]), size=size)


def _places(tissues: list[int]) -> dict[int, Place]:
    """On a circle, clockwise from the top; one alone in the middle."""
    angles = [math.pi / 2 - 2 * math.pi * k / len(tissues) for k in range(len(tissues))]
    reach = 1.0 if len(tissues) > 1 else 0.0
    return {t: (reach * math.cos(a), reach * math.sin(a)) for t, a in zip(tissues, angles, strict=True)}


def _radii(graph: TissueRelations, tissues: list[int], scale: float) -> dict[int, float]:
    """In points; the area of a node grows with the area of its tissue."""
    largest = max(float(graph.area.max()), 1.0)
    return {t: scale * (_SMALL + (_LARGE - _SMALL) * math.sqrt(float(graph.area[t]) / largest)) for t in tissues}


def _arrow(
    axes: Any,
    graph: TissueRelations,
    source: int,
    target: int,
    places: dict[int, Place],
    radii: dict[int, float],
) -> None:
    arrow = FancyArrowPatch(
        places[source],
        places[target],
        connectionstyle="arc3,rad=0.13",  # bends the way there and the way back to different sides
        arrowstyle="-|>",
        mutation_scale=8,
        shrinkA=radii[source],
        shrinkB=radii[target] + 1,
        linewidth=edge_width(float(graph.boundary[source, target])),
        color=FAINT,
        alpha=0.65,
        gid=f"edge {source} {target}",
    )
    axes.add_patch(arrow)


def _node(
    axes: Any,
    schema: LabelSchema,
    tissue: int,
    place: Place,
    radius: float,
    *,
    present: bool,
    size: float,
) -> None:
    axes.plot(
        *place,
        marker="o",
        markersize=2 * radius,
        markerfacecolor=schema.palette[tissue] / 255.0 if present else "white",
        markeredgecolor=INK,
        markeredgewidth=0.9,
        linestyle="none",
        gid=f"node {tissue}",
    )
    out = place if any(place) else (0.0, 1.0)
    across = "center" if abs(out[0]) < 0.2 else ("left" if out[0] > 0 else "right")
    along = "center" if abs(out[1]) < 0.9 else ("bottom" if out[1] > 0 else "top")
    name = plain(schema.names[tissue])
    axes.annotate(
        name if present else f"({name})",
        place,
        xytext=((radius + 3) * out[0], (radius + 3) * out[1]),
        textcoords="offset points",
        fontsize=size,
        color=INK,
        ha=across,
        va=along,
    )
