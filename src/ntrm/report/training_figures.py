"""Pictures of a training run: how losses and scores went, and what the network says about sections."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from ntrm.core.labels import LabelSchema
from ntrm.report.drawing import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PINK,
    Picture,
    Strip,
    Swatch,
    check_same_size,
    check_some,
    draw_grid,
    faded,
    new_figure,
    say_nothing_here,
    set_title,
    shrink_image,
    shrink_map,
    shrink_mask,
    tissue_swatches,
    trim,
    write_figure,
)

LogRow = Mapping[str, float | None]
Mask = NDArray[np.integer]

WRONG = (190, 20, 30)
"""Colour of pixels that the network has wrong."""

_MANY = 120
"""From this many points on, a pale line shows them and a bold one their moving average."""


@dataclass(frozen=True)
class _Line:
    key: str
    label: str
    colour: str
    marker: str
    best: str = ""
    """``low`` or ``high`` where the best value is to be marked."""


_LOSSES = (_Line("train_loss", "training", ORANGE, "s"), _Line("val_loss", "validation", BLUE, "o", best="low"))
_SCORES = (
    _Line("val_iou", "mean IoU", BLUE, "o", best="high"),
    _Line("val_dice", "mean Dice", GREEN, "^"),
    _Line("val_accuracy", "pixel accuracy", PINK, "D"),
)


@dataclass(frozen=True, eq=False)
class Example:
    """A section or window: image (H, W, 3), true mask (H, W) where it is known, predicted mask (H, W)."""

    name: str
    image: Picture
    truth: Mask | None
    prediction: Mask

    def __post_init__(self) -> None:
        check_same_size(self.name, self.image, self.truth, self.prediction)


def curves_figure(rows: Sequence[LogRow], path: Path) -> None:
    """Write losses, validation scores and learning rate against the steps of a run's log."""
    write_figure(path, lambda: draw_curves(rows))


def draw_curves(rows: Sequence[LogRow]) -> Figure:
    """Three panels above each other; a row may lack any value but ``step``."""
    figure = new_figure(8.5, 8.2, constrained=True)
    losses, scores, rate = figure.subplots(3, 1, sharex=True, height_ratios=(3, 3, 1.5))
    _draw_lines(losses, rows, _LOSSES)
    _draw_lines(scores, rows, _SCORES)
    _draw_rate(rate, rows)
    set_title(losses, "Loss")
    set_title(scores, "Validation scores")
    set_title(rate, "Learning rate")
    _choose_scales(losses, rate)
    rate.set_xlabel(_step_label(rows), fontsize=9)
    rate.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def examples_figure(examples: Sequence[Example], schema: LabelSchema, path: Path) -> None:
    """Write a sheet with image, truth, prediction and errors of each example."""
    write_figure(path, lambda: draw_examples(examples, schema))


def draw_examples(examples: Sequence[Example], schema: LabelSchema) -> Figure:
    """One row for each example; without any truth there are no columns for it."""
    check_some(examples, "examples")
    if all(example.truth is None for example in examples):
        return _without_truth(examples, schema)
    strips = [_strip(example, schema) for example in examples]
    masks = [mask for example in examples for mask in (example.truth, example.prediction)]
    legend = [*tissue_swatches(schema, *masks), Swatch(WRONG, "predicted wrongly")]
    return draw_grid(("image", "truth", "prediction", "errors"), strips, legend)


def _without_truth(examples: Sequence[Example], schema: LabelSchema) -> Figure:
    strips = [Strip(e.name, [shrink_image(e.image), shrink_mask(e.prediction, schema)]) for e in examples]
    return draw_grid(("image", "prediction"), strips, tissue_swatches(schema, *(e.prediction for e in examples)))


def error_map(image: Picture, truth: Mask, prediction: Mask, classes: int) -> Picture:
    """The pale image with every wrong pixel in ``WRONG``; pixels of unknown truth are not wrong."""
    picture = faded(image)
    picture[(truth < classes) & (truth != prediction)] = WRONG
    return picture


