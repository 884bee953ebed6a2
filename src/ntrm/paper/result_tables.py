"""The paper's two tables with our numbers, and what they leave out: tissues, differences, the ablation, every run.

A page shows cells as text, a CSV file as plain numbers with spreads and intervals in columns of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.csv_text import rows_text
from ntrm.core.io import write_text
from ntrm.core.wording import MINUS, signed, with_minus
from ntrm.metrics.significance import Comparison
from ntrm.paper.outcomes import FAILED, STATISTICS, JobOutcome, PlanResults, Score, compare_variants, dig
from ntrm.paper.plan import Variant
from ntrm.paper.published import CONTROL, QUOTED_MIT, TABLE_1, TABLE_2, Reported
from ntrm.paper.request import Facts
from ntrm.report.html import NONE, Column, columns
from ntrm.training.log import LOG

ACCURACY, IOU, DICE = ("pooled", "pixel_accuracy"), ("pooled", "macro", "iou"), ("pooled", "macro", "dice")
"""Where ``metrics.json`` has the columns of the paper's tables."""
VALIDATED = ("best", "iou")  # Where provenance.json has the score on the windows of the validation part

HEADLINE = ("accuracy", "mean IoU", "Dice")
PAPER = tuple(f"paper: {title}" for title in HEADLINE)
QUARTERS = {"a quarter": 0.25, "half": 0.5, "three quarters": 0.75, "all": 1.0}  # Parts of a training
NO_NUMBERS = Reported(None, None, None)
HOW = (
    "Mean ± standard deviation over training seeds. Accuracy is the share of pixels that are right; IoU and Dice are "
    "means over tissues, from the confusion counts of all test sections together; a tissue that occurs in neither "
    "truth nor prediction is left out."
)


class Difference(NamedTuple):
    """A difference with its interval, in the unit of the table; a star says that it is established.

    >>> print(Difference(1.25, -0.5, 3.0, False), Difference(2, 1, 3, True))
    +1.25 (−0.50 to +3.00) +2.00 (+1.00 to +3.00) *
    """

    value: float
    low: float
    high: float
    established: bool

    @classmethod
    def of(cls, comparison: Comparison) -> Difference:
        """A comparison's difference in points of a score that runs to 1."""
        value, low, high = (100 * end for end in (comparison.difference, comparison.low, comparison.high))
        return cls(value, low, high, comparison.established)

    def __str__(self) -> str:
        value, low, high = (signed(number, 2) for number in self[:3])
        return f"{value} ({low} to {high}){' *' * self.established}"


class Interval(NamedTuple):
    """The ends of an interval alone.

    >>> print(Interval(-4.81, 5.8))
    −4.8 to +5.8
    """

    low: float
    high: float

    def __str__(self) -> str:
        return f"{signed(self.low, 1)} to {signed(self.high, 1)}"


class RunFolder(str):
    """Name of a run's folder. A page shows its unique end alone: the row says the rest already."""

    __slots__ = ()


Cell = str | int | float | Score | Difference | Interval | None
ENDS: dict[type, tuple[str, ...]] = {
    Score: ("", "sd", "seeds", "failed"),
    Difference: ("", "low", "high", "established"),
    Interval: ("low", "high"),
}
"""How the columns of a CSV file end that a column becomes, by the kind of its cells."""


@dataclass(frozen=True)
class ResultTable:
    """A table with a name for its file, a title, and a note on how to read it."""

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    @property
    def texts(self) -> list[list[str]]:
        """The rows as a page shows them."""
        return [[_text(cell) for cell in row] for row in self.rows]

    @property
    def columns(self) -> list[Column]:
        """The header with its classes for a page."""
        return columns(self.header, self.texts)

    def write_csv(self, folder: Path) -> Path:
        """Write ``NAME.csv``; spreads and ends of intervals have columns of their own."""
        columns = []
        for k, title in enumerate(self.header):
            cells = [row[k] for row in self.rows]
            ends = next((ENDS[type(cell)] for cell in cells if type(cell) in ENDS), ("",))
            titles = [f"{title} {end}".rstrip() for end in ends]
            columns.append([titles, *(_values(cell, len(ends)) for cell in cells)])
        path = folder / f"{self.name}.csv"
        write_text(path, rows_text(chain.from_iterable(row) for row in zip(*columns, strict=True)))
        return path


