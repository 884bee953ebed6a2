"""Results of the runs, read from disk and compared over the patients of the test split.

Comparisons are paired, with Holm's correction over a family of them.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ntrm.core.csv_text import read_rows
from ntrm.core.errors import DataError
from ntrm.core.io import read_arrays, read_object
from ntrm.core.wording import with_minus
from ntrm.evaluation.result import CONFUSIONS, INTERFACE_COUNTS, INTERFACES, METRICS, SECTIONS
from ntrm.metrics import significance
from ntrm.metrics.significance import Bootstrap, Comparison, Statistic, compare_confusions, compare_scores, holm
from ntrm.paper.plan import Job, TrainingPlan, Variant
from ntrm.report.html import NONE
from ntrm.training.log import LOG, read_log

Document = Mapping[str, Any]
EVALUATION = "evaluation"
DONE, FAILED, MISSING = "done", "failed", "not run"
STATISTICS: dict[str, Statistic] = {
    "accuracy": significance.pixel_accuracy,
    "iou": significance.macro_iou,
    "dice": significance.macro_dice,
}
BOOTSTRAP = Bootstrap(draws=10_000, confidence=0.95, seed=0)

Key = TypeVar("Key", bound=Hashable)
Variants = tuple[Variant, Variant]


@dataclass(frozen=True)
class Score:
    """A number for each training seed: mean ± standard deviation of a sample.

    >>> str(Score((0.5, 0.7))), str(Score((0.5,))), str(Score((0.5,), failed=1)), str(Score((), failed=2))
    ('0.6000 ± 0.1414', '0.5000', '0.5000 (1 seed failed)', 'failed')
    """

    values: tuple[float, ...]
    failed: int = 0
    """Seeds whose run failed."""
    digits: int = 4

    @property
    def mean(self) -> float | None:
        """Mean over the seeds; None where there is no number."""
        return fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """Standard deviation over the seeds; None for fewer than two."""
        return stdev(self.values) if len(self.values) > 1 else None

    def __str__(self) -> str:
        if self.mean is None:
            return FAILED if self.failed else NONE
        text = with_minus(f"{self.mean:.{self.digits}f}")
        if self.spread is not None:
            text += f" ± {self.spread:.{self.digits}f}"
        return text + (f" ({self.failed} seed{'s' * (self.failed > 1)} failed)" if self.failed else "")

    def __bool__(self) -> bool:
        return bool(self.values)


@dataclass(frozen=True, eq=False)
class JobOutcome:
    """The state and the results of a job."""

    job: Job
    folder: Path
    status: str
    metrics: Document = field(default_factory=dict)
    """``metrics.json`` of its evaluation."""
    provenance: Document = field(default_factory=dict)
    """``provenance.json`` of its training."""
    failure: str = ""
    """The last lines of the log of a job that failed."""

    @property
    def model(self) -> Path:
        """The trained network."""
        return self.folder / "model"

    @cached_property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """``confusions.npz``: names, patients, final (S, K, K), and coarse where the network has a coarse head."""
        path = self.folder / EVALUATION / CONFUSIONS
        return read_arrays(path, hint=_start_again(path))

    @cached_property
    def interfaces(self) -> dict[str, NDArray[Any]]:
        """``interfaces.npz``: pixels and wrong (S, K, K), and corrected and broken where there is a coarse head."""
        path = self.folder / EVALUATION / INTERFACES
        return read_arrays(path, hint=_start_again(path))

    @cached_property
    def log(self) -> list[dict[str, float | None]]:
        """``log.csv`` of its training; empty where it was left behind."""
        path = self.folder / LOG
        try:
            return read_log(path) if path.is_file() else []
        except (OSError, ValueError, csv.Error) as error:
            raise DataError(f"cannot read {path}", got=error, hint="delete it: learning curves do without") from error

    @cached_property
    def sections(self) -> list[dict[str, str]]:
        """``sections.csv``: a row for each section of ``confusions.npz``, in the same order."""
        path = self.folder / EVALUATION / SECTIONS
        names = [str(name) for name in self.arrays["names"]]
        try:
            with path.open(encoding="utf-8", newline="") as stream:
                columns, *rows = [*read_rows(stream)] or [[]]
            found = [dict(zip(columns, row, strict=True)) for row in rows]
            if [row["name"] for row in found] != names:
                raise ValueError(f"{len(found)} rows, not those of the {len(names)} sections")
        except (OSError, ValueError, KeyError, csv.Error) as error:
            raise _unreadable(path, error) from error
        return found

    def section_scores(self, column: str) -> list[float]:
        """A column of ``sections.csv``, NaN where a cell is empty."""
        try:
            return [float(row[column] or "nan") for row in self.sections]
        except (KeyError, ValueError) as error:
            raise _unreadable(self.folder / EVALUATION / SECTIONS, error) from error


def evaluation_of(folder: Path) -> Document | None:
    """``metrics.json`` of a run; it is written last, so that its presence means that the run is done."""
    return read_object(folder / EVALUATION / METRICS) or None


def read_outcome(job: Job, folder: Path, failure: str = "") -> JobOutcome:
    """State and results of a job, from its folder."""
    metrics = evaluation_of(folder)
    if metrics is None:
        return JobOutcome(job, folder, FAILED if failure else MISSING, failure=failure)
    return JobOutcome(job, folder, DONE, metrics, read_object(folder / "provenance.json"))


@dataclass(frozen=True, eq=False)
class PlanResults:
    """The outcomes of a plan."""

    plan: TrainingPlan
    outcomes: Mapping[str, JobOutcome]
    """By key of the job."""
    patients: Mapping[str, str]
    """By name of the section, as the dataset has them now: those in an evaluation may have been corrected since."""

    @classmethod
    def read(
        cls, plan: TrainingPlan, folder: Callable[[Job], Path], failures: Mapping[str, str], patients: Mapping[str, str]
    ) -> PlanResults:
        """Read every job's folder; ``failures`` has the reason of those that failed, by key."""
        outcomes = {job.key: read_outcome(job, folder(job), failures.get(job.key, "")) for job in plan.jobs}
        return cls(plan, outcomes, patients)

    @property
    def classes(self) -> list[str]:
        """Names of the classes; none without a result."""
        done = (outcome for outcome in self.outcomes.values() if outcome.status == DONE)
        return next((list(outcome.metrics["classes"]) for outcome in done), [])

    @property
    def failed(self) -> tuple[JobOutcome, ...]:
        """Jobs that have no result."""
        return tuple(outcome for outcome in self.outcomes.values() if outcome.status != DONE)

    def of(self, variant: Variant) -> tuple[JobOutcome, ...]:
        """Outcomes of a network, one a seed."""
        return tuple(self.outcomes[self.plan.job(variant, seed).key] for seed in self.plan.seeds)

    def done(self, variant: Variant) -> tuple[JobOutcome, ...]:
        """Those that have results."""
        return tuple(outcome for outcome in self.of(variant) if outcome.status == DONE)

    def score(self, variant: Variant, value: Callable[[JobOutcome], float | None], digits: int = 4) -> Score:
        """A number over the seeds; seeds in which it is not defined are left out."""
        values = [value(outcome) for outcome in self.done(variant)]
        failed = sum(outcome.status != DONE for outcome in self.of(variant))
        return Score(tuple(number for number in values if number is not None), failed, digits)

    def metric(self, variant: Variant, *path: str) -> Score:
        """A number of ``metrics.json`` over the seeds: ``metric(variant, "pooled", "macro", "iou")``."""
        return self.score(variant, lambda outcome: dig(outcome.metrics, path))

    def stack(self, variant: Variant, array: str = "final") -> NDArray[Any] | None:
        """An array of ``confusions.npz`` with a leading axis of seeds; None where no seed has it."""
        arrays = [outcome.arrays[array] for outcome in self.done(variant) if array in outcome.arrays]
        return np.stack(arrays) if arrays else None

    def section_scores(self, variant: Variant, column: str) -> NDArray[np.float64] | None:
        """(seeds, S) a column of ``sections.csv``, NaN where a cell is empty; None where no seed has results."""
        seeds = [outcome.section_scores(column) for outcome in self.done(variant)]
        return np.array(seeds) if seeds else None

    def sections(self, variants: Iterable[Variant]) -> tuple[list[str], list[str]]:
        """Names and patients of the evaluated sections: the same for all networks."""
        arrays = [outcome.arrays for variant in variants for outcome in self.done(variant)]
        lists = {tuple(map(str, stored["names"])) for stored in arrays}
        unknown = {name for names in lists for name in names} - self.patients.keys()
        if len(lists) != 1 or unknown:
            raise DataError(
                "the evaluations are not of the same sections",
                got=f"{len(lists)} different lists of sections, {len(unknown)} sections that the dataset does not have",
                expected="one list of sections of the dataset",
                hint="delete the folders `evaluation` of the runs and start again",
            )
        (names,) = lists
        return list(names), [self.patients[name] for name in names]


