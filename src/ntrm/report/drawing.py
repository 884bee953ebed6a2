"""What every figure shares: a canvas without a window, writing whole files, titles, heat maps, rows of pictures.

In rows of pictures large sections are shrunk, small ones enlarged, none distorted: a cell is a box, and the picture
keeps its shape in it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

FORMATS = ("png", "svg", "pdf")
DPI = 150
INK, FAINT, PALE = "#222222", "#666666", "#e4e4e8"
HEAT = "Blues"
BLUE, ORANGE, GREEN, PINK = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
"""Colours of Okabe and Ito, told apart by every kind of colour vision."""

CELL = 2.35
"""Side in inches of the box that a picture stands in."""
PIXELS = 512
"""Longest side in pixels to which a picture is shrunk."""
IGNORED: RGB = (196, 196, 196)
"""Colour of pixels about which nothing is known."""

_MARGIN, _GAP, _CAPTION, _HEADER = 0.15, 0.08, 0.27, 0.2
_LEGEND_LINE, _SWATCH, _LETTER = 0.22, 0.15, 0.068
_HEADER_LETTERS = 30

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


@dataclass(frozen=True, eq=False)
class Strip:
    """One row: pictures (h, w, 3), None where there is none, and a caption above them."""

    caption: str
    pictures: Sequence[Picture | None]


@dataclass(frozen=True)
class Swatch:
    """One entry of a legend."""

    rgb: RGB
    text: str


def tissue_swatches(schema: LabelSchema, *masks: NDArray[np.integer] | None) -> list[Swatch]:
    """A swatch of every class, and one for ignored pixels where a mask holds values that are no class."""
    found = [Swatch(t.rgb, t.name if t.title in ("", t.name) else f"{t.name} {t.title}") for t in schema.tissues]
    if any(mask is not None and mask.size and int(mask.max()) >= len(schema) for mask in masks):
        found.append(Swatch(IGNORED, "not annotated"))
    return found


def shrink_image(image: Picture, side: int = PIXELS) -> Picture:
    """An RGB picture smoothly shrunk so that its longest side is at most ``side``."""
    check_picture(image)
    height, width = _fit(image.shape[:2], side)
    if (height, width) == image.shape[:2]:
        return np.asarray(image)
    picture = Image.fromarray(np.ascontiguousarray(image))
    return np.asarray(picture.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=2.0))


def shrink_map(values: NDArray[Any], side: int = PIXELS) -> NDArray[Any]:
    """A mask or map shrunk by taking the nearest pixel: no value arises that was not there."""
    if values.ndim < 2 or values.size == 0:
        raise DataError("not a map", got=f"shape {values.shape}", expected="(H, W) with at least one pixel")
    height, width = _fit(values.shape[:2], side)
    rows = ((np.arange(height) + 0.5) * values.shape[0] / height).astype(int)
    columns = ((np.arange(width) + 0.5) * values.shape[1] / width).astype(int)
    return np.asarray(values[rows][:, columns])


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


def check_picture(image: Picture) -> None:
    """Refuse what is no RGB picture."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or image.size == 0:
        raise DataError(
            "not an RGB picture", got=f"{image.dtype} of shape {image.shape}", expected="uint8 of shape (H, W, 3)"
        )


def check_same_size(name: str, image: Picture, *maps: NDArray[Any] | None) -> None:
    """Refuse masks and maps that are not of the size of their image."""
    check_picture(image)
    for values in maps:
        if values is not None and values.shape != image.shape[:2]:
            raise DataError(
                f"a map of {name} does not fit its image",
                got=f"map {values.shape}, image {image.shape[:2]}",
                expected="the same height and width",
            )


def check_some(rows: Sequence[object], what: str) -> None:
    """Refuse a figure of nothing."""
    if not rows:
        raise UsageError(f"no {what} to show", got="an empty list", expected="at least one")