def _text(cell: Cell) -> str:
    if isinstance(cell, RunFolder):
        return f"…{cell.rpartition('_')[2]}"
    if isinstance(cell, int):
        return f"{cell:,}"
    return NONE if cell is None else with_minus(f"{cell:.4f}") if isinstance(cell, float) else str(cell)


def _values(cell: Cell, count: int) -> list[object]:
    """A cell as ``count`` plain cells."""
    if isinstance(cell, Score):
        return [cell.mean, cell.spread, len(cell.values), cell.failed]
    if isinstance(cell, Difference | Interval):
        return [*cell]
    # Programs read a hyphen only.
    plain = cell.replace(MINUS, "-") if isinstance(cell, str) else cell
    return [plain, *[None] * (count - 1)]


def table_1(results: PlanResults) -> ResultTable:
    """The systems of the paper: our numbers and its own."""
    note = f"{HOW} The paper's numbers are of its own dataset at 10x and of one training each."
    return _systems(results, results.plan.systems, "table1", "Table 1: the systems compared", note)


def table_1_scratch(results: PlanResults) -> ResultTable | None:
    """Table 1 and NTRM's control with every encoder from scratch, where only some had ImageNet weights."""
    note = "ImageNet weights were to hand for some encoders only. Here none has them, so that all start equal."
    scratch = results.plan.scratch
    return (
        _systems(results, scratch, "table1_scratch", "Table 1, every encoder from scratch", note) if scratch else None
    )


def _systems(results: PlanResults, variants: Sequence[Variant], name: str, title: str, note: str) -> ResultTable:
    rows: list[tuple[Cell, ...]] = []
    for variant in variants:
        rows.append((variant.title, *headline(results, variant), variant.init, *TABLE_1.get(variant.arch, NO_NUMBERS)))
        if variant.arch.startswith("mit-b"):
            rows.append(("MiT (as quoted)", None, None, None, None, *QUOTED_MIT))
    return ResultTable(name, title, ("system", *HEADLINE, "encoder init", *PAPER), tuple(rows), note)


def table_2(results: PlanResults, facts: Mapping[str, Facts]) -> ResultTable | None:
    """NTRM at every resolution, with what each costs."""
    if not results.plan.resolutions:
        return None
    rows: list[tuple[Cell, ...]] = []
    for variant in results.plan.resolutions:
        known, level = facts[variant.level], variant.level
        costs = known.windows, f"{known.test_pixels / 1e6:.2f}", results.score(variant, seconds_per_section, digits=2)
        training = results.score(variant, lambda outcome: dig(outcome.provenance, ("seconds",)), digits=1)
        scores = (*headline(results, variant), *TABLE_2.get(level, NO_NUMBERS))
        rows.append((level or "as it is", f"{known.mpp:g}", *scores, *costs, training))
    titles = ("training windows", "test pixels (million)", "seconds per section", "training seconds")
    note = (
        "The names are downsample factors of 0.67 µm/px: 10x is the coarsest and cheapest, and 2x has 25 times its "
        "pixels. Seconds per section: prediction of a test section on the device of the runs. Training seconds follow "
        "the recipe, which gives every resolution the same number of steps, or of passes over its windows."
    )
    header = ("resolution", "µm/px", *HEADLINE, *PAPER, *titles)
    return ResultTable("table2", "Table 2: NTRM across resolutions, and what each costs", header, tuple(rows), note)


def seconds_per_section(outcome: JobOutcome) -> float | None:
    """Time that the prediction of a test section took."""
    seconds, sections = (dig(outcome.metrics, path) for path in (("seconds_predicting",), ("pooled", "sections")))
    return seconds / sections if seconds is not None and sections else None