def dig(document: Document, path: Iterable[str]) -> float | None:
    """A number deep in a document; None where it, or anything on the way, is missing."""
    value: Any = document
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return None if value is None or isinstance(value, Mapping) else float(value)


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"cannot read {path}", got=f"{type(error).__name__}: {error}", hint=_start_again(path))


def _start_again(path: Path) -> str:
    return f"delete the folder {path.parent} and start again"


class CountsPair(NamedTuple):
    """Two models' counts on the same sections, (seeds, S, K, K) each; rows are the ground truth."""

    first: str
    second: str
    first_counts: NDArray[Any]
    second_counts: NDArray[Any]


def compare_family(
    pairs: Mapping[Key, CountsPair], patients: Sequence[str], statistic: Statistic
) -> dict[Key, Comparison]:
    """Compare every pair, and correct for their number. A pair whose statistic is not defined is left out."""

    def compare(pair: CountsPair) -> Comparison:
        # Names may be equal (a network's coarse and final prediction).
        models = {"first": pair.first_counts, "second": pair.second_counts}
        (result,) = compare_confusions(models, patients, statistic=statistic, bootstrap=BOOTSTRAP)
        return replace(result, first=pair.first, second=pair.second)

    return _corrected(pairs, lambda key: compare(pairs[key]))