def _strip(example: Example, schema: LabelSchema) -> Strip:
    image, prediction = shrink_image(example.image), shrink_map(example.prediction)
    pictures: list[Picture | None] = [image, None, shrink_mask(prediction, schema), None]
    if example.truth is None:
        return Strip(f"{example.name} · truth unknown", pictures)
    truth = shrink_map(example.truth)
    pictures[1] = shrink_mask(truth, schema)
    pictures[3] = error_map(image, truth, prediction, len(schema))
    known = example.truth < len(schema)
    right = int(np.count_nonzero(known & (example.truth == example.prediction)))
    total = int(np.count_nonzero(known))
    share = f"{right / total:.1%} of the annotated pixels right" if total else "no annotated pixel"
    return Strip(f"{example.name} · {share}", pictures)


def _draw_lines(axes: Any, rows: Sequence[LogRow], lines: Sequence[_Line]) -> None:
    trim(axes)
    drawn = [line for line in lines if _draw_line(axes, line, *_values(rows, line.key))]
    if not drawn:
        say_nothing_here(axes, "no values yet")
        axes.set_yticks([])
    elif len(lines) > 1:
        axes.legend(fontsize=8.5, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_rate(axes: Any, rows: Sequence[LogRow]) -> None:
    """A schedule is exact: it is drawn in steps, never averaged."""
    trim(axes)
    steps, values = _values(rows, "learning_rate")
    if not len(values):
        say_nothing_here(axes, "no values yet")
        axes.set_yticks([])
        return
    axes.plot(steps, values, color=INK, lw=1.5, marker="." if len(values) == 1 else "", drawstyle="steps-post")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.2g}"))


def _draw_line(axes: Any, line: _Line, steps: NDArray[np.float64], values: NDArray[np.float64]) -> bool:
    if not len(values):
        return False
    label = line.label
    if line.best:
        place = int(values.argmin() if line.best == "low" else values.argmax())
        label += f"\n  best {values[place]:.3f}\n  at step {steps[place]:,.0f}"
        axes.plot(
            steps[place], values[place], "o", ms=11, mfc="none", mec=line.colour, mew=1.4, zorder=4, label="_best"
        )
    if len(values) < _MANY:
        axes.plot(steps, values, color=line.colour, marker=line.marker, ms=4, lw=1.5, label=label)
        return True
    axes.plot(steps, values, color=line.colour, lw=0.7, alpha=0.3, label="_points")
    axes.plot(steps, moving_average(values, max(3, len(values) // 40)), color=line.colour, lw=1.7, label=label)
    return True


def moving_average(values: NDArray[np.float64], span: int) -> NDArray[np.float64]:
    """Mean over ``span`` values around each, over fewer near the ends.

    >>> moving_average(np.array([0.0, 3.0, 6.0, 0.0]), 3).tolist()
    [1.5, 3.0, 3.0, 3.0]
    """
    window = np.ones(span)
    sums, counts = (np.convolve(part, window, mode="same") for part in (values, np.ones_like(values)))
    return np.asarray(sums / counts)


def _values(rows: Sequence[LogRow], key: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Steps and values of the rows that have both."""
    pairs = [(row.get("step"), row.get(key)) for row in rows]
    known = [(a, b) for a, b in pairs if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)]
    table = np.array(known, dtype=np.float64).reshape(-1, 2)
    table = table[np.argsort(table[:, 0], kind="stable")]
    return table[:, 0], table[:, 1]


def _choose_scales(losses: Any, rate: Any) -> None:
    """From zero on, or logarithmic where a linear scale would flatten most of the losses."""
    values = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in losses.lines] or [np.ones(1)])
    if values.min() > 0 and values.max() > 20 * values.min():
        losses.set_yscale("log")
    elif losses.lines and values.min() >= 0:
        losses.set_ylim(bottom=0)
    if rate.lines:
        rate.set_ylim(bottom=0)


def _step_label(rows: Sequence[LogRow]) -> str:
    epochs, _ = _values([{"step": row.get("epoch"), "value": row.get("step")} for row in rows], "value")
    return f"step (the last one shown lies in epoch {epochs.max():,.1f})" if len(epochs) else "step"
