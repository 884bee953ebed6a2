"""What every figure shares: a canvas without a window, whole files, titles, heat maps, shrunk pictures, legends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image

from ntrm.core.errors import DataError, UsageError, choices_error
from ntrm.core.io import whole_file
from ntrm.core.labels import RGB, LabelSchema
from ntrm.core.pixels import check_picture, sampled, size_within

FORMATS = ("png", "svg", "pdf")
DPI = 150
INK, FAINT, PALE, FRAME = "#222222", "#666666", "#e4e4e8", "#b8b8be"
BLUE, ORANGE, GREEN, PINK = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
"""Colours of Okabe and Ito, told apart by every kind of colour vision."""
FEATURES = "cividis"
"""A colour map whose lightness alone carries the value."""
PIXELS = 512
"""Longest side in pixels to which a picture is shrunk."""
IGNORED: RGB = (196, 196, 196)
"""Colour of pixels about which nothing is known."""

MARGIN = 0.15
_LEGEND_LINE, _SWATCH, _LETTER = 0.22, 0.15, 0.068

Arguments = ParamSpec("Arguments")
Picture = NDArray[np.uint8]


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
    figure = draw(*args, **options)
    # With a date or random identifiers inside, the same picture would give a different file each time.
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with whole_file(path) as partial, mpl.rc_context({"svg.hashsalt": "ntrm"}):
        figure.savefig(partial, format=kind, dpi=DPI, metadata=undated.get(kind))


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


def show_message(axes: Any, text: str) -> None:
    """A text in place of a picture that cannot be drawn."""
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
    fractions: NDArray[np.float64],
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
    labels, ticks = [plain(name) for name in names], np.arange(len(names))
    short = max(map(len, names)) <= 4
    axes.set_xticks(ticks, labels, fontsize=size + 0.5, rotation=0 if short else 35, ha="center" if short else "right")
    axes.set_yticks(ticks, labels, fontsize=size + 0.5)
    axes.set_xticks(ticks[1:] - 0.5, minor=True)
    axes.set_yticks(ticks[1:] - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)


class Sheet:
    """A figure laid out by hand, in inches from its upper left corner; nothing moves when texts grow."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = new_figure(width, height)
        self.width, self.height = width, height
        self.paper = self.figure.add_axes((0, 0, 1, 1), label="paper")
        """Axes over the whole sheet, for arrows, boxes and texts."""
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
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color(FRAME)
        return axes.imshow(values, interpolation="nearest", aspect="equal", **options)

    def text(self, left: float, top: float, text: str, size: float = 9, **options: Any) -> None:
        """Text whose upper edge is ``top``; centred or coloured by ``options``."""
        self.paper.text(left, top, plain(text), **{"fontsize": size, "color": INK, "va": "top", **options})


def shrink_image(image: Picture, side: int = PIXELS) -> Picture:
    """An RGB picture smoothly shrunk so that its longest side is at most ``side``."""
    check_picture(image)
    height, width = size_within(image.shape[:2], side)
    if (height, width) == image.shape[:2]:
        return np.asarray(image)
    picture = Image.fromarray(np.ascontiguousarray(image))
    return np.asarray(picture.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=2.0))


def shrink_map(values: NDArray[Any], side: int = PIXELS) -> NDArray[Any]:
    """A mask or map shrunk by taking the nearest pixel: no value arises that was not there."""
    if values.ndim < 2 or values.size == 0:
        raise DataError("not a map", got=f"shape {values.shape}", expected="(H, W) with at least one pixel")
    return sampled(values, size_within(values.shape[:2], side))


def shrink_mask(mask: NDArray[np.integer], schema: LabelSchema, side: int = PIXELS) -> Picture:
    """An index mask shrunk and then coloured, so that its colours stay exact."""
    return schema.colourise(shrink_map(mask, side), IGNORED)


def faded(image: Picture) -> Picture:
    """A pale grey picture of the tissue, for colours to lie on; pale stains are stretched so that they still show.

    >>> faded(np.array([[[0, 0, 0], [255, 255, 255]]], dtype=np.uint8))[..., 0].tolist()
    [[200, 255]]
    """
    grey = np.asarray(image).mean(axis=2, keepdims=True)
    low, high = np.percentile(grey, (2, 98))
    stretched = np.clip((grey - low) / max(high - low, 1.0), 0, 1)
    return np.repeat((200 + 55 * stretched).round().astype(np.uint8), 3, axis=2)


def check_same_size(name: str, image: Picture, *maps: NDArray[Any]) -> None:
    """Refuse masks and maps that are not of the size of their image."""
    check_picture(image)
    for values in maps:
        if values.shape != image.shape[:2]:
            raise DataError(
                f"a map of {name} does not fit its image",
                got=f"map {values.shape}, image {image.shape[:2]}",
                expected="the same height and width",
            )


def check_some(items: Sequence[object], what: str) -> None:
    """Refuse a figure of nothing."""
    if not items:
        raise UsageError(f"no {what} to show", got="an empty list", expected="at least one")


@dataclass(frozen=True)
class Swatch:
    """One entry of a legend."""

    rgb: RGB
    text: str


def tissue_swatches(schema: LabelSchema, *masks: NDArray[np.integer]) -> list[Swatch]:
    """A swatch of every class, and one for ignored pixels where a mask holds values that are no class."""
    swatches = [Swatch(t.rgb, t.name if t.title in ("", t.name) else f"{t.name} {t.title}") for t in schema.tissues]
    if any(mask.size and int(mask.max()) >= len(schema) for mask in masks):
        swatches.append(Swatch(IGNORED, "not annotated"))
    return swatches


def draw_legend(figure: Figure, legend: Sequence[Swatch], *, bottom: float) -> None:
    """Swatches in lines, filled from the left; ``bottom`` is the height in inches of the lowest line."""
    if not legend:
        return
    width, height = figure.get_size_inches()
    lines = _legend_lines(legend, width)
    axes = figure.add_axes((0, bottom / height, 1, lines * _LEGEND_LINE / height), label="legend")
    axes.set_xlim(0, width)
    axes.set_ylim(0, lines * _LEGEND_LINE)
    axes.set_axis_off()
    across = -(-len(legend) // lines)
    step = min((width - 2 * MARGIN) / across, _entry_width(legend))
    for number, swatch in enumerate(legend):
        x, y = MARGIN + number % across * step, (lines - number // across - 1) * _LEGEND_LINE + 0.03
        colour = tuple(channel / 255 for channel in swatch.rgb)
        axes.add_patch(Rectangle((x, y), _SWATCH, _SWATCH, facecolor=colour, edgecolor=INK, linewidth=0.6))
        axes.text(x + _SWATCH + 0.06, y + _SWATCH / 2, plain(swatch.text), fontsize=8, color=INK, va="center")


def legend_height(legend: Sequence[Swatch], width: float) -> float:
    """Height in inches that a legend takes in a figure of that width."""
    return _legend_lines(legend, width) * _LEGEND_LINE + 0.08 if legend else 0.0


def _legend_lines(legend: Sequence[Swatch], width: float) -> int:
    across = max(1, int((width - 2 * MARGIN) / _entry_width(legend)))
    return -(-len(legend) // across)


def _entry_width(legend: Sequence[Swatch]) -> float:
    return _SWATCH + 0.25 + _LETTER * max(len(swatch.text) for swatch in legend)
