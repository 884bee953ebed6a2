"""Pictures of an evaluation: what is confused with what, what the relation of tissues changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ntrm.core.errors import DataError
from ntrm.core.labels import LabelSchema
from ntrm.report.confidence_figures import reliability_figure, uncertainty_figure
from ntrm.report.drawing import FAINT, INK, heat_map, new_figure, say_nothing_here, set_title, write_figure
from ntrm.report.picture_grid import (
    Picture,
    Strip,
    Swatch,
    check_same_size,
    check_some,
    draw_grid,
    faded,
    shrink_image,
    shrink_map,
    shrink_mask,
    tissue_swatches,
)

__all__ = [
    "ChangeCounts",
    "Improvement",
    "change_counts",
    "change_map",
    "confusion_figure",
    "draw_confusion",
    "draw_improvement",
    "improvement_figure",
    "reliability_figure",
    "uncertainty_figure",
]

Mask = NDArray[np.integer]

CORRECTED, BROKEN, STILL_WRONG = (40, 200, 110), (190, 20, 30), (120, 120, 120)
"""A light green, a dark red and grey: told apart without seeing red or green, too."""

_INCH_PER_CLASS = 0.42


@dataclass(frozen=True, eq=False)
class Improvement:
    """A section before and after the relation of tissues: image (H, W, 3) and masks (H, W)."""

    name: str
    image: Picture
    truth: Mask
    initial: Mask
    final: Mask

    def __post_init__(self) -> None:
        check_same_size(self.name, self.image, self.truth, self.initial, self.final)


@dataclass(frozen=True)
class ChangeCounts:
    """Annotated pixels by what the change did to them."""

    corrected: int
    broken: int
    still_wrong: int
    pixels: int


def confusion_figure(counts: NDArray[np.integer], schema: LabelSchema, path: Path) -> None:
    """Write where the pixels of each true tissue went."""
    write_figure(path, lambda: draw_confusion(counts, schema))


def draw_confusion(counts: NDArray[np.integer], schema: LabelSchema) -> Figure:
    """Heat map, truth → prediction, as shares of the row; tissues that the truth does not hold are greyed."""
    size = len(schema)
    if counts.shape != (size, size):
        raise DataError("the counts do not fit the classes", got=f"shape {counts.shape}", expected=f"({size}, {size})")
    totals = counts.sum(axis=1)
    share = counts / np.maximum(totals, 1)[:, None]
    side = _INCH_PER_CLASS * max(size, 5)
    figure = new_figure(side + 2.4, side + 1.4, constrained=True)
    axes: Any = figure.subplots()
    absent_rows, absent_columns = totals == 0, (totals == 0) & (counts.sum(axis=0) == 0)
    heat_map(axes, share, schema.names, grey=absent_rows[:, None] | absent_columns[None, :], aspect="equal")
    if not totals.any():
        say_nothing_here(axes, "no annotated pixel")
    for labels, absent in ((axes.get_yticklabels(), absent_rows), (axes.get_xticklabels(), absent_columns)):
        for label, gone in zip(labels, absent, strict=True):
            label.set_color("#a0a0a6" if gone else INK)
    for row, total in enumerate(totals):
        text = f"{total / totals.sum():.1%}" if total else "absent"
        axes.text(size - 0.35, row, text, fontsize=7.5, color=FAINT, va="center", clip_on=False)
    place = {"xytext": (0, 3), "textcoords": "offset points", "annotation_clip": False}
    axes.annotate("of all pixels", (size - 0.35, -0.5), fontsize=7.5, color=FAINT, **place)
    axes.set_ylabel("true tissue", fontsize=9)
    axes.set_xlabel("predicted tissue", fontsize=9)
    set_title(axes, "Share of each true tissue’s pixels", pad=18)
    return figure


def improvement_figure(rows: Sequence[Improvement], schema: LabelSchema, path: Path) -> None:
    """Write image, truth, initial and final prediction, and what changed between these two."""
    write_figure(path, lambda: draw_improvement(rows, schema))


def draw_improvement(rows: Sequence[Improvement], schema: LabelSchema) -> Figure:
    """One row for each section, with the counts in its caption."""
    check_some(rows, "sections")
    masks = [mask for row in rows for mask in (row.truth, row.initial, row.final)]
    legend = [
        *tissue_swatches(schema, *masks),
        Swatch(CORRECTED, "corrected"),
        Swatch(BROKEN, "broken"),
        Swatch(STILL_WRONG, "wrong before and after"),
    ]
    strips = [_strip(row, schema) for row in rows]
    return draw_grid(("image", "truth", "initial", "final", "change"), strips, legend)


def change_counts(truth: Mask, initial: Mask, final: Mask, classes: int) -> ChangeCounts:
    """Corrected: wrong, then right. Broken: right, then wrong. Pixels of unknown truth do not count."""
    corrected, broken, wrong = _changes(truth, initial, final, classes)
    counted = (int(np.count_nonzero(part)) for part in (corrected, broken, wrong, truth < classes))
    return ChangeCounts(*counted)


def change_map(truth: Mask, initial: Mask, final: Mask, classes: int, image: Picture | None = None) -> Picture:
    """RGB picture (H, W, 3) of the changes; what was right and stayed so shows the image, pale, or white."""
    picture = np.full((*truth.shape, 3), 255, dtype=np.uint8) if image is None else faded(image)
    for part, colour in zip(_changes(truth, initial, final, classes), (CORRECTED, BROKEN, STILL_WRONG), strict=True):
        picture[part] = colour
    return picture


def _changes(truth: Mask, initial: Mask, final: Mask, classes: int) -> tuple[NDArray[np.bool_], ...]:
    known, before, after = truth < classes, initial == truth, final == truth
    return known & ~before & after, known & before & ~after, known & ~before & ~after


def _strip(row: Improvement, schema: LabelSchema) -> Strip:
    image = shrink_image(row.image)
    truth, initial, final = (shrink_map(mask) for mask in (row.truth, row.initial, row.final))
    change = change_map(truth, initial, final, len(schema), image)
    count = change_counts(row.truth, row.initial, row.final, len(schema))
    shares = [f"{n:,} ({n / max(count.pixels, 1):.1%})" for n in (count.corrected, count.broken, count.still_wrong)]
    caption = "{} · pixels corrected {}, broken {}, wrong before and after {}".format(row.name, *shares)
    return Strip(caption, [image, *(shrink_mask(mask, schema) for mask in (truth, initial, final)), change])
