"""Pictures of a network at work, drawn from one real forward pass: overview, architecture, stages of the relation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from numpy.typing import NDArray

from ntrm.models.base import SegmentationModel
from ntrm.report.architecture_drawing import draw_architecture
from ntrm.report.drawing import FAINT, INK, Sheet, write_figure
from ntrm.report.graph_drawing import draw_graph
from ntrm.report.network_trace import RelationTrace, trace_relation
from ntrm.report.picture_grid import draw_legend, legend_height, shrink_image, shrink_mask, tissue_swatches
from ntrm.report.relation_drawing import FEATURES, draw_relation, norm, robust_top

__all__ = [
    "architecture_figure",
    "draw_architecture",
    "draw_pipeline",
    "draw_relation",
    "pipeline_figure",
    "trm_figure",
]

_SIDE, _STEP, _LEFT, _TOP = 2.15, 2.65, 0.25, 0.75


def pipeline_figure(network: SegmentationModel, image: NDArray[np.uint8], path: Path) -> None:
    """Write the way of one RGB window through a network with a tissue relation module."""
    write_figure(path, lambda: draw_pipeline(network, image))


def architecture_figure(network: SegmentationModel, path: Path) -> None:
    """Write an NTRM's blocks with the channels and sizes that they really have."""
    write_figure(path, lambda: draw_architecture(network))


def trm_figure(network: SegmentationModel, image: NDArray[np.uint8], path: Path) -> None:
    """Write the stages of the tissue relation module for one RGB window: Reg, Node, Adj, Bnd, Attn, Proj."""
    write_figure(path, lambda: draw_relation(trace_relation(network, image)))


def draw_pipeline(network: SegmentationModel, image: NDArray[np.uint8]) -> Figure:
    """Window → features → coarse prediction → tissue graph → refined features → final mask."""
    trace = trace_relation(network, image)
    legend = tissue_swatches(trace.schema)
    width = 2 * _LEFT + 5 * _STEP + _SIDE
    below = legend_height(legend, width) + 0.15
    sheet = Sheet(width, _TOP + _SIDE + 0.62 + below)
    sheet.words(_LEFT, 0.14, f"{network.config.name or network.config.arch}: one window", 12, fontweight="bold")
    for place, (title, note) in enumerate(_titles(trace)):
        left = _LEFT + place * _STEP
        sheet.words(left + _SIDE / 2, _TOP - 0.24, title, 10, fontweight="bold", ha="center")
        sheet.words(left + _SIDE / 2, _TOP + _SIDE + 0.07, note, 8, color=FAINT, ha="center")
        if place:
            _arrow(sheet, left)
    _panels(sheet, trace)
    draw_legend(sheet.figure, legend, bottom=0.12)
    return sheet.figure


def _titles(trace: RelationTrace) -> list[tuple[str, str]]:
    before, after = trace.names
    shape = " × ".join(map(str, trace.features.shape))
    grid = " × ".join(map(str, trace.probabilities.shape[1:]))
    edges = int(trace.graph.adjacency.sum())
    return [
        ("window", " × ".join(map(str, trace.image.shape[:2])) + " pixels"),
        ("features", f"{before}, {shape}\nbrightness: norm over the channels"),
        ("coarse prediction", f"most probable tissue on {grid}"),
        ("tissue graph", f"{len(trace.present)} of {len(trace.schema)} tissues, {edges} edges"),
        ("refined features", f"{after} = {before} + S', {shape}\non the same scale"),
        ("final mask", "most probable tissue of every pixel"),
    ]


def _panels(sheet: Sheet, trace: RelationTrace) -> None:
    lefts = [_LEFT + place * _STEP for place in range(6)]
    before, after = norm(trace.features), norm(trace.refined)
    scale = {"cmap": FEATURES, "vmin": 0, "vmax": robust_top(before, after)}
    sheet.picture(lefts[0], _TOP, _SIDE, shrink_image(trace.image))
    sheet.picture(lefts[1], _TOP, _SIDE, before, **scale)
    sheet.picture(lefts[2], _TOP, _SIDE, trace.schema.colourise(trace.coarse))
    draw_graph(sheet.axes(lefts[3], _TOP, _SIDE, _SIDE), trace.graph, trace.schema, size=7)
    sheet.picture(lefts[4], _TOP, _SIDE, after, **scale)
    sheet.picture(lefts[5], _TOP, _SIDE, shrink_mask(trace.mask, trace.schema))


def _arrow(sheet: Sheet, left: float) -> None:
    y = _TOP + _SIDE / 2
    start, end = (left - (_STEP - _SIDE) + 0.08, y), (left - 0.08, y)
    sheet.paper.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=14, lw=1.6, color=INK))
