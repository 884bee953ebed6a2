"""The tissue relation module at work on one window: its stages, and the network around it, from a real forward pass."""

from __future__ import annotations

import copy
import math
import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from numpy.typing import NDArray
from torch import Tensor

from ntrm.core.arrays import Singles
from ntrm.core.errors import UsageError
from ntrm.core.labels import LabelSchema
from ntrm.core.pixels import sampled
from ntrm.models.base import SegmentationModel
from ntrm.models.ntrm import NTRM
from ntrm.models.predictor import Predictor, TissueRelations
from ntrm.models.trm import RelationConfig, TissueRelation
from ntrm.report import drawing
from ntrm.report.drawing import FAINT, FEATURES, INK


@dataclass(frozen=True, eq=False)
class RelationTrace:
    """What went into the relation of tissues and what came out, on its own grid, padding cut off."""

    image: NDArray[np.uint8]
    schema: LabelSchema
    config: RelationConfig
    names: tuple[str, str]  # What the features are called before and after: D2 and D2' in NTRM
    features: Singles  # (C, H2, W2)
    probabilities: Singles  # (K, H2, W2) coarse prediction p
    masks: Singles  # (K, H2, W2) Reg's masks as Proj uses them: 0 or 1, or probabilities in the soft variant
    projected: Singles  # (C, H2, W2) S'
    refined: Singles  # (C, H2, W2)
    graph: TissueRelations
    mask: NDArray[np.uint8]  # (H, W) final prediction

    @property
    def present(self) -> list[int]:
        """Tissues whose mask is not empty."""
        return [int(tissue) for tissue in np.flatnonzero(self.graph.presence)]

    @property
    def coarse(self) -> NDArray[np.uint8]:
        """(H2, W2) most probable tissue of the coarse prediction."""
        return np.asarray(self.probabilities.argmax(axis=0), dtype=np.uint8)