def tissue_table(results: PlanResults, measure: str) -> ResultTable:
    """A score (``iou`` or ``dice``) of every tissue under every system."""
    compared, title = results.plan.compared, {"iou": "IoU", "dice": "Dice"}[measure]
    rows: list[tuple[Cell, ...]] = [
        (name, *(results.metric(variant, "pooled", "classes", name, measure) for variant in compared))
        for name in results.classes
    ]
    header = ("tissue", *(variant.title for variant in compared))
    note = "Mean ± standard deviation over training seeds, all test sections together."
    return ResultTable(f"tissues_{measure}", f"{title} of every tissue", header, tuple(rows), note)


def differences_table(results: PlanResults) -> ResultTable | None:
    """NTRM against every other system, paired over patients."""
    plan = results.plan
    if plan.ours is None:
        return None
    pairs = [(plan.ours, other) for other in plan.compared if other != plan.ours]
    compared = {measure: compare_variants(results, pairs, statistic) for measure, statistic in STATISTICS.items()}
    rows: list[tuple[Cell, ...]] = []
    for pair in pairs:
        cells, dice = [points(compared[measure].get(pair)) for measure in STATISTICS], compared["dice"].get(pair)
        relative = interval = None
        verdict = FAILED
        if dice is not None:
            second, ends = fmean(dice.second_by_seed), dice.over_trainings
            relative = signed(100 * dice.difference / second, 1) if second else None
            interval = Interval(100 * ends[0], 100 * ends[1]) if ends else None
            direction = "NTRM higher" if dice.difference > 0 else "NTRM lower"
            verdict = f"{direction if dice.established else 'not established'} (p = {dice.p_holm:.2g})"
            verdict += "; other trainings may differ" if dice.may_turn else ""
        rows.append((pair[1].title, *cells, relative, interval, verdict))
    measures = ("accuracy, points", "IoU, points", "Dice, points", "Dice, relative %", "Dice over seeds, points")
    header = ("NTRM minus", *measures, "verdict (Dice)")
    note = (
        "Paired bootstrap over the patients of the test part (10,000 draws, 95 % intervals), Holm's correction over "
        "the rows; a star marks what is established, for these trained networks. What other trainings would show is "
        "in the interval over seeds (Welch's t), given where both have several. One point is 0.01. The paper's “4.9 % "
        "to 31.25 % higher Dice” are points; relative, its own numbers give 6 % to 62 %."
    )
    return ResultTable("differences", "Is NTRM better?", header, tuple(rows), note)


def points(comparison: Comparison | None) -> Cell:
    """A difference in points, or a note that there is none."""
    return Difference.of(comparison) if comparison else FAILED


def ablation_table(results: PlanResults) -> ResultTable | None:
    """One factor of the relation module at a time, against the matched control and against NTRM, by IoU."""
    plan = results.plan
    if plan.ours is None or plan.control is None or not plan.ablation:
        return None
    ours, options = plan.ours, ", ".join(f"{key} {value}" for key, value in plan.ours.options)
    meaning = f"the paper's, with {options}" if options else "the paper's letter"
    networks = [("NTRM", meaning, ours), *((row.factor.name, row.factor.meaning, row.variant) for row in plan.ablation)]
    matched = {ours: plan.control, **{row.variant: row.control for row in plan.ablation}}
    for control in dict.fromkeys(matched.values()):
        changed = sorted(set(control.options) - set(plan.control.options))
        name = " ".join(["control", *(f"{key} {value}" for key, value in changed)])
        networks.append((name, "no relation module", control))
    minus_control = compare_variants(results, list(matched.items()), STATISTICS["iou"])
    pairs = [(variant, ours) for *_, variant in networks if variant != ours]
    minus_ours = compare_variants(results, pairs, STATISTICS["iou"])
    rows: list[tuple[Cell, ...]] = []
    for name, meaning, variant in networks:
        gained = points(minus_control.get((variant, matched[variant]))) if variant in matched else None
        lost = points(minus_ours.get((variant, ours))) if variant != ours else None
        validated = results.score(variant, lambda outcome: dig(outcome.provenance, VALIDATED))
        rows.append((name, meaning, validated, results.metric(variant, *IOU), gained, lost))
    scores = ("validation IoU", "mean IoU")
    header = ("changed", "what it means", *scores, "IoU minus control, points", "IoU minus NTRM, points")
    note = (
        "Mean ± standard deviation over training seeds; mean IoU as in Table 1. Each row differs from NTRM in one "
        f"factor. The matched control ({CONTROL}) has everything but the relation module: the coarse head and its loss "
        "too. Intervals and stars as above; each column is one family. "
        "Validation IoU is that of the weights that were kept: a variant is chosen by it, since what the test part "
        "has chosen it cannot judge."
    )
    return ResultTable("ablation", "Ablation of the relation module", header, tuple(rows), note)


