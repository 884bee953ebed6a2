"""Sections in rows of pictures: image, ground truth, predictions, what is wrong, what changed, how certain it is."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ntrm.core.arrays import BoolMask
from ntrm.core.labels import RGB, LabelSchema
from ntrm.report import drawing
from ntrm.report.drawing import FAINT, INK, Picture, Swatch

Mask = NDArray[np.integer]
Row = tuple[str, Sequence[Picture]]  # A caption and the pictures (h, w, 3) above it

WRONG = (190, 20, 30)  # Colour of pixels that the network has wrong
CORRECTED, BROKEN, STILL_WRONG = (40, 200, 110), WRONG, (120, 120, 120)
"""A light green, a dark red and grey: told apart without seeing red or green, too."""


@dataclass(frozen=True, eq=False)
class Example:
    """A section or window: image (H, W, 3), ground truth (H, W) and predicted masks (H, W) by name."""

    name: str
    image: Picture
    truth: Mask
    predictions: Mapping[str, Mask]

    def pictures(self, schema: LabelSchema) -> list[Picture]:
        """Image, ground truth and predictions as they are shown."""
        masks = (self.truth, *self.predictions.values())
        return [drawing.shrink_image(self.image), *(drawing.shrink_mask(mask, schema) for mask in masks)]

    def right(self, prediction: Mask, classes: int) -> float | None:
        """Fraction of the annotated pixels that a prediction has right; None where none is annotated."""
        known = self.truth < classes
        return float((prediction == self.truth)[known].mean()) if known.any() else None


def examples_figure(examples: Sequence[Example], schema: LabelSchema) -> Figure:
    """Image, ground truth, prediction and errors of each example, which has one prediction."""
    rows = []
    for example in examples:
        (prediction,) = example.predictions.values()
        errors = {WRONG: (example.truth < len(schema)) & (example.truth != prediction)}
        right = example.right(prediction, len(schema))
        text = "no annotated pixel" if right is None else f"{right:.1%} of the annotated pixels right"
        rows.append((f"{example.name} · {text}", [*example.pictures(schema), painted(example.image, errors)]))
    legend = [*_legend(examples, schema), (WRONG, "predicted wrongly")]
    return draw_grid(("image", "truth", "prediction", "errors"), rows, legend)


def improvement_figure(examples: Sequence[Example], schema: LabelSchema) -> Figure:
    """Image, ground truth, coarse and final prediction, and what changed between these two, with the counts."""
    rows = []
    for example in examples:
        coarse, final = example.predictions.values()
        changes = changes_of(example.truth, coarse, final, len(schema))
        known = max(int(np.count_nonzero(example.truth < len(schema))), 1)
        texts = [f"{count:,} ({count / known:.1%})" for count in map(np.count_nonzero, changes.values())]
        caption = "{} · pixels corrected {}, broken {}, wrong before and after {}".format(example.name, *texts)
        rows.append((caption, [*example.pictures(schema), painted(example.image, changes)]))
    names = ((CORRECTED, "corrected"), (BROKEN, "broken"), (STILL_WRONG, "wrong before and after"))
    return draw_grid(("image", "truth", "coarse", "final", "change"), rows, [*_legend(examples, schema), *names])


def qualitative_figure(examples: Sequence[Example], schema: LabelSchema) -> Figure:
    """A row for each window, a column for each model; the caption says how much each has right."""
    rows = []
    for example in examples:
        right = {name: example.right(mask, len(schema)) for name, mask in example.predictions.items()}
        texts = " · ".join(f"{name} {value:.1%}" for name, value in right.items() if value is not None)
        caption = f"{example.name} · pixels right: {texts}" if texts else example.name
        rows.append((caption, example.pictures(schema)))
    return draw_grid(("image", "truth", *examples[0].predictions), rows, _legend(examples, schema))


def _legend(examples: Sequence[Example], schema: LabelSchema) -> list[Swatch]:
    return drawing.tissue_swatches(schema, *(mask for e in examples for mask in (e.truth, *e.predictions.values())))


def changes_of(truth: Mask, coarse: Mask, final: Mask, classes: int) -> dict[RGB, BoolMask]:
    """By colour the annotated pixels that were corrected, broken, and wrong both times."""
    known, before, after = truth < classes, coarse == truth, final == truth
    return {CORRECTED: known & ~before & after, BROKEN: known & before & ~after, STILL_WRONG: known & ~before & ~after}


def painted(image: Picture, layers: Mapping[RGB, BoolMask]) -> Picture:
    """The shrunk image, pale, with pixels in colours."""
    picture = drawing.faded(drawing.shrink_image(image))
    for colour, pixels in layers.items():
        picture[drawing.shrink_map(pixels)] = colour
    return picture


def draw_grid(columns: Sequence[str], rows: Sequence[Row], legend: Sequence[Swatch]) -> Figure:
    """Figure with a caption below each row of pictures, none of them distorted; ``legend`` stands at the bottom."""
    width = 0.3 + 2.43 * len(columns)
    # A row is as high as its highest picture: wide sections take low rows; the first has the titles of the columns.
    heights = [0.45 + max(2.35 * min(1.0, p.shape[0] / p.shape[1]) for p in pictures) for _, pictures in rows]
    heights[0] += 0.35
    figure = drawing.new_figure(width, sum(heights) + 0.3 + 0.06 * len(legend))
    parts = figure.subfigures(len(rows), 1, height_ratios=heights, squeeze=False)[:, 0]
    for part, (text, pictures) in zip(parts, rows, strict=True):
        for axes, title, picture in zip_longest(part.subplots(1, len(columns), squeeze=False)[0], columns, pictures):
            if picture is None:
                axes.set_axis_off()
                continue
            drawing.show_picture(axes, picture)
            if part is parts[0]:
                axes.set_title(textwrap.fill(title, 30), fontsize=10, fontweight="bold", color=INK)
        caption = textwrap.shorten(text, int(width / 0.085), placeholder=" …")
        part.supxlabel(caption, x=0.01, ha="left", fontsize=8.5, color=FAINT)
    drawing.draw_legend(figure, legend)
    return figure
