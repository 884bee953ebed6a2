"""Pictures of many trainings side by side: what the models say, what a part is worth, what a resolution costs."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ntrm.core.errors import DataError, UsageError, check_number
from ntrm.core.labels import LabelSchema
from ntrm.report.drawing import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PALE,
    PINK,
    Picture,
    Strip,
    check_same_size,
    check_some,
    draw_grid,
    new_figure,
    plain,
    set_title,
    shrink_image,
    shrink_mask,
    tissue_swatches,
    trim,
    write_figure,
)

Mask = NDArray[np.integer]

MARKS = ((BLUE, "o"), (GREEN, "^"), (PINK, "D"), (ORANGE, "s"))
"""Colour and marker of each score, in the order in which the first row names them."""


@dataclass(frozen=True, eq=False)
class QualitativeRow:
    """One window: image (H, W, 3), true mask (H, W) and what each model says, by its name."""

    name: str
    image: Picture
    truth: Mask
    predictions: Mapping[str, Mask]

    def __post_init__(self) -> None:
        check_same_size(self.name, self.image, self.truth, *self.predictions.values())


@dataclass(frozen=True)
class Estimate:
    """A score and, where it was estimated, its interval."""

    mean: float
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        bounds = [self.mean if bound is None else bound for bound in (self.low, self.high)]
        if not all(map(math.isfinite, (self.mean, *bounds))) or not bounds[0] <= self.mean <= bounds[1]:
            raise UsageError(
                "impossible interval", got=f"{self.mean} from {self.low} to {self.high}", expected="low ≤ mean ≤ high"
            )

    @property
    def arms(self) -> tuple[float, float]:
        """How far the interval reaches below and above."""
        low, high = (self.mean if bound is None else bound for bound in (self.low, self.high))
        return self.mean - low, high - self.mean


@dataclass(frozen=True)
class AblationRow:
    """One variant with its score."""

    name: str
    mean: float
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        Estimate(self.mean, self.low, self.high)

    @property
    def estimate(self) -> Estimate:
        """The score with its interval."""
        return Estimate(self.mean, self.low, self.high)


@dataclass(frozen=True)
class ResolutionRow:
    """One resolution: its name, µm/px, scores by name, costs by name and unit, the scores that the paper states."""

    name: str
    mpp: float
    scores: Mapping[str, Estimate]
    costs: Mapping[str, float] = field(default_factory=dict)
    quoted: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_number("µm/px", self.mpp, 1e-6, 1e6)
        for name, cost in self.costs.items():
            check_number(f"cost ({name})", cost, 0, math.inf)


def qualitative_figure(
    rows: Sequence[QualitativeRow], schema: LabelSchema, path: Path, *, models: Sequence[str] | None = None
) -> None:
    """Write image, truth and the models' masks beside each other; ``models`` chooses and orders the columns."""
    write_figure(path, lambda: draw_qualitative(rows, schema, models=models))


def draw_qualitative(
    rows: Sequence[QualitativeRow], schema: LabelSchema, *, models: Sequence[str] | None = None
) -> Figure:
    """One row for each window, one column for each model; the caption says how much each has right."""
    check_some(rows, "windows")
    names = list(rows[0].predictions) if models is None else list(models)
    for row in rows:
        missing = [name for name in names if name not in row.predictions]
        if missing:
            raise DataError(
                f"no prediction for {row.name}", got=", ".join(row.predictions), expected=", ".join(missing)
            )
    strips = [_strip(row, names, schema) for row in rows]
    masks = [mask for row in rows for mask in (row.truth, *(row.predictions[name] for name in names))]
    return draw_grid(("image", "truth", *names), strips, tissue_swatches(schema, *masks))


def ablation_figure(
    rows: Sequence[AblationRow], path: Path, *, measure: str = "mean IoU", reference: str | None = None, note: str = ""
) -> None:
    """Write the score of each variant with its interval; a line marks the variant called ``reference``."""
    write_figure(path, lambda: draw_ablation(rows, measure=measure, reference=reference, note=note))


