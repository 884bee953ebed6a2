"""Pictures of an evaluation: what is confused with what, what the relation of tissues changed, how sure it all is."""

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
from ntrm.metrics.calibration import CalibrationCounts
from ntrm.report.drawing import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    Picture,
    Strip,
    Swatch,
    check_same_size,
    check_some,
    draw_grid,
    draw_legend,
    faded,
    heat_map,
    legend_height,
    new_figure,
    plain,
    say_nothing_here,
    set_title,
    shrink_image,
    shrink_map,
    shrink_mask,
    tissue_swatches,
    trim,
    write_figure,
)

Mask = NDArray[np.integer]

CORRECTED, BROKEN, STILL_WRONG = (40, 200, 110), (190, 20, 30), (120, 120, 120)
"""A light green, a dark red and grey: told apart without seeing red or green, too."""

_INCH_PER_CLASS = 0.42

SURE, DOUBT = "cividis", "magma"
"""Maps whose lightness alone carries the value."""


@dataclass(frozen=True, eq=False)
class Improvement:
    """A section before and after the relation of tissues: image (H, W, 3) and masks (H, W)."""

    name: str
    image: Picture
    truth: Mask
    coarse: Mask
    final: Mask

    def __post_init__(self) -> None:
        check_same_size(self.name, self.image, self.truth, self.coarse, self.final)


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
    """Write image, truth, coarse and final prediction, and what changed between these two."""
    write_figure(path, lambda: draw_improvement(rows, schema))


def draw_improvement(rows: Sequence[Improvement], schema: LabelSchema) -> Figure:
    """One row for each section, with the counts in its caption."""
    check_some(rows, "sections")
    masks = [mask for row in rows for mask in (row.truth, row.coarse, row.final)]
    legend = [
        *tissue_swatches(schema, *masks),
        Swatch(CORRECTED, "corrected"),
        Swatch(BROKEN, "broken"),
        Swatch(STILL_WRONG, "wrong before and after"),
    ]
    strips = [_strip(row, schema) for row in rows]
    return draw_grid(("image", "truth", "coarse", "final", "change"), strips, legend)


def change_counts(truth: Mask, coarse: Mask, final: Mask, classes: int) -> ChangeCounts:
    """Corrected: wrong, then right. Broken: right, then wrong. Pixels of unknown truth do not count."""
    corrected, broken, wrong = _changes(truth, coarse, final, classes)
    counted = (int(np.count_nonzero(part)) for part in (corrected, broken, wrong, truth < classes))
    return ChangeCounts(*counted)


def change_map(truth: Mask, coarse: Mask, final: Mask, classes: int, image: Picture | None = None) -> Picture:
    """RGB picture (H, W, 3) of the changes; what was right and stayed so shows the image, pale, or white."""
    picture = np.full((*truth.shape, 3), 255, dtype=np.uint8) if image is None else faded(image)
    for part, colour in zip(_changes(truth, coarse, final, classes), (CORRECTED, BROKEN, STILL_WRONG), strict=True):
        picture[part] = colour
    return picture


def _changes(truth: Mask, coarse: Mask, final: Mask, classes: int) -> tuple[NDArray[np.bool_], ...]:
    known, before, after = truth < classes, coarse == truth, final == truth
    return known & ~before & after, known & before & ~after, known & ~before & ~after


def _strip(row: Improvement, schema: LabelSchema) -> Strip:
    image = shrink_image(row.image)
    truth, coarse, final = (shrink_map(mask) for mask in (row.truth, row.coarse, row.final))
    change = change_map(truth, coarse, final, len(schema), image)
    count = change_counts(row.truth, row.coarse, row.final, len(schema))
    shares = [f"{n:,} ({n / max(count.pixels, 1):.1%})" for n in (count.corrected, count.broken, count.still_wrong)]
    caption = "{} · pixels corrected {}, broken {}, wrong before and after {}".format(row.name, *shares)
    return Strip(caption, [image, *(shrink_mask(mask, schema) for mask in (truth, coarse, final)), change])


def reliability_figure(before: CalibrationCounts, after: CalibrationCounts | None, path: Path) -> None:
    """Write accuracy against confidence, before and after calibration."""
    write_figure(path, lambda: draw_reliability(before, after))


