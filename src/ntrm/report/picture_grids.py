"""Sections in rows of pictures: image, ground truth, predictions, what is wrong, what changed, how certain it is.

Large sections are shrunk, small ones enlarged, none distorted: a cell is a box, and the picture keeps its shape in it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ntrm.core.errors import DataError
from ntrm.core.labels import LabelSchema
from ntrm.report.drawing import (
    FAINT,
    FEATURES,
    FRAME,
    INK,
    MARGIN,
    Picture,
    Swatch,
    check_same_size,
    check_some,
    draw_legend,
    faded,
    legend_height,
    new_figure,
    plain,
    shrink_image,
    shrink_map,
    shrink_mask,
    tissue_swatches,
)

Mask = NDArray[np.integer]

WRONG = (190, 20, 30)
"""Colour of pixels that the network has wrong."""
CORRECTED, BROKEN, STILL_WRONG = (40, 200, 110), WRONG, (120, 120, 120)
"""A light green, a dark red and grey: told apart without seeing red or green, too."""

_CELL = 2.35
"""Side in inches of the box that a picture stands in."""
_GAP, _CAPTION, _HEADER = 0.08, 0.27, 0.2
_HEADER_LETTERS = 30


@dataclass(frozen=True, eq=False)
class Example:
    """A section or window: image (H, W, 3), ground truth (H, W) and predicted masks (H, W) by name."""

    name: str
    image: Picture
    truth: Mask
    predictions: Mapping[str, Mask]

    def __post_init__(self) -> None:
        check_same_size(self.name, self.image, self.truth, *self.predictions.values())

    def pictures(self, schema: LabelSchema) -> list[Picture]:
        """Image, ground truth and predictions as they are shown."""
        masks = (self.truth, *self.predictions.values())
        return [shrink_image(self.image), *(shrink_mask(mask, schema) for mask in masks)]


@dataclass(frozen=True, eq=False)
class GridRow:
    """One row: pictures (h, w, 3) and a caption above them."""

    caption: str
    pictures: Sequence[Picture]


def examples_figure(examples: Sequence[Example], schema: LabelSchema) -> Figure:
    """Image, ground truth, prediction and errors of each example, which has one prediction."""
    check_some(examples, "examples")
    rows = []
    for example in examples:
        (prediction,) = example.predictions.values()
        image, *masks = example.pictures(schema)
        errors = error_map(image, shrink_map(example.truth), shrink_map(prediction), len(schema))
        right = _accuracy(example.truth, prediction, len(schema))
        text = "no annotated pixel" if right is None else f"{right:.1%} of the annotated pixels right"
        rows.append(GridRow(f"{example.name} · {text}", [image, *masks, errors]))
    legend = [*_legend(examples, schema), Swatch(WRONG, "predicted wrongly")]
    return draw_grid(("image", "truth", "prediction", "errors"), rows, legend)


def improvement_figure(examples: Sequence[Example], schema: LabelSchema) -> Figure:
    """Image, ground truth, coarse and final prediction, and what changed between these two, with the counts."""
    check_some(examples, "sections")
    rows = []
    for example in examples:
        coarse, final = example.predictions.values()
        image, *masks = example.pictures(schema)
        *counts, pixels = change_counts(example.truth, coarse, final, len(schema))
        texts = [f"{count:,} ({count / max(pixels, 1):.1%})" for count in counts]
        caption = "{} · pixels corrected {}, broken {}, wrong before and after {}".format(example.name, *texts)
        truth, before, after = (shrink_map(mask) for mask in (example.truth, coarse, final))
        rows.append(GridRow(caption, [image, *masks, change_map(truth, before, after, len(schema), image)]))
    legend = [*_legend(examples, schema), Swatch(CORRECTED, "corrected"), Swatch(BROKEN, "broken")]
    legend.append(Swatch(STILL_WRONG, "wrong before and after"))
    return draw_grid(("image", "truth", "coarse", "final", "change"), rows, legend)


def qualitative_figure(examples: Sequence[Example], schema: LabelSchema) -> Figure:
    """A row for each window, a column for each model; the caption says how much each has right."""
    check_some(examples, "windows")
    names = list(examples[0].predictions)
    rows = []
    for example in examples:
        if list(example.predictions) != names:
            got, expected = ", ".join(example.predictions), ", ".join(names)
            raise DataError(f"the predictions for {example.name} are of other models", got=got, expected=expected)
        right = {name: _accuracy(example.truth, mask, len(schema)) for name, mask in example.predictions.items()}
        texts = " · ".join(f"{name} {value:.1%}" for name, value in right.items() if value is not None)
        caption = f"{example.name} · pixels right: {texts}" if texts else example.name
        rows.append(GridRow(caption, example.pictures(schema)))
    return draw_grid(("image", "truth", *names), rows, _legend(examples, schema))


def _legend(examples: Sequence[Example], schema: LabelSchema) -> list[Swatch]:
    return tissue_swatches(schema, *(mask for e in examples for mask in (e.truth, *e.predictions.values())))


def _accuracy(truth: Mask, prediction: Mask, classes: int) -> float | None:
    """Fraction of the annotated pixels that are right; None where there is none."""
    known = truth < classes
    return float((prediction == truth)[known].mean()) if known.any() else None


def error_map(image: Picture, truth: Mask, prediction: Mask, classes: int) -> Picture:
    """The pale image with every wrong pixel in ``WRONG``; pixels that are not annotated are not wrong."""
    picture = faded(image)
    picture[(truth < classes) & (truth != prediction)] = WRONG
    return picture


def change_counts(truth: Mask, coarse: Mask, final: Mask, classes: int) -> list[int]:
    """Annotated pixels: corrected (wrong, then right), broken (right, then wrong), wrong both times, and all."""
    changes = (*_changes(truth, coarse, final, classes), truth < classes)
    return [int(np.count_nonzero(pixels)) for pixels in changes]


def change_map(truth: Mask, coarse: Mask, final: Mask, classes: int, image: Picture) -> Picture:
    """RGB picture (H, W, 3) of the changes; what was right and stayed so shows the image, pale."""
    picture = faded(image)
    changes = _changes(truth, coarse, final, classes)
    for pixels, colour in zip(changes, (CORRECTED, BROKEN, STILL_WRONG), strict=True):
        picture[pixels] = colour
    return picture


def _changes(truth: Mask, coarse: Mask, final: Mask, classes: int) -> tuple[NDArray[np.bool_], ...]:
    known, before, after = truth < classes, coarse == truth, final == truth
    return known & ~before & after, known & before & ~after, known & ~before & ~after


def draw_grid(columns: Sequence[str], rows: Sequence[GridRow], legend: Sequence[Swatch]) -> Figure:
    """Figure with a row of pictures below each caption; ``legend`` stands at the bottom."""
    titles = ["\n".join(textwrap.wrap(title, _HEADER_LETTERS)) for title in columns]
    width = 2 * MARGIN + len(columns) * (_CELL + _GAP) - _GAP
    # A row is as high as its highest picture: wide sections take low rows.
    heights = [max(_CELL * min(1.0, p.shape[0] / p.shape[1]) for p in row.pictures) for row in rows]
    header = _HEADER * (1 + max(title.count("\n") for title in titles)) + 0.1
    foot = legend_height(legend, width)
    height = MARGIN + header + sum(heights) + (_CAPTION + _GAP) * len(rows) + foot + MARGIN
    figure = new_figure(width, height)
    top = height - MARGIN - header
    letters = int((width - 2 * MARGIN) / 0.078)
    for number, (row, tall) in enumerate(zip(rows, heights, strict=True)):
        caption = row.caption if len(row.caption) <= letters else row.caption[: letters - 1] + "…"
        figure.text(MARGIN / width, (top - 0.19) / height, plain(caption), fontsize=8.5, color=FAINT, va="baseline")
        top -= _CAPTION + tall
        for column, picture in enumerate(row.pictures):
            left = MARGIN + column * (_CELL + _GAP)
            axes = figure.add_axes((left / width, top / height, _CELL / width, tall / height))
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set(color=FRAME, linewidth=0.6)
            axes.imshow(picture, interpolation="nearest", aspect="equal")
            if number == 0:
                x, y = (left + _CELL / 2) / width, (height - MARGIN - header + 0.06) / height
                figure.text(x, y, plain(titles[column]), fontsize=10, fontweight="bold", color=INK, ha="center")
        top -= _GAP
    draw_legend(figure, legend, bottom=MARGIN)
    return figure


def uncertainty_figure(
    name: str,
    image: Picture,
    mask: Mask,
    confidence: NDArray[np.floating],
    entropy: NDArray[np.floating],
    schema: LabelSchema,
) -> Figure:
    """Image, predicted mask, confidence and entropy of one section, two by two; the last two run from 0 to 1."""
    check_same_size(name, image, mask, confidence, entropy)
    legend, cell, bar = tissue_swatches(schema, mask), 3.4, 0.75
    tall = cell * min(1.0, image.shape[0] / image.shape[1])
    width = 2 * (cell + bar) + 0.3
    foot = legend_height(legend, width) + 0.2
    height = 2 * (tall + 0.36) + 0.3 + foot
    figure = new_figure(width, height)
    figure.text(0.15 / width, 1 - 0.12 / height, plain(name), fontsize=10.5, fontweight="bold", color=INK, va="top")
    panels: list[tuple[str, NDArray[np.generic], str | None]] = [
        ("image", shrink_image(image), None),
        ("predicted tissue", shrink_mask(mask, schema), None),
        (f"confidence (mean {_mean(confidence)})", shrink_map(confidence), FEATURES),
        (f"entropy (mean {_mean(entropy)})", shrink_map(entropy), "magma"),
    ]
    for number, (title, values, colours) in enumerate(panels):
        left, bottom = 0.15 + number % 2 * (cell + bar), foot + (1 - number // 2) * (tall + 0.36)
        axes = figure.add_axes((left / width, bottom / height, cell / width, tall / height))
        axes.set_title(title, loc="left", fontsize=9, color=INK, pad=4)
        axes.set(xticks=[], yticks=[])
        shown = axes.imshow(values, cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        if colours is not None:
            scale = figure.add_axes(((left + cell + 0.08) / width, bottom / height, 0.12 / width, tall / height))
            figure.colorbar(shown, cax=scale).ax.tick_params(labelsize=7.5)
    draw_legend(figure, legend, bottom=0.12)
    return figure


def _mean(values: NDArray[np.floating]) -> str:
    return f"{float(np.mean(values, dtype=np.float64)):.2f}"