def trace_relation(network: SegmentationModel, image: NDArray[np.uint8]) -> RelationTrace:
    """Run one RGB window through a network with a tissue relation module, as the predictor does."""
    # A copy, because the predictor moves a network and puts it in evaluation mode, and hooks are left on it.
    network = copy.deepcopy(network)
    relation = next((module for module in network.modules() if isinstance(module, TissueRelation)), None)
    if relation is None:
        expected = "ntrm-paper (ntrm, the default, is that) or mit-trm"
        raise UsageError("the network has no tissue relation module", got=network.config.arch, expected=expected)
    caught: dict[str, Tensor] = {}
    relation.register_forward_hook(
        lambda _, given, out: caught.update(features=given[0], probabilities=given[1], refined=out[0])
    )
    relation.projection.register_forward_hook(lambda _, given, out: caught.update(masks=given[1], projected=out))
    predicted: Any = Predictor(network, device="cpu", precision="float32").predict(image, graph=True)
    stride = -(-image.shape[0] // network.multiple) * network.multiple // caught["features"].shape[2]
    high, wide = (-(-side // stride) for side in image.shape[:2])
    maps = {name: tensor[0, :, :high, :wide].float().numpy() for name, tensor in caught.items()}
    names = ("D2", "D2'") if isinstance(network, NTRM) else ("features", "refined")
    schema, config = network.config.schema, relation.config
    return RelationTrace(image, schema, config, names, graph=predicted.graph, mask=predicted.mask, **maps)


def norm(features: Singles) -> Singles:
    """Length of the vector at every pixel: (C, H, W) → (H, W)."""
    return np.asarray(np.linalg.norm(features, axis=0))


def robust_top(*maps: Singles) -> float:
    """Upper end of a scale: the 99th percentile, so that one bright pixel does not darken all the others."""
    return float(np.percentile(np.concatenate([values.ravel() for values in maps]), 99)) or 1.0


def pipeline_figure(network: SegmentationModel, image: NDArray[np.uint8]) -> Figure:
    """Window → features → coarse prediction → tissue graph → refined features → final mask."""
    trace = trace_relation(network, image)
    (before, after), features, refined = trace.names, norm(trace.features), norm(trace.refined)
    shape, edges = " × ".join(map(str, trace.features.shape)), int(trace.graph.adjacency.sum())
    scale = {"cmap": FEATURES, "vmin": 0, "vmax": robust_top(features, refined)}
    steps: list[tuple[str, str, Any, dict[str, Any]]] = [
        ("window", "{} × {} pixels".format(*image.shape[:2]), drawing.shrink_image(image), {}),
        ("→  features", f"{before}, {shape}\nbrightness: norm over the channels", features, scale),
        ("→  coarse prediction", "most probable tissue", trace.schema.colourise(trace.coarse), {}),
        ("→  tissue graph", f"{len(trace.present)} of {len(trace.schema)} tissues, {edges} edges", None, {}),
        ("→  refined features", f"{after} = {before} + S', {shape}\non the same scale", refined, scale),
        ("→  final mask", "most probable tissue of every pixel", drawing.shrink_mask(trace.mask, trace.schema), {}),
    ]
    figure = drawing.new_figure(15.9, 4.2)
    for axes, (title, note, values, options) in zip(figure.subplots(1, len(steps)), steps, strict=True):
        if values is None:
            draw_graph(axes, trace.graph, trace.schema, size=7)
        else:
            drawing.show_picture(axes, values, **options)
        axes.set_title(title, fontsize=10, fontweight="bold", color=INK)
        below = {"xycoords": "axes fraction", "ha": "center", "va": "top", "fontsize": 8, "color": FAINT}
        axes.annotate(note, (0.5, -0.05), **below).set_in_layout(False)
    title = f"{network.config.name or network.config.arch}: one window"
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    drawing.draw_legend(figure, drawing.tissue_swatches(trace.schema))
    return figure


def trm_figure(network: SegmentationModel, image: NDArray[np.uint8]) -> Figure:
    """The stages of the tissue relation module for one RGB window: Reg; Node, Adj, Bnd; Attn or Sum; Proj."""
    trace = trace_relation(network, image)
    tile_rows, layer_rows = -(-(len(trace.present) + 2) // 8), -(-len(trace.graph.attention) // 3)
    heights = (0.8 + 1.75 * tile_rows, 4.6, 0.6 + 3.9 * layer_rows, 3.3)
    figure = drawing.new_figure(12.4, sum(heights) + 0.9)
    parts: Any = figure.subfigures(4, 1, height_ratios=heights)
    for part, draw in zip(parts, (_draw_regions, _draw_graph, _draw_layers, _draw_projection), strict=True):
        stage, text = draw(part, trace)
        part.suptitle(stage, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
        part.supxlabel(textwrap.fill(text, 160), x=0.01, ha="left", fontsize=9, color=FAINT)
    drawing.draw_legend(figure, drawing.tissue_swatches(trace.schema))
    return figure


def _draw_regions(part: Any, trace: RelationTrace) -> tuple[str, str]:
    window, coarse = drawing.shrink_image(trace.image), trace.schema.colourise(trace.coarse)
    pictures = [("window", window), ("coarse prediction", coarse)]
    for tissue in trace.present:
        # A region in its tissue's colour over the grey window, dark enough for tissues that are nearly white.
        weight = trace.masks[tissue][..., None]
        ground = 0.65 * sampled(drawing.faded(trace.image), weight.shape[:2])
        mixed = (weight * trace.schema.palette[tissue] + (1 - weight) * ground).round().astype(np.uint8)
        pictures.append((f"{trace.schema.names[tissue]} ({trace.graph.area[tissue]:,.0f} places)", mixed))
    for axes, (title, picture) in zip(_cells(part, len(pictures), 8), pictures, strict=True):
        drawing.show_picture(axes, picture, title)
    tau = f"exceeds τ = {trace.config.tau:g}"
    kinds = {
        "hard": f"where the largest p within 3 × 3 places {tau}",
        "plain": f"where p {tau}",
        "soft": f"p itself; present where the largest p within 3 × 3 places {tau}",
    }
    return "Reg", f"A mask for each tissue, {kinds[trace.config.masks]}; masks may overlap."


def _cells(part: Any, count: int, columns: int) -> list[Any]:
    """Axes in rows of so many at most; those left over are blank."""
    rows = -(-count // columns)
    every = part.subplots(rows, columns if rows > 1 else min(count, columns), squeeze=False).ravel()
    for axes in every[count:]:
        axes.set_axis_off()
    return list(every[:count])


def _draw_graph(part: Any, trace: RelationTrace) -> tuple[str, str]:
    graph, tables = trace.graph, {"Bnd: share of the row that touches the column": trace.graph.boundary}
    if graph.edge_weights is not None:
        tables["Weight of the edge from row to column"] = graph.edge_weights
    first, *others = part.subplots(1, 1 + len(tables))
    draw_graph(first, graph, trace.schema)
    for axes, (title, values) in zip(others, tables.items(), strict=True):
        _heat(axes, trace, values, title)
    kinds = {"adjacency": "an edge where two tissues touch", "complete": "an edge between all tissues that are present"}
    edges = kinds.get(trace.config.graph, "no edges in this variant")
    absent = ", ".join(n for n, present in zip(trace.schema.names, graph.presence, strict=True) if not present)
    words = [f"A node for each tissue, its features averaged over its mask; {edges}"]
    words += ["absent tissues send to all present ones"] if trace.config.absent == "linked" else []
    words += [f"absent: {absent}" if absent else "every tissue is present"]
    if graph.edge_weights is None and trace.config.graph != "none":
        words.append("edge weights: not used by this model")
    return "Node · Adj · Bnd", "; ".join(words) + ". Width of an arrow: share of the sender that touches the receiver."


def _draw_layers(part: Any, trace: RelationTrace) -> tuple[str, str]:
    config, attention = trace.config, trace.graph.attention
    if config.graph == "none":
        return "No messages", "In this variant the nodes are projected as they were pooled."
    if config.layer == "sum":
        weight = "its edge weight" if config.edge_weight else "1"
        return "Sum", f"{config.layers} layers without attention: every message counts {weight}."
    for layer, (axes, values) in enumerate(zip(_cells(part, len(attention), 3), attention, strict=True), start=1):
        _heat(axes, trace, values, f"layer {layer}")
    return "Attn", "Who listens to whom: the attention of a column’s tissue sums to 1 over the rows."


def _heat(axes: Any, trace: RelationTrace, values: NDArray[np.float32], title: str) -> None:
    """Sender → receiver; cells of absent tissues without an edge are greyed."""
    graph = trace.graph
    meaning = graph.adjacency | (graph.presence[:, None] & graph.presence[None, :])
    np.fill_diagonal(meaning, False)
    drawing.heat_map(axes, values, trace.schema.names, grey=~meaning, size=5.5, aspect="equal")
    axes.set_title(title, loc="left", fontsize=9, pad=5)


def _draw_projection(part: Any, trace: RelationTrace) -> tuple[str, str]:
    before, after = trace.names
    features, projected, refined = norm(trace.features), norm(trace.projected), norm(trace.refined)
    shared = robust_top(features, refined)
    *every, last = part.subplots(1, 4)
    maps = ((before, features, shared), ("S'", projected, robust_top(projected)), (after, refined, shared))
    for axes, (name, values, most) in zip(every, maps, strict=True):
        shown = drawing.show_picture(axes, values, f"norm of {name}", cmap=FEATURES, vmin=0, vmax=most)
        part.colorbar(shown, ax=axes, extend="max", shrink=0.8).ax.tick_params(labelsize=7)
    drawing.show_picture(last, drawing.shrink_mask(trace.mask, trace.schema), "final mask")
    return "Proj", f"Nodes back onto the places of their masks: {after} = {before} + S'; norm over the channels."


def draw_graph(axes: Any, graph: TissueRelations, schema: LabelSchema, *, size: float = 9) -> None:
    """Nodes in their tissues' colours, larger for larger areas, hollow where absent; arrows from sender to receiver.

    Absent tissues are shown if they have an edge. An arrow's width grows with the fraction of the sender's pixels that
    touch the receiver.
    """
    axes.set(xlim=(-1.5, 1.5), ylim=(-1.4, 1.4), aspect="equal")
    axes.set_axis_off()
    tissues = np.flatnonzero(graph.presence | graph.adjacency.any(axis=0) | graph.adjacency.any(axis=1)).tolist()
    if not tissues:
        drawing.show_message(axes, "no tissue was proposed")
        return
    angles = (2 * math.pi * k / len(tissues) for k in range(len(tissues)))
    points = {t: (math.sin(a), math.cos(a)) for t, a in zip(tissues, angles, strict=True)}
    largest = max(float(graph.area.max()), 1.0)
    radii = {t: size / 9 * (6 + 9 * math.sqrt(float(graph.area[t]) / largest)) for t in tissues}
    # The bend takes the arrows there and back to different sides.
    style: dict[str, Any] = {"connectionstyle": "arc3,rad=0.13", "arrowstyle": "-|>", "mutation_scale": 8}
    for source, target in np.argwhere(graph.adjacency).tolist():
        style.update(shrinkA=radii[source], shrinkB=radii[target] + 1, color=FAINT)
        width = 0.5 + 4.5 * min(float(graph.boundary[source, target]), 1.0)
        arrow = FancyArrowPatch(points[source], points[target], lw=width, alpha=0.65, **style)
        arrow.set_gid(f"edge {source} {target}")
        axes.add_patch(arrow)
    for tissue in tissues:
        present, radius, (x, y) = bool(graph.presence[tissue]), radii[tissue], points[tissue]
        fill = schema.palette[tissue] / 255.0 if present else "white"
        axes.plot(x, y, "o", ms=2 * radius, mfc=fill, mec=INK, mew=0.9, gid=f"node {tissue}")
        text = schema.names[tissue] if present else f"({schema.names[tissue]})"
        across = "center" if abs(x) < 0.2 else ("left" if x > 0 else "right")
        along = "center" if abs(y) < 0.9 else ("bottom" if y > 0 else "top")
        away: dict[str, Any] = {"xytext": ((radius + 3) * x, (radius + 3) * y), "textcoords": "offset points"}
        axes.annotate(text, (x, y), fontsize=size, color=INK, ha=across, va=along, **away)
