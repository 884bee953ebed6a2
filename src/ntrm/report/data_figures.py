"""Pictures of a dataset's statistics: how much there is of each tissue, and which tissue borders on which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ntrm.data.stats import DatasetStats
from ntrm.errors import choices_error
from ntrm.files import whole_file
from ntrm.labels import LabelSchema

FORMATS = ("png", "svg", "pdf")
INK, FAINT = "#222222", "#666666"
HEAT = "Blues"
_INCH_PER_CLASS = 0.36


def check_format(path: Path) -> str:
    """Format that the suffix of ``path`` stands for; refused before any work is done.

    >>> check_format(Path("stats.SVG"))
    'svg'
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise choices_error(f"cannot draw {path.name}", path.suffix or "no suffix", [f".{name}" for name in FORMATS])
    return kind


def stats_figure(stats: DatasetStats, path: Path) -> None:
    """Write both pictures side by side; the suffix of ``path`` chooses PNG, SVG or PDF."""
    kind = check_format(path)
    figure = draw_stats(stats)
    # With a date or random identifiers inside, the same statistics would give a different file each time.
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with whole_file(path) as partial, mpl.rc_context({"svg.hashsalt": "ntrm"}):
        figure.savefig(partial, format=kind, dpi=150, metadata=undated.get(kind))


def draw_stats(stats: DatasetStats) -> Figure:
    """Figure with the pixel shares on the left and the boundary shares on the right."""
    side = _INCH_PER_CLASS * max(len(stats.schema), 6)
    figure = Figure(figsize=(side * 1.15 + 7.5, side + 1.9), facecolor="white")
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.1)
    FigureCanvasAgg(figure)
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
    _title(axes, "Share of the pixels")


def draw_boundary_share(axes: Any, share: NDArray[np.float64], schema: LabelSchema) -> None:
    """Heat map, row → column; cells below half a percent stay blank, a tissue with itself is greyed out."""
    names = [_plain(name) for name in schema.names]
    places = np.arange(len(names))
    axes.imshow(share, cmap=HEAT, vmin=0, vmax=1, aspect="auto")
    axes.imshow(np.ma.masked_equal(np.eye(len(names)), 0), cmap="Greys", vmin=0, vmax=8, aspect="auto")
    for row, column in np.argwhere(share >= 0.005):
        value = share[row, column]
        text, colour = f"{value:.2f}".removeprefix("0"), "white" if value > 0.55 else INK
        axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=colour)
    short = max(map(len, names)) <= 4
    axes.set_xticks(places, names, fontsize=8, rotation=0 if short else 35, ha="center" if short else "right")
    axes.set_yticks(places, names, fontsize=8)
    axes.set_xticks(places[1:] - 0.5, minor=True)
    axes.set_yticks(places[1:] - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    _title(axes, "Neighbours: share of the row’s boundary")


def _title(axes: Any, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=10.5, fontweight="bold", color=INK, pad=10)


def _label(name: str, title: str) -> str:
    return _plain(name if title in {"", name} else f"{title}  {name}")


def _plain(text: str) -> str:
    # A dollar sign would start a formula.
    return text.replace("$", r"\$")
