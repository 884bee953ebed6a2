"""What every figure shares: a canvas without a window, writing whole files, titles, heat maps of tissues by tissues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ntrm.core.errors import choices_error
from ntrm.core.io import whole_file

FORMATS = ("png", "svg", "pdf")
DPI = 150
INK, FAINT, PALE = "#222222", "#666666", "#e4e4e8"
HEAT = "Blues"
BLUE, ORANGE, GREEN, PINK = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
"""Colours of Okabe and Ito, told apart by every kind of colour vision."""


def check_format(path: Path) -> str:
    """Format that the suffix of ``path`` stands for; refused before any work is done.

    >>> check_format(Path("stats.SVG"))
    'svg'
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise choices_error(f"cannot draw {path.name}", path.suffix or "no suffix", [f".{name}" for name in FORMATS])
    return kind


def write_figure(path: Path, draw: Callable[[], Figure], *, dpi: int = DPI) -> None:
    """Draw and write one file whole; its suffix chooses PNG, SVG or PDF, and a wrong one is refused before drawing."""
    kind = check_format(path)
    figure = draw()
    # With a date or random identifiers inside, the same picture would give a different file each time.
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with whole_file(path) as partial, mpl.rc_context({"svg.hashsalt": "ntrm"}):
        figure.savefig(partial, format=kind, dpi=dpi, metadata=undated.get(kind))


def new_figure(width: float, height: float, *, constrained: bool = False) -> Figure:
    """An empty white figure, measured in inches, that needs no display."""
    figure = Figure(figsize=(width, height), facecolor="white")
    if constrained:
        figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)
    FigureCanvasAgg(figure)
    return figure


def plain(text: str) -> str:
    r"""Text as it stands: a dollar sign would start a formula.

    >>> plain("5 $")
    '5 \\$'
    """
    return text.replace("$", r"\$")


def set_title(axes: Any, text: str, *, pad: float = 10) -> None:
    """A title at the left, in bold, so many points above the axes."""
    axes.set_title(text, loc="left", fontsize=10.5, fontweight="bold", color=INK, pad=pad)


def say_nothing_here(axes: Any, text: str) -> None:
    """Words in place of a picture that cannot be drawn."""
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=9, color=FAINT, transform=axes.transAxes)


def trim(axes: Any) -> None:
    """Leave only the two lines that carry a scale."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(labelsize=8, color=FAINT)
    axes.grid(axis="y", color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)


def heat_map(
    axes: Any,
    share: NDArray[np.float64],
    names: Sequence[str],
    *,
    grey: NDArray[np.bool_] | None = None,
    size: float = 7.5,
    aspect: str = "auto",
) -> None:
    """Shares from 0 to 1 of rows by columns, each from half a percent on written out; ``grey`` cells mean nothing."""
    places = np.arange(len(names))
    axes.imshow(share, cmap=HEAT, vmin=0, vmax=1, aspect=aspect)
    greyed = np.zeros(share.shape, dtype=bool) if grey is None else grey
    axes.imshow(np.ma.masked_equal(greyed.astype(float), 0), cmap="Greys", vmin=0, vmax=8, aspect=aspect)
    for row, column in np.argwhere((share >= 0.005) & ~greyed):
        value = share[row, column]
        text, colour = f"{value:.2f}".removeprefix("0"), "white" if value > 0.55 else INK
        axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)
    labels = [plain(name) for name in names]
    short = max(map(len, names)) <= 4
    axes.set_xticks(places, labels, fontsize=size + 0.5, rotation=0 if short else 35, ha="center" if short else "right")
    axes.set_yticks(places, labels, fontsize=size + 0.5)
    axes.set_xticks(places[1:] - 0.5, minor=True)
    axes.set_yticks(places[1:] - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)


class Sheet:
    """A figure laid out by hand, in inches from its upper left corner; nothing moves when texts grow."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = new_figure(width, height)
        self.width, self.height = width, height
        self.paper = self.figure.add_axes((0, 0, 1, 1), label="paper")
        """Axes over the whole sheet, for arrows, boxes and words."""
        self.paper.set_xlim(0, width)
        self.paper.set_ylim(height, 0)
        self.paper.set_axis_off()

    def axes(self, left: float, top: float, width: float, height: float) -> Any:
        """Axes in a box."""
        box = (left / self.width, 1 - (top + height) / self.height, width / self.width, height / self.height)
        return self.figure.add_axes(box)

    def picture(self, left: float, top: float, side: float, values: NDArray[Any], **options: Any) -> Any:
        """An image, mask or map in a square box, undistorted; returns what ``imshow`` gives."""
        axes = self.axes(left, top, side, side)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_color("#b8b8be")
        return axes.imshow(values, interpolation="nearest", aspect="equal", **options)

    def words(self, left: float, top: float, text: str, size: float = 9, **options: Any) -> None:
        """Text whose upper edge is ``top``; centred or coloured by ``options``."""
        self.paper.text(left, top, plain(text), **{"fontsize": size, "color": INK, "va": "top", **options})
