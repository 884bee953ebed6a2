"""Curves, matrices and intervals: a training run, an evaluation, calibration, ablation."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, product
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter
from numpy.typing import NDArray

from ntrm.core.arrays import Floats
from ntrm.core.errors import DataError
from ntrm.core.labels import LabelSchema
from ntrm.core.wording import with_minus
from ntrm.metrics.calibration import CalibrationCounts
from ntrm.report import drawing
from ntrm.report.drawing import BLUE, FAINT, GREEN, INK, ORANGE, PINK

LogRow = Mapping[str, float | None]

RATE = "learning_rate"
COLOURS = (BLUE, ORANGE, GREEN, PINK, INK)
BESIDE: dict[str, Any] = {"fontsize": 8.5, "frameon": False, "loc": "center left", "bbox_to_anchor": (1.0, 0.5)}

# Titles, and of each line its column of the log, label, colour, marker, and what finds its best value.
_PANELS: tuple[tuple[str, tuple[tuple[str, str, str, str, Any], ...]], ...] = (
    ("Loss", (("train_loss", "training", ORANGE, "s", None), ("val_loss", "validation", BLUE, "o", np.argmin))),
    (
        "Validation scores",
        (
            ("val_iou", "mean IoU", BLUE, "o", np.argmax),
            ("val_dice", "mean Dice", GREEN, "^", None),
            ("val_accuracy", "pixel accuracy", PINK, "D", None),
        ),
    ),
    ("Learning rate", ((RATE, "", INK, ".", None),)),
)


def curves_figure(rows: Sequence[LogRow]) -> Figure:
    """Losses, validation scores and learning rate over the steps of a log; a row may lack any value but ``step``."""
    figure = drawing.new_figure(8.5, 8.2)
    losses, _, rate = every = figure.subplots(3, 1, sharex=True, height_ratios=(3, 3, 1.5))
    for axes, (title, lines) in zip(every, _PANELS, strict=True):
        drawing.trim(axes, title)
        for line in lines:
            _draw_line(axes, rows, *line)
        if not axes.lines:
            drawing.show_message(axes, "no values yet")
            axes.set_yticks([])
        elif title != "Learning rate":
            axes.legend(**BESIDE)
    values = np.concatenate([line.get_ydata() for line in losses.lines] or [np.ones(1)])
    # A linear scale would flatten most of the losses.
    if values.min() > 0 and values.max() > 20 * values.min():
        losses.set_yscale("log")
        losses.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    elif losses.lines and values.min() >= 0:
        losses.set_ylim(bottom=0)
    rate.set_ylim(bottom=0)
    rate.yaxis.set_major_formatter(StrMethodFormatter("{x:.2g}"))
    epochs = [epoch for row in rows if (epoch := row.get("epoch")) is not None]
    last = f" (the last one shown lies in epoch {max(epochs):,.1f})" if epochs else ""
    rate.set_xlabel(f"step{last}", fontsize=9)
    rate.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def _draw_line(axes: Any, rows: Sequence[LogRow], key: str, label: str, colour: str, marker: str, best: Any) -> None:
    pairs = ((row.get("step"), row.get(key)) for row in rows)
    known = [(a, b) for a, b in pairs if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)]
    if not known:
        return
    steps, values = np.array(sorted(known), dtype=np.float64).T
    if best is not None:
        at = int(best(values))
        label += f"\n  best {values[at]:.3f}\n  at step {steps[at]:,.0f}"
        axes.plot(steps[at], values[at], "o", ms=11, mfc="none", mec=colour, mew=1.4, zorder=4, label="_best")
    if key == RATE:  # a schedule is exact: it is drawn in steps, never averaged
        axes.plot(steps, values, color=colour, lw=1.5, marker=marker * (len(values) == 1), drawstyle="steps-post")
    elif len(values) < 120:
        axes.plot(steps, values, color=colour, marker=marker, ms=4, lw=1.5, label=label)
    else:  # a pale line of many points, and a bold one of their moving average
        axes.plot(steps, values, color=colour, lw=0.7, alpha=0.3, label="_points")
        axes.plot(steps, moving_average(values, max(3, len(values) // 40)), color=colour, lw=1.7, label=label)


def moving_average(values: Floats, span: int) -> Floats:
    """Mean over ``span`` values around each, over fewer near the ends.

    >>> moving_average(np.array([0.0, 3.0, 6.0, 0.0]), 3).tolist()
    [1.5, 3.0, 3.0, 3.0]
    """
    sums, counts = (np.convolve(summands, np.ones(span), mode="same") for summands in (values, np.ones_like(values)))
    return np.asarray(sums / counts)


def learning_figure(curves: Mapping[str, Sequence[tuple[Floats, Floats]]], *, measure: str) -> Figure:
    """Steps and scores of every training by system: pale, and the mean of a system bold as far as all of them go.

    The number beside its name is the mean of their last scores.
    """
    figure = drawing.new_figure(8.5, 4.6)
    axes = figure.subplots()
    drawing.trim(axes, measure)
    for (name, trainings), (style, colour) in zip(curves.items(), cycle(product(("o-", "D--"), COLOURS)), strict=False):
        for steps, scores in trainings:
            axes.plot(steps, scores, color=colour, lw=0.8, alpha=0.3, label="_training")
        every = np.unique(np.concatenate([steps for steps, _ in trainings]))
        every = every[every <= min(steps[-1] for steps, _ in trainings)]
        mean = np.mean([np.interp(every, steps, scores) for steps, scores in trainings], axis=0)
        last = np.mean([scores[-1] for _, scores in trainings])
        axes.plot(every, mean, style, color=colour, ms=4, lw=1.8, label=f"{name}: {last:.3f}")
    axes.legend(**BESIDE)
    axes.set_xlabel("step", fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def confusion_figure(counts: NDArray[np.integer], schema: LabelSchema) -> Figure:
    """Heat map, ground truth → prediction, as fractions of the row; tissues without annotated pixels are greyed."""
    size = len(schema)
    if counts.shape != (size, size):
        raise DataError("the counts do not fit the classes", got=f"shape {counts.shape}", expected=f"({size}, {size})")
    totals = counts.sum(axis=1)
    side = 0.42 * max(size, 5)
    figure = drawing.new_figure(side + 2.4, side + 1.4)
    axes: Any = figure.subplots()
    absent, never = totals == 0, (totals == 0) & (counts.sum(axis=0) == 0)
    fractions, grey = counts / np.maximum(totals, 1)[:, None], absent[:, None] | never[None, :]
    drawing.heat_map(axes, fractions, schema.names, grey=grey, aspect="equal")
    if absent.all():
        drawing.show_message(axes, "no annotated pixel")
    for row, text in enumerate(["of all pixels", *(f"{n / totals.sum():.1%}" if n else "absent" for n in totals)]):
        axes.text(size - 0.35, row - 1, text, va="center", fontsize=7.5, color=FAINT)
    axes.set_ylabel("true tissue", fontsize=9)
    axes.set_xlabel("predicted tissue", fontsize=9)
    drawing.set_title(axes, "Share of each true tissue’s pixels", pad=18)
    return figure


def reliability_figure(before: CalibrationCounts, after: CalibrationCounts | None = None) -> Figure:
    """Accuracy against confidence, before and after calibration; below, the fraction of the pixels by confidence."""
    figure = drawing.new_figure(6.4, 7.4)
    diagram, pixels = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1.3))
    drawing.trim(diagram, "Is it right as often as it is sure?")
    drawing.trim(pixels)
    diagram.plot([0, 1], [0, 1], color=FAINT, lw=1, ls=":", label="as sure as right")
    drawn = [(before, "before calibration" if after else "as it is", ORANGE, "s", "--")]
    drawn += [(after, "after calibration", BLUE, "o", "-")] if after else []
    for counts, label, colour, marker, style in drawn:
        if not counts.total:
            drawing.show_message(diagram, "no annotated pixel")
            continue
        rows = counts.reliability()
        known = [(row.confidence, row.accuracy) for row in rows if row.pixels]
        text = f"{label}: calibration error {counts.expected_error or 0:.3f}, Brier {counts.brier or 0:.3f}"
        diagram.plot(*zip(*known, strict=True), color=colour, marker=marker, ms=5, lw=1.6, ls=style, label=text)
        fractions, edges = [row.pixels / counts.total for row in rows], [*(row.low for row in rows), 1.0]
        pixels.stairs(fractions, edges, color=colour, lw=1.6, ls=style)
    diagram.set(xlim=(0, 1), ylim=(0, 1.02))
    diagram.set_ylabel("share of pixels that are right", fontsize=9)
    diagram.text(0.97, 0.05, "below the line: too sure", fontsize=8, color=FAINT, ha="right")
    diagram.legend(fontsize=8.5, frameon=False, loc="upper left")
    pixels.set_ylabel("share of pixels", fontsize=9)
    pixels.set_xlabel("confidence (probability of the predicted tissue)", fontsize=9)
    pixels.set_ylim(0, None)
    return figure


@dataclass(frozen=True)
class Estimate:
    """A score and, where it was estimated, its interval."""

    mean: float
    low: float | None = None
    high: float | None = None

    @property
    def arms(self) -> tuple[float, float]:
        """How far the interval reaches below and above."""
        low, high = (self.mean if bound is None else bound for bound in (self.low, self.high))
        return self.mean - low, high - self.mean


def ablation_figure(variants: Mapping[str, Estimate], *, measure: str, reference: str, note: str) -> Figure:
    """The score of each variant with its interval, one below the other; a line marks the one called ``reference``."""
    figure = drawing.new_figure(8.4, 1.55 + 0.4 * len(variants))
    axes = figure.subplots()
    drawing.trim(axes, f"{measure} (dashed: {reference})")
    above: dict[str, Any] = {"xytext": (0, 7), "textcoords": "offset points", "ha": "center", "fontsize": 7.5}
    white = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
    for row, (name, score) in enumerate(variants.items()):
        colour, arms = ORANGE if name == reference else BLUE, [[arm] for arm in score.arms]
        axes.errorbar(score.mean, row, xerr=arms, fmt="o", color=colour, ms=6, lw=1.6, capsize=3)
        axes.annotate(with_minus(f"{score.mean:.3f}"), (score.mean, row), color=INK, bbox=white, **above)
    axes.axvline(variants[reference].mean, color=ORANGE, lw=1, ls="--", zorder=1)
    axes.set_yticks(range(len(variants)), [textwrap.fill(name, 38) for name in variants], fontsize=8.5)
    axes.set_ylim(len(variants) - 0.5, -0.5)
    axes.margins(x=0.08)
    axes.set_xlabel(note, fontsize=8.5, color=FAINT, loc="left")
    return figure
