"""What every figure shares: canvas and file, titles, heat maps, shrunk pictures, legends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray
from PIL import Image

from ntrm.core.errors import choices_error
from ntrm.core.io import whole_file
from ntrm.core.labels import RGB, LabelSchema
from ntrm.core.pixels import check_picture, sampled, size_within

FORMATS = ("png", "svg", "pdf")
DPI = 150
INK, FAINT, PALE = "#222222", "#666666", "#e4e4e8"
BLUE, ORANGE, GREEN, PINK = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
"""Colours of Okabe and Ito, told apart by every kind of colour vision."""
FEATURES = "cividis"  # A colour map whose lightness alone carries the value
PIXELS = 512  # Longest side in pixels to which a picture is shrunk
IGNORED: RGB = (196, 196, 196)  # Colour of pixels about which nothing is known

Arguments = ParamSpec("Arguments")
Picture = NDArray[np.uint8]
Swatch = tuple[RGB, str]  # Colour and text of an entry of a legend


def check_format(path: Path) -> str:
    """Format that the suffix of ``path`` stands for; refused before any work is done.

    >>> check_format(Path("stats.SVG"))
    'svg'
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise choices_error(f"cannot draw {path.name}", path.suffix or "no suffix", [f".{name}" for name in FORMATS])
    return kind


def write_figure(
    path: Path, draw: Callable[Arguments, Figure], *args: Arguments.args, **options: Arguments.kwargs
) -> None:
    """Write the figure that ``draw`` makes; the suffix chooses PNG, SVG or PDF, and is checked before drawing."""
    kind = check_format(path)
    # With a date or random identifiers inside, the same picture would give a different file each time.
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    # A dollar sign in a name begins no formula.
    with mpl.rc_context({"svg.hashsalt": "ntrm", "text.parse_math": False}), whole_file(path) as partial:
        draw(*args, **options).savefig(partial, format=kind, dpi=DPI, metadata=undated.get(kind))


def new_figure(width: float, height: float) -> Figure:
    """An empty white figure, measured in inches, that needs no display and finds room for its texts."""
    figure = Figure(figsize=(width, height), facecolor="white")
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.1)
    FigureCanvasAgg(figure)
    return figure


def set_title(axes: Any, text: str, *, pad: float = 10) -> None:
    """A title at the left, in bold, so many points above the axes."""
    axes.set_title(text, loc="left", fontsize=10.5, fontweight="bold", color=INK, pad=pad)


def show_message(axes: Any, text: str) -> None:
    """A text in place of a picture that cannot be drawn."""
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=9, color=FAINT, transform=axes.transAxes)


def trim(axes: Any, title: str = "") -> None:
    """Leave only the two lines that carry a scale."""
    set_title(axes, title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(labelsize=8, color=FAINT)
    axes.grid(axis="y", color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)


def heat_map(
    axes: Any,
    fractions: NDArray[np.floating],
    names: Sequence[str],
    *,
    grey: NDArray[np.bool_],
    size: float = 7.5,
    aspect: str = "auto",
) -> None:
    """Fractions from 0 to 1 of rows by columns, numbers from half a percent on; ``grey`` cells mean nothing."""
    axes.imshow(fractions, cmap="Blues", vmin=0, vmax=1, aspect=aspect)
    axes.imshow(np.ma.masked_equal(grey.astype(float), 0), cmap="Greys", vmin=0, vmax=8, aspect=aspect)
    for row, column in np.argwhere((fractions >= 0.005) & ~grey):
        value = fractions[row, column]
        text, colour = f"{value:.2f}".removeprefix("0"), "white" if value > 0.55 else INK
        axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)
    ticks = np.arange(len(names))
    short = max(map(len, names)) <= 4
    axes.set_xticks(ticks, names, fontsize=size + 0.5, rotation=0 if short else 35, ha="center" if short else "right")
    axes.set_yticks(ticks, names, fontsize=size + 0.5)
    axes.set_xticks(ticks[1:] - 0.5, minor=True)
    axes.set_yticks(ticks[1:] - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)


def show_picture(axes: Any, values: NDArray[Any], title: str = "", **options: Any) -> Any:
    """An image, mask or map without ticks, undistorted; returns what ``imshow`` gives."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(color="#b8b8be", linewidth=0.6)
    axes.set_title(title, loc="left", fontsize=8.5, color=INK, pad=4)
    return axes.imshow(values, interpolation="nearest", aspect="equal", **options)


def shrink_image(image: Picture, side: int = PIXELS) -> Picture:
    """An RGB picture smoothly shrunk so that its longest side is at most ``side``."""
    check_picture(image)
    picture, (height, width) = Image.fromarray(np.ascontiguousarray(image)), size_within(image.shape[:2], side)
    return np.asarray(picture.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=2.0))


def shrink_map(values: NDArray[Any], side: int = PIXELS) -> NDArray[Any]:
    """A mask or map shrunk by taking the nearest pixel: no value arises that was not there."""
    return sampled(values, size_within(values.shape[:2], side))


def shrink_mask(mask: NDArray[np.integer], schema: LabelSchema, side: int = PIXELS) -> Picture:
    """An index mask shrunk and then coloured, so that its colours stay exact."""
    return schema.colourise(shrink_map(mask, side), IGNORED)


def faded(image: Picture) -> Picture:
    """A pale grey picture of the tissue, for colours to lie on; pale stains are stretched so that they still show."""
    grey = np.asarray(image).mean(axis=2, keepdims=True)
    low, high = np.percentile(grey, (2, 98))
    stretched = np.clip((grey - low) / max(high - low, 1.0), 0, 1)
    return np.repeat((200 + 55 * stretched).round().astype(np.uint8), 3, axis=2)


def tissue_swatches(schema: LabelSchema, *masks: NDArray[np.integer]) -> list[Swatch]:
    """A swatch of every class, and one for ignored pixels where a mask holds values that are no class."""
    swatches = [(t.rgb, f"{t.name} {t.explanation}".strip()) for t in schema.tissues]
    if any(mask.size and int(mask.max()) >= len(schema) for mask in masks):
        swatches.append((IGNORED, "not annotated"))
    return swatches


def draw_legend(figure: Figure, legend: Sequence[Swatch]) -> None:
    """Swatches below everything else, in as many columns as fit."""
    handles = [
        Patch(facecolor="#{:02x}{:02x}{:02x}".format(*rgb), edgecolor=INK, lw=0.6, label=text) for rgb, text in legend
    ]
    # A letter of this size takes up about a fourteenth of an inch.
    wide = 0.4 + max((len(text) for _, text in legend), default=0) / 14
    columns = max(1, min(len(legend), int(figure.get_figwidth() / wide)))
    figure.legend(handles=handles, loc="outside lower left", ncols=columns, fontsize=8, handlelength=1, frameon=False)
