"""The stages of the tissue relation module for one window, from its own tensors, with the tissue graph as a picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from numpy.typing import NDArray

from ntrm.core.labels import LabelSchema
from ntrm.inference.predictor import TissueRelations
from ntrm.report.drawing import (
    FAINT,
    INK,
    Sheet,
    draw_legend,
    faded,
    heat_map,
    legend_height,
    plain,
    say_nothing_here,
    shrink_image,
    shrink_mask,
    tissue_swatches,
)
from ntrm.report.network_trace import RelationTrace

FEATURES = "cividis"
"""A map whose lightness alone carries the value."""

_WIDTH, _LEFT, _HEAD = 12.4, 0.3, 0.62
_TILE, _TILE_STEP, _TILE_ROW, _ACROSS = 1.4, 1.5, 1.72, 8
_GRAPH, _HEAT, _HEAT_STEP, _HEAT_ROW = 4.1, 3.1, 4.1, 3.85
_MAP, _MAP_STEP = 2.4, 3.05

THIN, THICK = 0.5, 5.0
"""Widths in points of arrows for boundary ratios 0 and 1."""

Place = tuple[float, float]

_SMALL, _LARGE = 6.0, 15.0

_ALONE = "no tissue was proposed"


@dataclass(frozen=True)
class _Layout:
    """Upper edges in inches of the parts below each other."""

    graph: float
    layers: float
    projection: float
    height: float


def norm(features: NDArray[np.float32]) -> NDArray[np.float64]:
    """Length of the vector at every place: (C, H, W) → (H, W)."""
    length: NDArray[np.float64] = np.sqrt(np.square(features, dtype=np.float64).sum(axis=0))
    return length


def robust_top(*maps: NDArray[np.float64]) -> float:
    """Upper end of a scale: the 99th percentile, so that one bright place does not darken all the others."""
    top = float(np.percentile(np.concatenate([values.ravel() for values in maps]), 99))
    return top if top > 0 else 1.0


def draw_relation(trace: RelationTrace) -> Figure:
    """Reg; Node, Adj and Bnd; Attn or Sum; Proj: one part below the other."""
    legend = tissue_swatches(trace.schema)
    layout = _lay_out(trace, legend_height(legend, _WIDTH))
    sheet = Sheet(_WIDTH, layout.height)
    _draw_regions(sheet, trace, 0.15)
    _draw_graph(sheet, trace, layout.graph)
    _draw_layers(sheet, trace, layout.layers)
    _draw_projection(sheet, trace, layout.projection)
    draw_legend(sheet.figure, legend, bottom=0.12)
    return sheet.figure


def _lay_out(trace: RelationTrace, legend: float) -> _Layout:
    graph = 0.15 + _HEAD + _tile_rows(trace) * _TILE_ROW + 0.1
    layers = graph + _HEAD + _GRAPH + 0.15
    count = len(trace.graph.attention)
    projection = layers + _HEAD + (-(-count // 3) * _HEAT_ROW if count else 0.1)
    bottom = projection + _HEAD + _MAP + 0.45
    return _Layout(graph, layers, projection, bottom + legend + 0.1)


def _tile_rows(trace: RelationTrace) -> int:
    return -(-(len(trace.present) + 2) // _ACROSS)


def _head(sheet: Sheet, top: float, stage: str, words: str) -> None:
    sheet.words(_LEFT, top, stage, 12, fontweight="bold")
    sheet.words(_LEFT, top + 0.25, words, 9, color=FAINT)


def _draw_regions(sheet: Sheet, trace: RelationTrace, top: float) -> None:
    kinds = {
        "hard": f"where the largest p within 3 × 3 places exceeds τ = {trace.config.tau:g}",
        "plain": f"where p exceeds τ = {trace.config.tau:g}",
        "soft": f"p itself; present where the largest p within 3 × 3 places exceeds τ = {trace.config.tau:g}",
    }
    _head(sheet, top, "Reg", f"a mask for each tissue, {kinds[trace.config.masks]}; masks may overlap")
    pictures = [("window", shrink_image(trace.image)), ("coarse prediction", trace.schema.colourise(trace.coarse))]
    pictures += [
        (f"{trace.schema.names[tissue]} {_area(trace, tissue)}", _region(trace, tissue)) for tissue in trace.present
    ]
    across = -(-len(pictures) // _tile_rows(trace))
    for place, (title, picture) in enumerate(pictures):
        left, upper = _LEFT + place % across * _TILE_STEP, top + _HEAD + place // across * _TILE_ROW
        sheet.picture(left, upper + 0.12, _TILE, picture)
        sheet.words(left, upper - 0.07, title, 8)


def _area(trace: RelationTrace, tissue: int) -> str:
    return f"({trace.graph.area[tissue]:,.0f} places)"


def _region(trace: RelationTrace, tissue: int) -> NDArray[np.uint8]:
    """The mask in its tissue's colour over the grey window on the same grid."""
    height, width = trace.masks.shape[1:]
    rows, columns = (
        ((np.arange(side) + 0.5) * full / side).astype(int)
        for side, full in ((height, trace.image.shape[0]), (width, trace.image.shape[1]))
    )
    ground = 0.65 * faded(trace.image)[rows][:, columns]  # dark enough for tissues that are nearly white
    share = trace.masks[tissue][..., None]
    mixed: NDArray[np.uint8] = (share * trace.schema.palette[tissue] + (1 - share) * ground).round().astype(np.uint8)
    return mixed


