"""Pictures of a network at work, drawn from one real forward pass: overview, architecture, stages of the relation."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from numpy.typing import NDArray

from ntrm.models.base import SegmentationModel
from ntrm.report.drawing import (
    FAINT,
    FEATURES,
    INK,
    PALE,
    Sheet,
    draw_legend,
    legend_height,
    shrink_image,
    shrink_mask,
    tissue_swatches,
)
from ntrm.report.network_trace import ArchitectureTrace, RelationTrace, trace_architecture, trace_relation
from ntrm.report.relation_figures import draw_graph, draw_relation, norm, robust_top

Point = tuple[float, float]

_SIDE, _STEP, _LEFT, _PANEL = 2.15, 2.65, 0.25, 0.75
"""Of the pipeline's panels, in inches."""

ENCODER, DECODER, COARSE, RELATION, PICTURE = "#dbe7f3", "#e3efdd", "#fdebd0", "#f3d9ea", "#f2f2f4"
_COLUMNS = {"image": 1.5, "E": 1.5, "D1": 3.6, "D2": 5.1, "φ": 7.15, "TRM": 7.15, "coarse": 9.2, "D2'": 9.2}
_COLUMNS |= {"D3": 10.6, "D4": 12.0, "D5": 13.4, "final": 14.9}
_TOP, _ROW = 1.35, 1.02
_WIDE, _HIGH = 1.22, 0.58
_RELATION_WIDE, _RELATION_HIGH = 2.1, 0.94


def trm_figure(network: SegmentationModel, image: NDArray[np.uint8]) -> Figure:
    """The stages of the tissue relation module for one RGB window: Reg, Node, Adj, Bnd, Attn, Proj."""
    return draw_relation(trace_relation(network, image))


def pipeline_figure(network: SegmentationModel, image: NDArray[np.uint8]) -> Figure:
    """Window → features → coarse prediction → tissue graph → refined features → final mask."""
    trace = trace_relation(network, image)
    legend = tissue_swatches(trace.schema)
    width = 2 * _LEFT + 5 * _STEP + _SIDE
    sheet = Sheet(width, _PANEL + _SIDE + 0.62 + (legend_height(legend, width) + 0.15))
    sheet.text(_LEFT, 0.14, f"{network.config.name or network.config.arch}: one window", 12, fontweight="bold")
    middle = _PANEL + _SIDE / 2
    for number, (title, note) in enumerate(_titles(trace)):
        left = _LEFT + number * _STEP
        sheet.text(left + _SIDE / 2, _PANEL - 0.24, title, 10, fontweight="bold", ha="center")
        sheet.text(left + _SIDE / 2, _PANEL + _SIDE + 0.07, note, 8, color=FAINT, ha="center")
        if number:
            start, end = (left - (_STEP - _SIDE) + 0.08, middle), (left - 0.08, middle)
            sheet.paper.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=14, lw=1.6, color=INK))
    _draw_panels(sheet, trace)
    draw_legend(sheet.figure, legend, bottom=0.12)
    return sheet.figure


def _titles(trace: RelationTrace) -> list[tuple[str, str]]:
    before, after = trace.names
    window, shape, grid = (
        " × ".join(map(str, sizes))
        for sizes in (trace.image.shape[:2], trace.features.shape, trace.probabilities.shape[1:])
    )
    edges = int(trace.graph.adjacency.sum())
    return [
        ("window", f"{window} pixels"),
        ("features", f"{before}, {shape}\nbrightness: norm over the channels"),
        ("coarse prediction", f"most probable tissue on {grid}"),
        ("tissue graph", f"{len(trace.present)} of {len(trace.schema)} tissues, {edges} edges"),
        ("refined features", f"{after} = {before} + S', {shape}\non the same scale"),
        ("final mask", "most probable tissue of every pixel"),
    ]


def _draw_panels(sheet: Sheet, trace: RelationTrace) -> None:
    lefts = [_LEFT + number * _STEP for number in range(6)]
    before, after = norm(trace.features), norm(trace.refined)
    scale = {"cmap": FEATURES, "vmin": 0, "vmax": robust_top(before, after)}
    sheet.picture(lefts[0], _PANEL, _SIDE, shrink_image(trace.image))
    sheet.picture(lefts[1], _PANEL, _SIDE, before, **scale)
    sheet.picture(lefts[2], _PANEL, _SIDE, trace.schema.colourise(trace.coarse))
    draw_graph(sheet.axes(lefts[3], _PANEL, _SIDE, _SIDE), trace.graph, trace.schema, size=7)
    sheet.picture(lefts[4], _PANEL, _SIDE, after, **scale)
    sheet.picture(lefts[5], _PANEL, _SIDE, shrink_mask(trace.mask, trace.schema))


