"""The stages of the tissue relation module for one window, from its own tensors, with the tissue graph as a picture."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from numpy.typing import NDArray

from ntrm.core.labels import LabelSchema
from ntrm.core.pixels import sampled
from ntrm.inference.predictor import TissueRelations
from ntrm.report.drawing import (
    FAINT,
    FEATURES,
    INK,
    Sheet,
    draw_legend,
    faded,
    heat_map,
    legend_height,
    plain,
    show_message,
    shrink_image,
    shrink_mask,
    tissue_swatches,
)
from ntrm.report.network_trace import RelationTrace

_WIDTH, _LEFT, _HEAD = 12.4, 0.3, 0.62
_TILE, _TILE_STEP, _TILE_ROW, _ACROSS = 1.4, 1.5, 1.72, 8
_GRAPH, _HEAT, _HEAT_STEP, _HEAT_ROW = 4.1, 3.1, 4.1, 3.85
_MAP, _MAP_STEP = 2.4, 3.05

THIN, THICK = 0.5, 5.0
"""Widths in points of arrows for boundary ratios 0 and 1."""
_SMALL, _LARGE = 6.0, 15.0
"""Radii of nodes in points."""

Point = tuple[float, float]


def norm(features: NDArray[np.float32]) -> NDArray[np.float64]:
    """Length of the vector at every pixel: (C, H, W) → (H, W)."""
    length: NDArray[np.float64] = np.sqrt(np.square(features, dtype=np.float64).sum(axis=0))
    return length


def robust_top(*maps: NDArray[np.float64]) -> float:
    """Upper end of a scale: the 99th percentile, so that one bright pixel does not darken all the others."""
    top = float(np.percentile(np.concatenate([values.ravel() for values in maps]), 99))
    return top if top > 0 else 1.0


def draw_relation(trace: RelationTrace) -> Figure:
    """Reg; Node, Adj and Bnd; Attn or Sum; Proj: one section below the other."""
    legend, layers = tissue_swatches(trace.schema), len(trace.graph.attention)
    graph_top = 0.15 + _HEAD + _tile_rows(trace) * _TILE_ROW + 0.1
    layers_top = graph_top + _HEAD + _GRAPH + 0.15
    projection_top = layers_top + _HEAD + (-(-layers // 3) * _HEAT_ROW if layers else 0.1)
    bottom = projection_top + _HEAD + _MAP + 0.45
    sheet = Sheet(_WIDTH, bottom + legend_height(legend, _WIDTH) + 0.1)
    _draw_regions(sheet, trace, 0.15)
    _draw_graph(sheet, trace, graph_top)
    _draw_layers(sheet, trace, layers_top)
    _draw_projection(sheet, trace, projection_top)
    draw_legend(sheet.figure, legend, bottom=0.12)
    return sheet.figure


def _tile_rows(trace: RelationTrace) -> int:
    return -(-(len(trace.present) + 2) // _ACROSS)


def _head(sheet: Sheet, top: float, stage: str, text: str) -> None:
    sheet.text(_LEFT, top, stage, 12, fontweight="bold")
    sheet.text(_LEFT, top + 0.25, text, 9, color=FAINT)


def _draw_regions(sheet: Sheet, trace: RelationTrace, top: float) -> None:
    tau = f"exceeds τ = {trace.config.tau:g}"
    kinds = {
        "hard": f"where the largest p within 3 × 3 places {tau}",
        "plain": f"where p {tau}",
        "soft": f"p itself; present where the largest p within 3 × 3 places {tau}",
    }
    _head(sheet, top, "Reg", f"a mask for each tissue, {kinds[trace.config.masks]}; masks may overlap")
    pictures = [("window", shrink_image(trace.image)), ("coarse prediction", trace.schema.colourise(trace.coarse))]
    for tissue in trace.present:
        title = f"{trace.schema.names[tissue]} ({trace.graph.area[tissue]:,.0f} places)"
        pictures.append((title, _region(trace, tissue)))
    across = -(-len(pictures) // _tile_rows(trace))
    for number, (title, picture) in enumerate(pictures):
        left, upper = _LEFT + number % across * _TILE_STEP, top + _HEAD + number // across * _TILE_ROW
        sheet.picture(left, upper + 0.12, _TILE, picture)
        sheet.text(left, upper - 0.07, title, 8)


def _region(trace: RelationTrace, tissue: int) -> NDArray[np.uint8]:
    """The mask in its tissue's colour over the grey window on the same grid."""
    mask = trace.masks[tissue]
    ground = 0.65 * sampled(faded(trace.image), mask.shape)  # dark enough for tissues that are nearly white
    weight = mask[..., None]
    mixed: NDArray[np.uint8] = (weight * trace.schema.palette[tissue] + (1 - weight) * ground).round().astype(np.uint8)
    return mixed