def _corrected(keys: Iterable[Key], compare: Callable[[Key], Comparison]) -> dict[Key, Comparison]:
    """The comparisons that are defined, with Holm's correction over all of them."""
    results: dict[Key, Comparison] = {}
    for key in keys:
        with suppress(DataError):
            results[key] = compare(key)
    corrected = holm([result.p for result in results.values()])
    return {key: replace(result, p_holm=p) for (key, result), p in zip(results.items(), corrected, strict=True)}


def compare_variants(
    results: PlanResults, pairs: Sequence[Variants], statistic: Statistic
) -> dict[Variants, Comparison]:
    """First minus second of every pair of networks that both have results."""
    stacks = {variant: results.stack(variant) for pair in pairs for variant in pair}
    ready: dict[Variants, CountsPair] = {}
    for first, second in pairs:
        one, other = stacks[first], stacks[second]
        if one is not None and other is not None:
            ready[first, second] = CountsPair(short_name(first), short_name(second), one, other)
    if not ready:
        return {}
    _, patients = results.sections([variant for pair in ready for variant in pair])
    return compare_family(ready, patients, statistic)


def compare_section_scores(results: PlanResults, pairs: Sequence[Variants], score: str) -> dict[Variants, Comparison]:
    """First minus second in the mean of a column of ``sections.csv``; networks may be of different resolutions."""
    columns = {variant: results.section_scores(variant, score) for pair in pairs for variant in pair}
    scores = {variant: column for variant, column in columns.items() if column is not None}

    def compare(pair: Variants) -> Comparison:
        _, patients = results.sections(pair)
        models = {"first": scores[pair[0]], "second": scores[pair[1]]}
        (result,) = compare_scores(models, patients, bootstrap=BOOTSTRAP)
        return replace(result, first=short_name(pair[0]), second=short_name(pair[1]))

    return _corrected([pair for pair in pairs if all(variant in scores for variant in pair)], compare)