def draw_grid(columns: Sequence[str], strips: Sequence[Strip], legend: Sequence[Swatch], *, note: str = "") -> Figure:
    """Figure with a row of pictures for each strip; ``legend`` and ``note`` stand below."""
    titles = ["\n".join(textwrap.wrap(title, _HEADER_LETTERS)) for title in columns]
    width = 2 * _MARGIN + len(columns) * (CELL + _GAP) - _GAP
    heights = [_row_height(strip) for strip in strips]
    header = _HEADER * (1 + max(title.count("\n") for title in titles)) + 0.1
    foot = legend_height(legend, width) + (0.25 if note else 0)
    height = _MARGIN + header + sum(heights) + (_CAPTION + _GAP) * len(strips) + foot + _MARGIN
    figure = new_figure(width, height)
    top = height - _MARGIN - header
    for number, (strip, tall) in enumerate(zip(strips, heights, strict=True)):
        caption = plain(_shorten(strip.caption, width))
        figure.text(_MARGIN / width, (top - 0.19) / height, caption, fontsize=8.5, color=FAINT, va="baseline")
        top -= _CAPTION + tall
        for place, picture in enumerate(strip.pictures):
            left = _MARGIN + place * (CELL + _GAP)
            axes = figure.add_axes((left / width, top / height, CELL / width, tall / height))
            _show(axes, picture)
            if number == 0:
                x, y = (left + CELL / 2) / width, (height - _MARGIN - header + 0.06) / height
                figure.text(x, y, plain(titles[place]), fontsize=10, fontweight="bold", color=INK, ha="center")
        top -= _GAP
    draw_legend(figure, legend, bottom=_MARGIN + (0.25 if note else 0))
    if note:
        figure.text(_MARGIN / width, _MARGIN / height, plain(note), fontsize=8, color=FAINT, va="bottom")
    return figure


def draw_legend(figure: Figure, legend: Sequence[Swatch], *, bottom: float) -> None:
    """Swatches in rows, filled from the left; ``bottom`` is the height in inches of the lowest row."""
    if not legend:
        return
    width, height = figure.get_size_inches()
    lines = _legend_lines(legend, width)
    axes = figure.add_axes((0, bottom / height, 1, lines * _LEGEND_LINE / height), label="legend")
    axes.set_xlim(0, width)
    axes.set_ylim(0, lines * _LEGEND_LINE)
    axes.set_axis_off()
    across = -(-len(legend) // lines)
    step = (width - 2 * _MARGIN) / max(across, 1)
    step = min(step, _entry_width(legend))
    for place, swatch in enumerate(legend):
        x, y = _MARGIN + place % across * step, (lines - place // across - 1) * _LEGEND_LINE + 0.03
        colour = tuple(channel / 255 for channel in swatch.rgb)
        axes.add_patch(Rectangle((x, y), _SWATCH, _SWATCH, facecolor=colour, edgecolor=INK, linewidth=0.6))
        axes.text(x + _SWATCH + 0.06, y + _SWATCH / 2, plain(swatch.text), fontsize=8, color=INK, va="center")


def _fit(shape: tuple[int, ...], side: int) -> tuple[int, int]:
    scale = min(1.0, side / max(shape))
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def _shorten(text: str, width: float) -> str:
    most = int((width - 2 * _MARGIN) / 0.078)
    return text if len(text) <= most else text[: most - 1] + "…"


def _row_height(strip: Strip) -> float:
    """As high as its highest picture: wide sections take low rows."""
    shapes = [picture.shape[:2] for picture in strip.pictures if picture is not None]
    return max((CELL * min(1.0, high / wide) for high, wide in shapes), default=CELL / 2)


def _entry_width(legend: Sequence[Swatch]) -> float:
    return _SWATCH + 0.25 + _LETTER * max(len(swatch.text) for swatch in legend)


def _legend_lines(legend: Sequence[Swatch], width: float) -> int:
    across = max(1, int((width - 2 * _MARGIN) / _entry_width(legend)))
    return -(-len(legend) // across)


def legend_height(legend: Sequence[Swatch], width: float) -> float:
    """Height in inches that a legend takes in a figure of that width."""
    return _legend_lines(legend, width) * _LEGEND_LINE + 0.08 if legend else 0.0


def _show(axes: Any, picture: Picture | None) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_color("#b8b8be")
    axes.spines[:].set_linewidth(0.6)
    if picture is None:
        say_nothing_here(axes, "not annotated")
        return
    axes.imshow(picture, interpolation="nearest", aspect="equal")