def draw_reliability(before: CalibrationCounts, after: CalibrationCounts | None = None) -> Figure:
    """Reliability diagram above, share of the pixels by confidence below."""
    figure = new_figure(6.4, 7.4, constrained=True)
    diagram, pixels = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1.3))
    for axes in (diagram, pixels):
        trim(axes)
    diagram.plot([0, 1], [0, 1], color=FAINT, lw=1, ls=":", label="as sure as right")
    _draw_counts(diagram, pixels, before, "before calibration" if after else "as it is", ORANGE, "s", "--")
    if after is not None:
        _draw_counts(diagram, pixels, after, "after calibration", BLUE, "o", "-")
    diagram.set_xlim(0, 1)
    diagram.set_ylim(0, 1.02)
    diagram.set_ylabel("share of pixels that are right", fontsize=9)
    diagram.text(0.97, 0.05, "below the line: too sure", fontsize=8, color=FAINT, ha="right")
    diagram.legend(fontsize=8.5, frameon=False, loc="upper left")
    set_title(diagram, "Is it right as often as it is sure?")
    pixels.set_ylabel("share of pixels", fontsize=9)
    pixels.set_xlabel("confidence (probability of the predicted tissue)", fontsize=9)
    pixels.set_ylim(0, None)
    return figure


def uncertainty_figure(
    name: str,
    image: Picture,
    mask: NDArray[np.integer],
    confidence: NDArray[np.floating],
    entropy: NDArray[np.floating],
    schema: LabelSchema,
    path: Path,
) -> None:
    """Write image, predicted mask, confidence and entropy of one section."""
    write_figure(path, lambda: draw_uncertainty(name, image, mask, confidence, entropy, schema))


def draw_uncertainty(
    name: str,
    image: Picture,
    mask: NDArray[np.integer],
    confidence: NDArray[np.floating],
    entropy: NDArray[np.floating],
    schema: LabelSchema,
) -> Figure:
    """Two by two pictures; confidence and entropy both run from 0 to 1."""
    check_same_size(name, image, mask, confidence, entropy)
    legend, cell, bar = tissue_swatches(schema, mask), 3.4, 0.75
    tall = cell * min(1.0, image.shape[0] / image.shape[1])
    width = 2 * (cell + bar) + 0.3
    foot = legend_height(legend, width) + 0.2
    height = 2 * (tall + 0.36) + 0.3 + foot
    figure = new_figure(width, height)
    figure.text(0.15 / width, 1 - 0.12 / height, plain(name), fontsize=10.5, fontweight="bold", color=INK, va="top")
    titles = ("image", "predicted tissue", f"confidence (mean {_mean(confidence)})", f"entropy (mean {_mean(entropy)})")
    for place, title in enumerate(titles):
        left, bottom = 0.15 + place % 2 * (cell + bar), foot + (1 - place // 2) * (tall + 0.36)
        axes = figure.add_axes((left / width, bottom / height, cell / width, tall / height))
        axes.set_title(title, loc="left", fontsize=9, color=INK, pad=4)
        axes.set_xticks([])
        axes.set_yticks([])
        if place < 2:
            shown = shrink_image(image) if place == 0 else shrink_mask(mask, schema)
            axes.imshow(shown, interpolation="nearest")
            continue
        values, colours = (confidence, SURE) if place == 2 else (entropy, DOUBT)
        drawn = axes.imshow(shrink_map(values), cmap=colours, vmin=0, vmax=1, interpolation="nearest")
        ruler = figure.add_axes(((left + cell + 0.08) / width, bottom / height, 0.12 / width, tall / height))
        figure.colorbar(drawn, cax=ruler).ax.tick_params(labelsize=7.5)
    draw_legend(figure, legend, bottom=0.12)
    return figure


def _draw_counts(
    diagram: Any, pixels: Any, counts: CalibrationCounts, label: str, colour: str, marker: str, style: str
) -> None:
    rows = counts.reliability()
    known = [(row.confidence, row.accuracy) for row in rows if row.pixels]
    if not known:
        say_nothing_here(diagram, "no annotated pixel")
        return
    error, brier = counts.expected_error or 0.0, counts.brier or 0.0
    text = f"{label}: calibration error {error:.3f}, Brier {brier:.3f}"
    diagram.plot(*zip(*known, strict=True), color=colour, marker=marker, ms=5, lw=1.6, ls=style, label=text)
    edges = [row.low for row in rows] + [1.0]
    pixels.stairs([row.pixels / counts.total for row in rows], edges, color=colour, lw=1.6, ls=style)


def _mean(values: NDArray[np.floating]) -> str:
    return f"{float(np.mean(values, dtype=np.float64)):.2f}"