def architecture_figure(network: SegmentationModel) -> Figure:
    """An NTRM's blocks with the channels and sizes that they really have.

    Encoder at the left, decoder rising to the right, the relation of tissues between D2 and D2'.
    """
    trace = trace_architecture(network)
    sheet = Sheet(16.0, _TOP + 5 * _ROW + 0.6)
    centres = _centres(trace)
    _draw_scales(sheet, centres, trace)
    for name, centre in centres.items():
        if name != "TRM":
            _draw_block(sheet, centre, name, str(trace.shapes[name]))
    _draw_relation_block(sheet, centres, trace)
    _draw_arrows(sheet, centres, trace)
    _draw_head(sheet, network, trace)
    return sheet.figure


def _centres(trace: ArchitectureTrace) -> dict[str, Point]:
    """Centres of the blocks: columns by stage, rows by scale as it was measured."""
    window = trace.shapes["image"].height
    rows = {name: _TOP + _ROW * math.log2(window / shape.height) for name, shape in trace.shapes.items()}
    grid = rows["D2"]
    # The head stands below the module that it feeds, and its picture, of full size, beside it.
    rows |= {"φ": grid + 1.15 * _ROW, "coarse": grid + 1.15 * _ROW}
    if trace.relation is not None:
        rows["TRM"] = grid
    return {name: (_COLUMNS["E" if name[0] == "E" else name], row) for name, row in rows.items()}


def _draw_block(sheet: Sheet, centre: Point, name: str, size: str) -> None:
    title = {"φ": "φ coarse head", "coarse": "coarse prediction", "final": "final prediction"}.get(name, name)
    _draw_box(sheet, centre, _WIDE, _HIGH, {"E": ENCODER, "D": DECODER, "φ": COARSE}.get(name[0], PICTURE))
    x, y = centre
    sheet.text(x, y - 0.21, title, 8.5, ha="center", fontweight="bold")
    sheet.text(x, y + 0.03, size, 8, ha="center", gid=f"size {name}")


def _draw_relation_block(sheet: Sheet, centres: dict[str, Point], trace: ArchitectureTrace) -> None:
    if trace.relation is None:
        return
    classes, dim = trace.nodes or (0, 0)
    kind = {"attention": "Attn", "sum": "Sum"}[trace.relation.layer]
    steps = f"Edge · {kind} × {trace.layers} · Proj" if trace.layers else "Proj (no messages)"
    x, y = centres["TRM"]
    _draw_box(sheet, (x, y), _RELATION_WIDE, _RELATION_HIGH, RELATION)
    sheet.text(x, y - 0.4, "TRM tissue relation", 8.5, ha="center", fontweight="bold")
    sheet.text(x, y - 0.16, f"Reg · Node · Adj · Bnd\n{steps}", 8, ha="center")
    sheet.text(x, y + 0.2, f"nodes {classes} × {dim}", 8, ha="center", gid="size TRM")


def _draw_box(sheet: Sheet, centre: Point, wide: float, high: float, colour: str) -> None:
    corner = (centre[0] - wide / 2, centre[1] - high / 2)
    style = "round,pad=0,rounding_size=0.07"
    box = FancyBboxPatch(corner, wide, high, boxstyle=style, facecolor=colour, edgecolor=INK, linewidth=0.9, zorder=3)
    sheet.paper.add_patch(box)


def _draw_arrows(sheet: Sheet, centres: dict[str, Point], trace: ArchitectureTrace) -> None:
    right, up = _WIDE / 2, _HIGH / 2
    for first, second in pairwise(("image", "E1", "E2", "E3", "E4", "E5")):
        (x, y), (_, below) = centres[first], centres[second]
        _draw_path(sheet, [(x, y + up), (x, below - up)], f"{first} {second}")
    for skip, block in (("E4", "D1"), ("E3", "D2"), ("E2", "D3"), ("E1", "D4")):
        (x, y), (end, _) = centres[skip], centres[block]
        _draw_path(sheet, [(x + right, y), (end - right, y)], f"{skip} {block}", style="--")
    refined = "D2" if trace.relation is None else "D2'"
    for lower, block in (("E5", "D1"), ("D1", "D2"), ("D3", "D4"), ("D4", "D5"), (refined, "D3")):
        (x, y), (end, above) = centres[lower], centres[block]
        _draw_path(sheet, [(x + right, y), (end, y), (end, above + up)], f"{lower} {block}")
    _draw_level_path(sheet, centres, "D5", "final")
    _draw_coarse_arrows(sheet, centres, trace)