def short_name(variant: Variant) -> str:
    """A network's name in a sentence."""
    return " ".join(
        [variant.arch, *(f"{key}={value}" for key, value in variant.options if key not in ("width", "dim"))]
    )


def false_positive_rate(index: int) -> Statistic:
    """The fraction of the pixels of other classes that are called class ``index``.

    >>> false_positive_rate(1)(np.array([[[3.0, 1.0], [0.0, 4.0]]])).tolist()
    [0.25]
    """

    def rate(confusions: NDArray[np.float64]) -> NDArray[np.float64]:
        others = confusions.sum(axis=(-2, -1)) - confusions[..., index, :].sum(axis=-1)
        wrong = confusions[..., :, index].sum(axis=-1) - confusions[..., index, index]
        rates: NDArray[np.float64] = np.divide(wrong, others, out=np.full(wrong.shape, np.nan), where=others > 0)
        return rates

    return rate


def coarse_and_final(results: PlanResults, variant: Variant) -> tuple[CountsPair | None, list[str]]:
    """A network's final prediction against its own coarse head's, and the patients; None without a coarse head."""
    final, coarse = results.stack(variant), results.stack(variant, "coarse")
    if final is None or coarse is None or final.shape != coarse.shape:
        return None, []
    name = short_name(variant)
    return CountsPair(f"{name} final", f"{name} coarse", final, coarse), results.sections([variant])[1]


@dataclass(frozen=True, eq=False)
class InterfaceResults:
    """Right and wrong pixels at an interface, of NTRM and of its control."""

    patients: list[str]
    within: CountsPair
    """NTRM's final prediction against its coarse one."""
    changes: tuple[float, float, float]
    """Corrected, broken and all pixels; means over seeds."""
    across: CountsPair | None = None
    """NTRM's final prediction against the control's; None where that has no results."""
    control_changes: tuple[float, float, float] = (0.0, 0.0, 0.0)


def interface_results(
    results: PlanResults, ours: Variant, control: Variant | None, one: str, other: str
) -> InterfaceResults | None:
    """What happened at the interface of two tissues; None where it does not occur or was not counted."""
    mine = _interface_counts(results, ours, one, other)
    if mine is None or not mine["pixels"].any():
        return None
    name, right = short_name(ours), _right_wrong(mine)
    within = CountsPair(f"{name} final", f"{name} coarse", right, _right_wrong(mine, coarse=True))
    theirs = _interface_counts(results, control, one, other) if control else None
    if control is None or theirs is None:
        return InterfaceResults(results.sections([ours])[1], within, _changes(mine))
    across = CountsPair(name, short_name(control), right, _right_wrong(theirs))
    _, patients = results.sections([ours, control])
    return InterfaceResults(patients, within, _changes(mine), across, _changes(theirs))


def _interface_counts(results: PlanResults, variant: Variant, one: str, other: str) -> dict[str, NDArray[Any]] | None:
    """(seeds, S) counts at an interface, both sides of it together."""
    done = results.done(variant)
    if not done or any(name not in outcome.interfaces for outcome in done for name in INTERFACE_COUNTS):
        return None
    i, j = (results.classes.index(name) for name in (one, other))
    return {
        name: np.stack([table[:, i, j] + table[:, j, i] for table in (outcome.interfaces[name] for outcome in done)])
        for name in INTERFACE_COUNTS
    }


def _right_wrong(counts: Mapping[str, NDArray[Any]], *, coarse: bool = False) -> NDArray[Any]:
    """(seeds, S, 2, 2) as if there were one class: right, wrong. Its accuracy is the fraction that is right."""
    wrong = counts["wrong"] + counts["corrected"] - counts["broken"] if coarse else counts["wrong"]
    tables = np.zeros((*wrong.shape, 2, 2), dtype=np.int64)
    tables[..., 0, 0], tables[..., 0, 1] = counts["pixels"] - wrong, wrong
    return tables


def _changes(counts: Mapping[str, NDArray[Any]]) -> tuple[float, float, float]:
    corrected, broken, pixels = (float(counts[name].sum(axis=1).mean()) for name in ("corrected", "broken", "pixels"))
    return corrected, broken, pixels