def _draw_graph(sheet: Sheet, trace: RelationTrace, top: float) -> None:
    kinds = {
        "adjacency": "an edge where two tissues touch",
        "complete": "an edge between all tissues that are present",
        "none": "no edges in this variant",
    }
    linked = "; absent tissues send to all present ones" if trace.config.absent == "linked" else ""
    text = f"a node for each tissue, its features averaged over its mask; {kinds[trace.config.graph]}{linked}"
    _head(sheet, top, "Node · Adj · Bnd", text)
    upper, right = top + _HEAD - 0.05, _LEFT + _GRAPH + 0.65
    below = upper + _GRAPH - 0.15
    draw_graph(sheet.axes(_LEFT, upper, _GRAPH, _GRAPH - 0.2), trace.graph, trace.schema)
    text = "width of an arrow: share of the sender that touches the receiver"
    sheet.text(_LEFT, below, text, 8, color=FAINT)
    tables = {"Bnd: share of the row that touches the column": trace.graph.boundary}
    if trace.graph.edge_weights is not None:
        tables["Weight of the edge from row to column"] = trace.graph.edge_weights
    for number, (title, values) in enumerate(tables.items()):
        _heat(sheet.axes(right + number * (_HEAT + 0.75), upper + 0.3, _HEAT, _HEAT), trace, values, title)
    absent = [name for name, present in zip(trace.schema.names, trace.graph.presence, strict=True) if not present]
    words = [f"absent: {', '.join(absent)}" if absent else "every tissue is present"]
    if trace.graph.edge_weights is None and trace.config.graph != "none":
        words.append("edge weights: not used by this model")
    sheet.text(right, below, "; ".join(words), 8, color=FAINT)


def _draw_layers(sheet: Sheet, trace: RelationTrace, top: float) -> None:
    config = trace.config
    if config.graph == "none":
        _head(sheet, top, "No messages", "in this variant the nodes are projected as they were pooled")
        return
    if config.layer == "sum":
        weight = "its edge weight" if config.edge_weight else "1"
        _head(sheet, top, "Sum", f"{config.layers} layers without attention: every message counts {weight}")
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
    text = f"nodes back onto the places of their masks: {after} = {before} + S'; norm over the channels"
    _head(sheet, top, "Proj", text)
    upper = top + _HEAD + 0.1
    features, projected, refined = norm(trace.features), norm(trace.projected), norm(trace.refined)
    shared = robust_top(features, refined)
    maps = [(before, features, shared), ("S'", projected, robust_top(projected)), (after, refined, shared)]
    for number, (name, values, most) in enumerate(maps):
        left = _LEFT + number * _MAP_STEP
        shown = sheet.picture(left, upper, _MAP, values, cmap=FEATURES, vmin=0, vmax=most)
        scale = sheet.axes(left + _MAP + 0.06, upper, 0.1, _MAP)
        sheet.figure.colorbar(shown, cax=scale, extend="max").ax.tick_params(labelsize=7)
        sheet.text(left, upper - 0.19, f"norm of {name}", 8)
    left = _LEFT + 3 * _MAP_STEP
    sheet.picture(left, upper, _MAP, shrink_mask(trace.mask, trace.schema))
    sheet.text(left, upper - 0.19, "final mask", 8)


def shown_tissues(graph: TissueRelations) -> list[int]:
    """Present tissues, and absent ones that have an edge."""
    linked = graph.adjacency.any(axis=0) | graph.adjacency.any(axis=1)
    return [int(tissue) for tissue in np.flatnonzero(graph.presence | linked)]


def edge_width(ratio: float) -> float:
    """Width of an arrow: grows with the fraction of the sender's pixels that touch the receiver.

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
        show_message(axes, "no tissue was proposed")
        return
    points, radii = _circle(tissues), _radii(graph, tissues, size / 9)
    # The bend takes the arrows there and back to different sides.
    style: dict[str, Any] = {"connectionstyle": "arc3,rad=0.13", "arrowstyle": "-|>", "mutation_scale": 8}
    for source, target in np.argwhere(graph.adjacency).tolist():
        arrow = FancyArrowPatch(
            points[source], points[target], shrinkA=radii[source], shrinkB=radii[target] + 1, color=FAINT, **style
        )
        width = edge_width(float(graph.boundary[source, target]))
        arrow.set(lw=width, alpha=0.65, gid=f"edge {source} {target}")
        axes.add_patch(arrow)
    for tissue in tissues:
        _draw_node(axes, schema, tissue, points[tissue], radii[tissue], bool(graph.presence[tissue]), size)


def _circle(tissues: list[int]) -> dict[int, Point]:
    """Points on a circle, clockwise from the top; one alone in the middle."""
    angles = [math.pi / 2 - 2 * math.pi * k / len(tissues) for k in range(len(tissues))]
    reach = 1.0 if len(tissues) > 1 else 0.0
    return {t: (reach * math.cos(a), reach * math.sin(a)) for t, a in zip(tissues, angles, strict=True)}


def _radii(graph: TissueRelations, tissues: list[int], scale: float) -> dict[int, float]:
    """In points; the area of a node grows with the area of its tissue."""
    largest = max(float(graph.area.max()), 1.0)
    return {t: scale * (_SMALL + (_LARGE - _SMALL) * math.sqrt(float(graph.area[t]) / largest)) for t in tissues}


def _draw_node(
    axes: Any, schema: LabelSchema, tissue: int, point: Point, radius: float, present: bool, size: float
) -> None:
    fill = schema.palette[tissue] / 255.0 if present else "white"
    axes.plot(*point, "o", ms=2 * radius, mfc=fill, mec=INK, mew=0.9, gid=f"node {tissue}")
    x, y = point if any(point) else (0.0, 1.0)
    across = "center" if abs(x) < 0.2 else ("left" if x > 0 else "right")
    along = "center" if abs(y) < 0.9 else ("bottom" if y > 0 else "top")
    name = plain(schema.names[tissue])
    offset = {"xytext": ((radius + 3) * x, (radius + 3) * y), "textcoords": "offset points"}
    axes.annotate(name if present else f"({name})", point, fontsize=size, color=INK, ha=across, va=along, **offset)
