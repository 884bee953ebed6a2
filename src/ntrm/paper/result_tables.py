"""The paper's two tables with our numbers, and what they leave out: tissues, differences, the ablation, every run.

A page shows cells as text, a CSV file as plain numbers with spreads and intervals in columns of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from ntrm.report.html import NONE, Column, columns
from ntrm.training.log import LOG

IOU = ("pooled", "macro", "iou")
HEADLINE = {"accuracy": ("pooled", "pixel_accuracy"), "mean IoU": IOU, "Dice": ("pooled", "macro", "dice")}
"""Columns of the paper's tables, and where ``metrics.json`` has them."""
QUARTERS = {"a quarter": 0.25, "half": 0.5, "three quarters": 0.75, "all": 1.0}  # Parts of a training
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


Cell = str | int | float | Score | Difference | None
Row = dict[str, Cell]  # By column


@dataclass(frozen=True)
class ResultTable:
    """A table with a name for its file, a title, and a note on how to read it."""

    name: str
    title: str
    rows: Sequence[Row]  # At least one; all have the same columns
    note: str = ""

    @property
    def texts(self) -> list[list[str]]:
        """The rows as a page shows them."""
        return [[_text(cell) for cell in row.values()] for row in self.rows]

    @property
    def columns(self) -> list[Column]:
        """The header with its classes for a page."""
        return columns([*self.rows[0]], self.texts)

    def write_csv(self, folder: Path) -> Path:
        """Write ``NAME.csv``; spreads and ends of intervals have columns of their own."""
        parts = [{title: _parts(cell) for title, cell in row.items()} for row in self.rows]
        ends = {title: max((row[title] for row in parts), key=len) for title in parts[0]}
        header = [f"{title} {end}".rstrip() for title in ends for end in ends[title]]
        cells = ([row[title].get(end) for title in ends for end in ends[title]] for row in parts)
        path = folder / f"{self.name}.csv"
        write_text(path, rows_text([header, *cells]))
        return path


def _text(cell: Cell) -> str:
    if isinstance(cell, int):
        return f"{cell:,}"
    return NONE if cell is None else with_minus(f"{cell:.4f}") if isinstance(cell, float) else str(cell)


def _parts(cell: Cell) -> dict[str, object]:
    """A cell as plain ones, by how the name of their column ends."""
    if isinstance(cell, Score):
        return {"": cell.mean, "sd": cell.spread, "seeds": len(cell.values), "failed": cell.failed}
    if isinstance(cell, Difference):
        return {"": cell.value, "low": cell.low, "high": cell.high, "established": cell.established}
    # Programs read a hyphen only.
    return {"": cell.replace(MINUS, "-") if isinstance(cell, str) else cell}


def table_1(results: PlanResults) -> ResultTable:
    """The systems of the paper: our numbers and its own."""
    note = f"{HOW} The paper's numbers are of its own dataset at 10x and of one training each."
    return _systems(results, results.plan.systems, "table1", "Table 1: the systems compared", note)


def table_1_scratch(results: PlanResults) -> ResultTable | None:
    """Table 1 and NTRM's control with every encoder from scratch, where only some had ImageNet weights."""
    note = "ImageNet weights were to hand for some encoders only. Here none has them, so that all start equal."
    scratch, title = results.plan.scratch, "Table 1, every encoder from scratch"
    return _systems(results, scratch, "table1_scratch", title, note) if scratch else None


def _systems(results: PlanResults, variants: Sequence[Variant], name: str, title: str, note: str) -> ResultTable:
    rows: list[Row] = []
    for variant in variants:
        ours, paper = headline(results, variant), stated(TABLE_1.get(variant.arch))
        rows.append({"system": variant.title, **ours, "encoder init": variant.init, **paper})
        if variant.arch.startswith("mit-b"):
            rows.append({**dict.fromkeys(rows[-1]), "system": "MiT (as quoted)", **stated(QUOTED_MIT)})
    return ResultTable(name, title, rows, note)


