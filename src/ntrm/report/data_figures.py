"""Pictures of a dataset's statistics: how much there is of each tissue, and which tissue borders on which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ntrm.core.labels import LabelSchema
from ntrm.data.stats import DatasetStats
from ntrm.report.drawing import FAINT, INK, check_format, heat_map, new_figure, plain, set_title, write_figure

__all__ = ["check_format", "draw_boundary_share", "draw_pixel_share", "draw_stats", "stats_figure"]

_INCH_PER_CLASS = 0.36


def stats_figure(stats: DatasetStats, path: Path) -> None:
    """Write both pictures side by side; the suffix of ``path`` chooses PNG, SVG or PDF."""
    write_figure(path, lambda: draw_stats(stats))


def draw_stats(stats: DatasetStats) -> Figure:
    """Figure with the pixel shares on the left and the boundary shares on the right."""
    side = _INCH_PER_CLASS * max(len(stats.schema), 6)
    figure = new_figure(side * 1.15 + 7.5, side + 1.9, constrained=True)
    shares, borders = figure.subplots(1, 2, width_ratios=(4.6, side * 1.15 + 1.2))
    draw_pixel_share(shares, stats.pixel_share, stats.schema)
    draw_boundary_share(borders, stats.boundary_share, stats.schema)
    figure.suptitle(stats.headline, x=0.01, ha="left", fontsize=9.5, color=FAINT)
    return figure


def draw_pixel_share(axes: Any, share: NDArray[np.float64], schema: LabelSchema) -> None:
    """Horizontal bars in the tissues' colours, outlined, because some tissues are nearly white."""
    places = np.arange(len(schema))
    axes.barh(places, share, height=0.72, color=schema.palette / 255.0, edgecolor=INK, linewidth=0.6)
    for place, value in zip(places, share, strict=True):
        axes.text(value, place, f"  {value:.1%}", va="center", fontsize=8, color=INK)
    axes.set_yticks(places, [_label(tissue.name, tissue.title) for tissue in schema.tissues], fontsize=8)
    axes.set_ylim(len(schema) - 0.5, -0.5)
    axes.set_xlim(0, max(float(share.max()), 0.01) * 1.18)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    set_title(axes, "Share of the pixels")


def draw_boundary_share(axes: Any, share: NDArray[np.float64], schema: LabelSchema) -> None:
    """Heat map, row → column; cells below half a percent stay blank, a tissue with itself is greyed out."""
    heat_map(axes, share, schema.names, grey=np.eye(len(schema), dtype=bool))
    set_title(axes, "Neighbours: share of the row’s boundary")


def _label(name: str, title: str) -> str:
    return plain(name if title in {"", name} else f"{title}  {name}")