def draw_ablation(
    rows: Sequence[AblationRow], *, measure: str = "mean IoU", reference: str | None = None, note: str = ""
) -> Figure:
    """Variants below each other, in the given order."""
    check_some(rows, "variants")
    names = [row.name for row in rows]
    if reference is not None and reference not in names:
        raise UsageError("unknown reference", got=reference, expected=f"one of {', '.join(names)}")
    labels = ["\n".join(textwrap.wrap(plain(name), 38)) for name in names]
    figure = new_figure(8.4, 1.3 + 0.4 * len(rows) + (0.25 if note else 0), constrained=True)
    axes = figure.subplots()
    for place, row in enumerate(rows):
        _draw_variant(axes, place, row, chosen=row.name == reference)
    if reference is not None:
        axes.axvline(rows[names.index(reference)].mean, color=ORANGE, lw=1, ls="--", zorder=1)
    axes.set_yticks(range(len(rows)), labels, fontsize=8.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.margins(x=0.08)
    axes.tick_params(axis="x", labelsize=8)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_xlabel(plain(note), fontsize=8.5, color=FAINT, loc="left")
    set_title(axes, plain(measure) + ("" if reference is None else f" (dashed: {plain(reference)})"))
    return figure


def resolution_figure(rows: Sequence[ResolutionRow], path: Path) -> None:
    """Write scores and costs by resolution."""
    write_figure(path, lambda: draw_resolution(rows))


def draw_resolution(rows: Sequence[ResolutionRow]) -> Figure:
    """Scores at the left, hollow as the paper states them; a panel for each cost at the right; coarse to fine."""
    check_some(rows, "resolutions")
    rows = sorted(rows, key=lambda row: -row.mpp)
    costs = list(dict.fromkeys(name for row in rows for name in row.costs))
    figure = new_figure(4.9 + 2.5 * len(costs), 4.2, constrained=True)
    first, *others = figure.subplots(1, 1 + len(costs), squeeze=False, width_ratios=[1.9, *[1] * len(costs)])[0]
    _draw_scores(first, rows)
    for axes, name in zip(others, costs, strict=True):
        _draw_cost(axes, rows, name)
    for axes in (first, *others):
        # Narrow panels have no room for µm/px, which the first one tells.
        labels = [plain(row.name) + (f"\n{row.mpp:g} µm/px" if axes is first else "") for row in rows]
        axes.set_xticks(range(len(rows)), labels, fontsize=8.5)
        axes.set_xlim(-0.6, len(rows) - 0.4)
    return figure


def _strip(row: QualitativeRow, names: Sequence[str], schema: LabelSchema) -> Strip:
    masks = [row.truth, *(row.predictions[name] for name in names)]
    known = row.truth < len(schema)
    total = max(int(np.count_nonzero(known)), 1)
    right = [np.count_nonzero(known & (row.predictions[name] == row.truth)) / total for name in names]
    shares = " · ".join(f"{name} {share:.1%}" for name, share in zip(names, right, strict=True))
    caption = f"{row.name} · pixels right: {shares}" if names and known.any() else row.name
    return Strip(caption, [shrink_image(row.image), *(shrink_mask(mask, schema) for mask in masks)])


def _draw_variant(axes: Any, place: int, row: AblationRow, *, chosen: bool) -> None:
    below, above = row.estimate.arms
    colour = ORANGE if chosen else BLUE
    axes.errorbar(row.mean, place, xerr=[[below], [above]], fmt="o", color=colour, ms=6, lw=1.6, capsize=3)
    axes.annotate(
        f"{row.mean:.3f}",
        (row.mean, place),
        xytext=(0, 7),
        textcoords="offset points",
        fontsize=7.5,
        color=INK,
        ha="center",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
    )


def _draw_scores(axes: Any, rows: Sequence[ResolutionRow]) -> None:
    trim(axes)
    names = list(dict.fromkeys(name for row in rows for name in row.scores))
    handles: list[Any] = []
    for number, name in enumerate(names):
        colour, marker = MARKS[number % len(MARKS)]
        shift = 0.12 * (number - (len(names) - 1) / 2)
        found = [(place + shift, row.scores[name]) for place, row in enumerate(rows) if name in row.scores]
        line = axes.errorbar(
            [place for place, _ in found],
            [score.mean for _, score in found],
            yerr=np.array([score.arms for _, score in found]).T,
            color=colour,
            marker=marker,
            ms=6,
            lw=1.5,
            capsize=3,
            label=plain(name),
        )
        handles.append(line)
        quoted = [(place + shift, row.quoted[name]) for place, row in enumerate(rows) if name in row.quoted]
        if quoted:
            axes.plot(*zip(*quoted, strict=True), ls="none", marker=marker, ms=8, mfc="none", mec=colour, mew=1.2)
    if any(row.quoted for row in rows):
        handles += axes.plot([], [], ls="none", marker="o", ms=8, mfc="none", mec=FAINT, label="hollow: in the paper")
    axes.legend(handles=handles, fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    set_title(axes, "Scores")


def _draw_cost(axes: Any, rows: Sequence[ResolutionRow], name: str) -> None:
    trim(axes)
    known = [(place, row.costs[name]) for place, row in enumerate(rows) if name in row.costs]
    least = min((cost for _, cost in known if cost > 0), default=1.0)
    for place, cost in known:
        axes.bar(place, cost, width=0.6, color=BLUE, alpha=0.85)
        times = f"\n× {cost / least:.3g}" if cost > 0 else ""
        axes.text(place, cost, f"{cost:.3g}{times}", fontsize=8, color=INK, ha="center", va="bottom")
    axes.set_ylim(0, 1.2 * max((cost for _, cost in known), default=1.0) or 1.0)
    set_title(axes, "\n".join(textwrap.wrap(plain(name), 22)))