def table_2(results: PlanResults) -> ResultTable | None:
    """NTRM at every resolution, with what each costs."""
    rows: list[Row] = []
    for variant in results.plan.resolutions:
        mpp, pixels = (results.metric(variant, *path).mean for path in (("data", "mpp"), ("pixels",)))
        windows = results.trained(variant, "windows").mean
        row: Row = {"resolution": variant.level or "as it is", "µm/px": None if mpp is None else f"{mpp:g}"}
        row |= headline(results, variant) | stated(TABLE_2.get(variant.level))
        row["training windows"] = None if windows is None else round(windows)
        row["test pixels (million)"] = None if pixels is None else f"{pixels / 1e6:.2f}"
        row["seconds per section"] = results.score(variant, seconds_per_section, digits=2)
        row["training seconds"] = results.trained(variant, "seconds", digits=1)
        rows.append(row)
    note = (
        "The names are downsample factors of 0.67 µm/px: 10x is the coarsest and cheapest, and 2x has 25 times its "
        "pixels. Seconds per section: prediction of a test section on the device of the runs. Training seconds follow "
        "the recipe, which gives every resolution the same number of steps, or of passes over its windows."
    )
    title = "Table 2: NTRM across resolutions, and what each costs"
    return ResultTable("table2", title, rows, note) if rows else None


def seconds_per_section(outcome: JobOutcome) -> float | None:
    """Time that the prediction of a test section took."""
    seconds, sections = dig(outcome.metrics, "seconds_predicting"), dig(outcome.metrics, "pooled", "sections")
    return seconds / sections if seconds is not None and sections else None


def tissue_table(results: PlanResults, measure: str, title: str) -> ResultTable | None:
    """A score (``iou`` or ``dice``) of every tissue under every system."""
    rows: list[Row] = []
    for name in results.classes:
        path = ("pooled", "classes", name, measure)
        rows.append({"tissue": name, **{each.title: results.metric(each, *path) for each in results.plan.compared}})
    note = "Mean ± standard deviation over training seeds, all test sections together."
    return ResultTable(f"tissues_{measure}", f"{title} of every tissue", rows, note) if rows else None


def differences_table(results: PlanResults) -> ResultTable | None:
    """NTRM against every other system, paired over patients."""
    plan, rows = results.plan, list[Row]()
    if plan.ours is None:
        return None
    pairs = [(plan.ours, other) for other in plan.compared if other != plan.ours]
    compared = {measure: compare_variants(results, pairs, statistic) for measure, statistic in STATISTICS.items()}
    for pair in pairs:
        row: Row = {"NTRM minus": pair[1].title}
        for measure, title in (("accuracy", "accuracy, points"), ("iou", "IoU, points"), ("dice", "Dice, points")):
            row[title] = points(compared[measure].get(pair))
        relative = low = high = None
        verdict = FAILED
        if dice := compared["dice"].get(pair):
            second, ends = fmean(dice.second_by_seed), dice.over_trainings
            relative = signed(100 * dice.difference / second, 1) if second else None
            low, high = (signed(100 * end, 1) for end in ends) if ends else (None, None)
            direction = "NTRM higher" if dice.difference > 0 else "NTRM lower"
            verdict = f"{direction if dice.established else 'not established'} (p = {dice.p_holm:.2g})"
            verdict += "; other trainings may differ" if dice.may_turn else ""
        row |= {"Dice, relative %": relative, "Dice over seeds, from": low, "to": high, "verdict (Dice)": verdict}
        rows.append(row)
    note = (
        "Paired bootstrap over the patients of the test part (10,000 draws, 95 % intervals), Holm's correction over "
        "the rows; a star marks what is established, for these trained networks. What other trainings would show is "
        "in the interval over seeds (Welch's t, points), given where both have several. One point is 0.01. The "
        "paper's “4.9 % to 31.25 % higher Dice” are points; relative, its own numbers give 6 % to 62 %."
    )
    return ResultTable("differences", "Is NTRM better?", rows, note)