def _draw_graph(sheet: Sheet, trace: RelationTrace, top: float) -> None:
    kinds = {
        "adjacency": "an edge where two tissues touch",
        "complete": "an edge between all tissues that are present",
        "none": "no edges in this variant",
    }
    linked = "; absent tissues send to all present ones" if trace.config.absent == "linked" else ""
    words = f"a node for each tissue, its features averaged over its mask; {kinds[trace.config.graph]}{linked}"
    _head(sheet, top, "Node · Adj · Bnd", words)
    upper = top + _HEAD - 0.05
    draw_graph(sheet.axes(_LEFT, upper, _GRAPH, _GRAPH - 0.2), trace.graph, trace.schema)
    sheet.words(
        _LEFT, upper + _GRAPH - 0.15, "width of an arrow: share of the sender that touches the receiver", 8, color=FAINT
    )
    unused = "" if trace.config.edge_weight else " (not used)"
    absent = [name for name, here in zip(trace.schema.names, trace.graph.presence, strict=True) if not here]
    tables = (
        ("Bnd: share of the row that touches the column", trace.graph.boundary),
        (f"Weight of the edge from row to column{unused}", trace.graph.edge_weights),
    )
    for place, (title, values) in enumerate(tables):
        axes = sheet.axes(_LEFT + _GRAPH + 0.65 + place * (_HEAT + 0.75), upper + 0.3, _HEAT, _HEAT)
        _heat(axes, trace, values, title)
    note = f"absent: {', '.join(absent)}" if absent else "every tissue is present"
    sheet.words(_LEFT + _GRAPH + 0.65, upper + _GRAPH - 0.15, note, 8, color=FAINT)


def _draw_layers(sheet: Sheet, trace: RelationTrace, top: float) -> None:
    config = trace.config
    if config.graph == "none":
        _head(sheet, top, "No messages", "in this variant the nodes are projected as they were pooled")
        return
    if config.layer == "sum":
        weighed = "its edge weight" if config.edge_weight else "1"
        _head(sheet, top, "Sum", f"{config.layers} layers without attention: every message counts {weighed}")
        return
    _head(sheet, top, "Attn", "who listens to whom: the attention of a column’s tissue sums to 1 over the rows")
    for layer, attention in enumerate(trace.graph.attention):
        left, upper = _LEFT + 0.4 + layer % 3 * _HEAT_STEP, top + _HEAD + layer // 3 * _HEAT_ROW
        _heat(sheet.axes(left, upper + 0.25, _HEAT, _HEAT), trace, attention, f"layer {layer + 1}")


def _heat(axes: Any, trace: RelationTrace, values: NDArray[np.float32], title: str) -> None:
    """Sender → receiver; cells of absent tissues without an edge are greyed."""
    graph = trace.graph
    meaning = graph.adjacency | (graph.presence[:, None] & graph.presence[None, :])
    np.fill_diagonal(meaning, False)
    heat_map(axes, np.asarray(values, dtype=np.float64), trace.schema.names, grey=~meaning, size=5.5, aspect="equal")
    axes.set_title(title, loc="left", fontsize=9, pad=5)


def _draw_projection(sheet: Sheet, trace: RelationTrace, top: float) -> None:
    before, after = trace.names
    _head(
        sheet,
        top,
        "Proj",
        f"nodes back onto the places of their masks: {after} = {before} + S'; norm over the channels",
    )
    upper = top + _HEAD + 0.1
    maps = [(before, norm(trace.features)), ("S'", norm(trace.projected)), (after, norm(trace.refined))]
    shared = robust_top(maps[0][1], maps[2][1])
    for place, (title, values) in enumerate(maps):
        left, top_value = _LEFT + place * _MAP_STEP, robust_top(values) if place == 1 else shared
        drawn = sheet.picture(left, upper, _MAP, values, cmap=FEATURES, vmin=0, vmax=top_value)
        ruler = sheet.axes(left + _MAP + 0.06, upper, 0.1, _MAP)
        sheet.figure.colorbar(drawn, cax=ruler, extend="max").ax.tick_params(labelsize=7)
        sheet.words(left, upper - 0.19, f"norm of {title}", 8)
    left = _LEFT + 3 * _MAP_STEP
    sheet.picture(left, upper, _MAP, shrink_mask(trace.mask, trace.schema))
    sheet.words(left, upper - 0.19, "final mask", 8)


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