class Curve(NamedTuple):
    """A score over the steps of one training."""

    steps: NDArray[np.float64]
    scores: NDArray[np.float64]

    def at(self, fraction: float) -> float | None:
        """The score of the last validation within a part of the training; None before the first."""
        within = self.steps <= fraction * self.steps[-1]
        return float(self.scores[within][-1]) if within.any() else None


def curves_of(results: PlanResults, variant: Variant) -> list[Curve]:
    """One a seed; none of a training that validated nothing, or whose log is gone."""
    curves = []
    for outcome in results.done(variant):
        if (outcome.folder / LOG).is_file():
            scores = outcome.column(LOG, "step", "val_iou", "delete it: learning curves do without")
            known = [(float(step), score) for step, score in scores.items() if np.isfinite(score)]
            curves += [Curve(*np.array(known).T)] if known else []
    return curves


def learning_table(results: PlanResults) -> ResultTable | None:
    """The compared systems, and those from scratch, quarter by quarter; None without any curve."""
    rows: list[tuple[Cell, ...]] = []
    for variant in dict.fromkeys([*results.plan.compared, *results.plan.scratch]):
        if curves := curves_of(results, variant):
            scores = [[curve.at(fraction) for curve in curves] for fraction in QUARTERS.values()]
            known = [Score(tuple(each for each in row if each is not None), digits=3) for row in scores]
            # Negative where the last validation lost.
            gains = [curve.scores[-1] - curve.scores[:-1].max() for curve in curves if len(curve.scores) > 1]
            gain = signed(float(max(gains)), 3) if gains else None
            steps = int(max(curve.steps[-1] for curve in curves))
            rows.append((variant.title, variant.init, steps, *(each if each else None for each in known), gain))
    note = (
        "Mean IoU on the windows of the validation part, mean ± standard deviation over training seeds, at the last "
        "validation within each part of a training. The last column is what the last validation gained over the best "
        "one before, in the seed that gained most. A learning rate that ends at zero makes every training flat at its "
        "end: a small gain does not say that a longer training would bring no more."
    )
    header = ("system", "encoder init", "steps", *QUARTERS, "last gain, at most")
    return ResultTable("learning", "Learning curves", header, tuple(rows), note) if rows else None


def runs_table(results: PlanResults) -> ResultTable:
    """Every run: what it was, what it scored, what it took."""
    rows = []
    for key, outcome in results.outcomes.items():
        variant = outcome.job.variant
        options = " ".join(f"{name}={value}" for name, value in variant.options)
        scores = [dig(outcome.metrics, path) for path in (ACCURACY, IOU, DICE)]
        steps, seconds = (dig(outcome.provenance, (name,)) for name in ("steps", "seconds"))
        costs = (None if steps is None else int(steps), None if seconds is None else f"{seconds:.1f}")
        # A seed is a name: its thousands are not set apart.
        which = (variant.arch, options, variant.level or None, variant.init, str(outcome.job.seed))
        rows.append((*which, outcome.status, *scores, *costs, RunFolder(key)))
    what = ("network", "options", "resolution", "encoder init", "seed", "status")
    header = (*what, *HEADLINE, "steps", "training seconds", "folder")
    note = (
        "Each folder, under runs/, holds the recipe, the log, the model and the evaluation. Here is the end of its "
        "name; tables/runs.csv has all of it."
    )
    return ResultTable("runs", "Every run", header, tuple(rows), note)


def headline(results: PlanResults, variant: Variant) -> tuple[Score, Score, Score]:
    """Accuracy, mean IoU and Dice."""
    return results.metric(variant, *ACCURACY), results.metric(variant, *IOU), results.metric(variant, *DICE)