def points(comparison: Comparison | None) -> Cell:
    """A difference in points, or a note that there is none."""
    return Difference.of(comparison) if comparison else FAILED


def ablation_table(results: PlanResults) -> ResultTable | None:
    """One factor of the relation module at a time, against the matched control and against NTRM, by IoU."""
    plan, rows = results.plan, list[Row]()
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
    minus_ours = compare_variants(results, [(each, ours) for *_, each in networks if each != ours], STATISTICS["iou"])
    for name, meaning, variant in networks:
        row: Row = {"changed": name, "what it means": meaning}
        row |= {"validation IoU": results.trained(variant, "best", "iou"), "mean IoU": results.metric(variant, *IOU)}
        gained = points(minus_control.get((variant, matched[variant]))) if variant in matched else None
        lost = points(minus_ours.get((variant, ours))) if variant != ours else None
        rows.append(row | {"IoU minus control, points": gained, "IoU minus NTRM, points": lost})
    note = (
        "Mean ± standard deviation over training seeds; mean IoU as in Table 1. Each row differs from NTRM in one "
        f"factor. The matched control ({CONTROL}) has everything but the relation module: the coarse head and its loss "
        "too. Intervals and stars as above; each column is one family. "
        "Validation IoU is that of the weights that were kept: a variant is chosen by it, since what the test part "
        "has chosen it cannot judge."
    )
    return ResultTable("ablation", "Ablation of the relation module", rows, note)


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
    rows: list[Row] = []
    for variant in dict.fromkeys([*results.plan.compared, *results.plan.scratch]):
        if not (curves := curves_of(results, variant)):
            continue
        row: Row = {"system": variant.title, "encoder init": variant.init}
        row["steps"] = int(max(curve.steps[-1] for curve in curves))
        for part, fraction in QUARTERS.items():
            scores = (curve.at(fraction) for curve in curves)
            row[part] = Score(tuple(score for score in scores if score is not None), digits=3) or None
        # Negative where the last validation lost.
        gains = [curve.scores[-1] - curve.scores[:-1].max() for curve in curves if len(curve.scores) > 1]
        rows.append(row | {"last gain, at most": signed(float(max(gains)), 3) if gains else None})
    note = (
        "Mean IoU on the windows of the validation part, mean ± standard deviation over training seeds, at the last "
        "validation within each part of a training. The last column is what the last validation gained over the best "
        "one before, in the seed that gained most. A learning rate that ends at zero makes every training flat at its "
        "end: a small gain does not say that a longer training would bring no more."
    )
    return ResultTable("learning", "Learning curves", rows, note) if rows else None


def runs_table(results: PlanResults) -> ResultTable:
    """Every run: what it was, what it scored, what it took."""
    rows: list[Row] = []
    for key, outcome in results.outcomes.items():
        variant, seconds = outcome.job.variant, dig(outcome.provenance, "seconds")
        row: Row = {"network": variant.arch, "options": " ".join(f"{name}={value}" for name, value in variant.options)}
        # A seed is a name: its thousands are not set apart.
        row |= {"resolution": variant.level or None, "encoder init": variant.init, "seed": str(outcome.job.seed)}
        row |= {"status": outcome.status, **{name: dig(outcome.metrics, *path) for name, path in HEADLINE.items()}}
        row |= {"steps": outcome.provenance.get("steps")}
        rows.append(row | {"training seconds": None if seconds is None else f"{seconds:.1f}", "folder": key})
    note = "Each folder, under runs/, holds the recipe, the log, the model and the evaluation."
    return ResultTable("runs", "Every run", rows, note)


def headline(results: PlanResults, variant: Variant) -> dict[str, Score]:
    """Accuracy, mean IoU and Dice."""
    return {name: results.metric(variant, *path) for name, path in HEADLINE.items()}


def stated(row: Reported | None) -> Row:
    """The same as the paper states them."""
    return {f"paper: {name}": number for name, number in zip(HEADLINE, row or [None] * 3, strict=True)}