def _draw_coarse_arrows(sheet: Sheet, centres: dict[str, Point], trace: ArchitectureTrace) -> None:
    (x, y), (start, level) = centres["φ"], centres[trace.coarse_from]
    if trace.coarse_from == "E5":
        _draw_path(sheet, [(start + _WIDE / 2, level), (x, level), (x, y + _HIGH / 2)], "E5 φ")
    else:
        start += _WIDE / 4  # beside the arrow up from D1
        _draw_path(sheet, [(start, level + _HIGH / 2), (start, y), (x - _WIDE / 2, y)], "D2 φ")
    _draw_level_path(sheet, centres, "φ", "coarse")
    if trace.relation is None:
        return
    (middle, grid), (before, _), (after, _) = centres["TRM"], centres["D2"], centres["D2'"]
    half, top = _RELATION_WIDE / 2, grid - _RELATION_HIGH / 2 - 0.12
    _draw_path(sheet, [(x, y - _HIGH / 2), (x, grid + _RELATION_HIGH / 2)], "φ TRM")
    sheet.text(x + 0.07, (y - _HIGH / 2 + grid + _RELATION_HIGH / 2) / 2 - 0.09, "p = softmax", 8, color=FAINT)
    _draw_path(sheet, [(before + _WIDE / 2, grid), (middle - half, grid)], "D2 TRM")
    _draw_path(sheet, [(middle + half, grid), (after - _WIDE / 2, grid)], "TRM D2'")
    _draw_path(sheet, [(before, grid - _HIGH / 2), (before, top), (after, top), (after, grid - _HIGH / 2)], "D2 D2'")
    sheet.text(after + 0.07, top - 0.12, "D2 + S'", 8, color=FAINT)


def _draw_level_path(sheet: Sheet, centres: dict[str, Point], first: str, second: str) -> None:
    """From the right of one block to the left of another."""
    (start, y), (end, other_y) = centres[first], centres[second]
    _draw_path(sheet, [(start + _WIDE / 2, y), (end - _WIDE / 2, other_y)], f"{first} {second}")


def _draw_path(sheet: Sheet, points: list[Point], gid: str, style: str = "-") -> None:
    """Straight lines through the points, an arrow at the end of the last."""
    colour = FAINT if style == "--" else INK
    if len(points) > 2:
        xs, ys = zip(*points[:-1], strict=True)
        sheet.paper.plot(xs, ys, color=colour, lw=1.2, ls=style, solid_joinstyle="miter", zorder=2)
    arrow = FancyArrowPatch(*points[-2:], arrowstyle="-|>", mutation_scale=10, shrinkA=0, shrinkB=0, zorder=2)
    arrow.set(lw=1.2, ls=style, color=colour, gid=f"arrow {gid}")
    sheet.paper.add_patch(arrow)


def _draw_scales(sheet: Sheet, centres: dict[str, Point], trace: ArchitectureTrace) -> None:
    """A faint line as far as its last box, and the fraction of the window's side, at every scale that occurs."""
    window = trace.shapes["image"].height
    for height in sorted({shape.height for shape in trace.shapes.values()}):
        y = _TOP + _ROW * math.log2(window / height)
        last = max(x for x, row in centres.values() if abs(row - y) < 0.01)
        sheet.paper.plot([0.6, last], [y, y], color=PALE, lw=0.8, zorder=1)
        sheet.text(0.15, y - 0.08, "1" if height == window else f"1/{window // height}", 8.5, color=FAINT)


def _draw_head(sheet: Sheet, network: SegmentationModel, trace: ArchitectureTrace) -> None:
    config, image = network.config, trace.shapes["image"]
    options = ", ".join(f"{name} {value}" for name, value in config.options.items())
    sheet.text(0.15, 0.15, config.arch + (f" ({options})" if options else ""), 12, fontweight="bold")
    parameters = f"{config.classes} tissues · {trace.parameters / 1e6:,.2f} million parameters"
    sizes = f"channels × height × width for a window of {image.height} × {image.width}"
    rows = "rows: share of the window's side (φ and its prediction stand below theirs) · dashed: skip connections"
    sheet.text(0.15, 0.45, f"{parameters} · {sizes}", 9, color=FAINT)
    sheet.text(0.15, 0.72, rows, 9, color=FAINT)
