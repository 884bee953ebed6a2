"""Pictures of what was measured on a piece: surface, margin and the lines that were measured; the tissue graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ntrm.labels import LabelSchema
from ntrm.predictor import TissueRelations
from ntrm.report.drawing import BLUE, FAINT, INK, ORANGE, new_figure, plain, set_title, write_figure
from ntrm.report.graph_drawing import draw_graph
from ntrm.resolution import Resolution

SURFACE, MARGIN = BLUE, ORANGE
PURPOSE = "for research, not for diagnosis"
_SIDE = 6.5
_BAR_MM = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20)


@dataclass(frozen=True)
class MeasuredLine:
    """A line to draw, in (row, column) pixels of the picture, with the words beside it."""

    words: str
    line: tuple[tuple[float, float], tuple[float, float]] | None
    """None: the words alone, such as the reason why there is no line."""


def margin_figure(path: Path, picture: NDArray[np.uint8], resolution: Resolution, **parts: Any) -> None:
    """Write ``draw_margins`` to PNG, SVG or PDF."""
    write_figure(path, lambda: draw_margins(picture, resolution, **parts))


def draw_margins(
    picture: NDArray[np.uint8],
    resolution: Resolution,
    *,
    surface: NDArray[Any],
    margin: NDArray[Any],
    lines: Sequence[MeasuredLine],
    stride: float = 1.0,
) -> Figure:
    """The picture (H, W, 3) with the skin surface, the cut margin and the measured lines on it.

    All places are (row, column) in pixels of the mask; the picture may show every ``stride``-th of them.
    """
    height, width = picture.shape[0] * resolution.y, picture.shape[1] * resolution.x
    scale = _SIDE / max(height, width)
    wide, high = max(width * scale, 3.4), max(height * scale, 0.8)
    foot = 0.24 * (len(lines) + 2) + 0.15
    figure = new_figure(wide + 0.3, high + foot + 0.5)
    whole = wide + 0.3, high + foot + 0.5
    axes = figure.add_axes((0.15 / whole[0], foot / whole[1], wide / whole[0], high / whole[1]))
    axes.imshow(picture, aspect=resolution.y / resolution.x, interpolation="nearest")
    axes.set_axis_off()
    for places, colour, name in ((surface, SURFACE, "surface"), (margin, MARGIN, "margin")):
        shown = np.asarray(places, dtype=np.float64).reshape(-1, 2) / stride
        axes.plot(shown[:, 1], shown[:, 0], ".", markersize=1.4, color=colour, gid=name)
    for number, measured in enumerate(lines, start=1):
        if measured.line is not None:
            _draw_line(axes, number, np.array(measured.line) / stride)
    _scale_bar(axes, picture.shape, resolution.downsampled(stride))
    set_title(axes, "Skin surface (blue), cut margin (orange)", pad=6)
    words = [f"{number}  {measured.words}" for number, measured in enumerate(lines, start=1)]
    for row, text in enumerate([*words, PURPOSE]):
        at = (foot - 0.3 - 0.24 * row) / whole[1]
        figure.text(0.15 / whole[0], at, plain(text), fontsize=8, color=FAINT if text == PURPOSE else INK)
    return figure


def _draw_line(axes: Any, number: int, ends: NDArray[np.float64]) -> None:
    # White below black: seen on any tissue.
    for colour, line_width in (("white", 3.2), ("black", 1.4)):
        axes.plot(
            ends[:, 1], ends[:, 0], "-o", markersize=2.5, color=colour, linewidth=line_width, gid=f"line {number}"
        )
    row, column = ends.mean(axis=0)
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
    axes.text(column, row, str(number), fontsize=8, color=INK, ha="center", va="center", bbox=box)


def _scale_bar(axes: Any, shape: tuple[int, ...], resolution: Resolution) -> None:
    across_mm = shape[1] * resolution.x / 1000
    length = max((mm for mm in _BAR_MM if mm <= across_mm / 3), default=_BAR_MM[0])
    left, row = shape[1] * 0.03, shape[0] * 0.97
    right = left + length * 1000 / resolution.x
    axes.plot([left, right], [row, row], color=FAINT, linewidth=3, solid_capstyle="butt", gid="scale bar")
    axes.text(right, row, f" {length:g} mm", fontsize=7.5, color=FAINT, va="center")


def tissue_graph_figure(path: Path, schema: LabelSchema, areas_mm2: NDArray[Any], share: NDArray[Any]) -> None:
    """Write ``draw_tissue_graph`` to PNG, SVG or PDF."""
    write_figure(path, lambda: draw_tissue_graph(schema, areas_mm2, share))


def draw_tissue_graph(schema: LabelSchema, areas_mm2: NDArray[Any], share: NDArray[Any]) -> Figure:
    """Tissues as nodes by area (K,), an arrow for every share (≥ K, ≥ K) of the sender's boundary with the receiver."""
    size = len(schema)
    between = np.asarray(share, dtype=np.float32)[:size, :size]
    empty = np.zeros((0, size, size), dtype=np.float32)
    graph = TissueRelations(
        names=schema.names,
        presence=np.asarray(areas_mm2) > 0,
        # Nodes are drawn relative to the largest, in whole units at least.
        area=np.asarray(areas_mm2, dtype=np.float32) * np.float32(1e6),
        adjacency=between > 0,
        boundary=between,
        attention=empty,
        edge_weights=np.zeros_like(between),
        nodes=np.zeros((size, 1), dtype=np.float32),
    )
    figure = new_figure(4.6, 4.9)
    axes = figure.add_axes((0.02, 0.06, 0.96, 0.86))
    draw_graph(axes, graph, schema)
    set_title(axes, "Who borders on whom", pad=4)
    words = f"arrow: share of the tissue’s boundary; {PURPOSE}"
    figure.text(0.04, 0.02, words, fontsize=8, color=FAINT)
    return figure
