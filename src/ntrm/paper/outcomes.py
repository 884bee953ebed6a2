"""Results of the runs, read from disk and compared over the patients of the test split.

Comparisons are paired, with Holm's correction over a family of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ntrm.core.csv_text import read_table
from ntrm.core.errors import DataError
from ntrm.core.io import read_arrays, read_object
from ntrm.core.wording import with_minus
from ntrm.evaluation.result import CONFUSIONS, INTERFACE_COUNTS, INTERFACES, SECTIONS
from ntrm.metrics import significance
from ntrm.metrics.significance import Comparison, Statistic, compare_confusions, compare_scores, holm
from ntrm.paper.plan import EVALUATION, Document, Job, TrainingPlan, Variant, evaluation_of
from ntrm.report.html import NONE

DONE, FAILED, MISSING = "done", "failed", "not run"
STATISTICS: dict[str, Statistic] = {
    "accuracy": significance.pixel_accuracy,
    "iou": significance.macro_iou,
    "dice": significance.macro_dice,
}
START_AGAIN = "delete this folder `evaluation` and start again"

Key = TypeVar("Key", bound=Hashable)
Variants = tuple[Variant, Variant]
Stack = NDArray[Any]


@dataclass(frozen=True)
class Score:
    """A number for each training seed: mean ± standard deviation of a sample.

    >>> str(Score((0.5, 0.7))), str(Score((0.5,))), str(Score((0.5,), failed=1)), str(Score((), failed=2))
    ('0.6000 ± 0.1414', '0.5000', '0.5000 (1 seed failed)', 'failed')
    """

    values: tuple[float, ...]
    failed: int = 0  # Seeds whose run failed
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
    metrics: Document = field(default_factory=dict)  # metrics.json of its evaluation
    provenance: Document = field(default_factory=dict)  # provenance.json of its training
    failure: str = ""  # The last lines of the log of a job that failed

    @property
    def model(self) -> Path:
        """The trained network."""
        return self.folder / "model"

    @classmethod
    def read(cls, job: Job, folder: Path, failure: str = "") -> JobOutcome:
        """State and results of a job, from its folder."""
        if metrics := evaluation_of(folder):
            return cls(job, folder, DONE, metrics, read_object(folder / "provenance.json"))
        return cls(job, folder, FAILED if failure else MISSING, failure=failure)

    @cached_property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """``confusions.npz``: names, patients, final (S, K, K), and coarse where the network has a coarse head."""
        return read_arrays(self.folder / EVALUATION / CONFUSIONS, hint=START_AGAIN)

    @cached_property
    def interfaces(self) -> dict[str, NDArray[Any]]:
        """``interfaces.npz``: pixels and wrong (S, K, K), and corrected and broken where there is a coarse head."""
        return read_arrays(self.folder / EVALUATION / INTERFACES, hint=START_AGAIN)

    def column(self, file: str, key: str, column: str, hint: str) -> dict[str, float]:
        """A column of a table in this folder by another, NaN where a cell is empty."""
        path = self.folder / file
        try:
            return {row[key]: float(row[column] or "nan") for row in read_table(path, (key, column))}
        except (DataError, ValueError) as error:
            raise DataError(f"cannot read {path}", got=error, hint=hint) from error

    def section_scores(self, column: str) -> list[float]:
        """A column of ``sections.csv`` in the order of ``confusions.npz``."""
        file, names = f"{EVALUATION}/{SECTIONS}", [str(name) for name in self.arrays["names"]]
        found = self.column(file, "name", column, START_AGAIN)
        if found.keys() != {*names}:
            got = f"{len(found)} rows, not those of the {len(names)} sections"
            raise DataError(f"cannot read {self.folder / file}", got=got, hint=START_AGAIN)
        return [found[name] for name in names]


@dataclass(frozen=True, eq=False)
class PlanResults:
    """The outcomes of a plan."""

    plan: TrainingPlan
    outcomes: Mapping[str, JobOutcome]  # By key of the job
    patients: Mapping[str, str]
    """By name of the section, as the dataset has them now: those in an evaluation may have been corrected since."""

    @classmethod
    def read(
        cls, plan: TrainingPlan, folder: Callable[[Job], Path], failures: Mapping[str, str], patients: Mapping[str, str]
    ) -> PlanResults:
        """Read every job's folder; ``failures`` has the reason of those that failed, by key."""
        outcomes = {job.key: JobOutcome.read(job, folder(job), failures.get(job.key, "")) for job in plan.jobs}
        return cls(plan, outcomes, patients)

    @property
    def classes(self) -> list[str]:
        """Names of the classes; none without a result."""
        return next((each.metrics["classes"] for each in self.outcomes.values() if each.status == DONE), [])

    @property
    def lacking(self) -> tuple[JobOutcome, ...]:
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
        return self.score(variant, lambda outcome: dig(outcome.metrics, *path))

    def trained(self, variant: Variant, *path: str, digits: int = 4) -> Score:
        """The same of ``provenance.json``."""
        return self.score(variant, lambda outcome: dig(outcome.provenance, *path), digits)

    def stack(self, variant: Variant, array: str = "final") -> NDArray[Any] | None:
        """An array of ``confusions.npz`` with a leading axis of seeds; None where no seed has it."""
        arrays = [outcome.arrays[array] for outcome in self.done(variant) if array in outcome.arrays]
        return np.stack(arrays) if arrays else None

    def section_scores(self, variant: Variant, column: str) -> NDArray[np.float64] | None:
        """(seeds, S) a column of ``sections.csv``, NaN where a cell is empty; None where no seed has results."""
        seeds = [outcome.section_scores(column) for outcome in self.done(variant)]
        return np.array(seeds) if seeds else None

    def interface(self, variant: Variant | None, one: str, other: str) -> dict[str, NDArray[Any]] | None:
        """(seeds, S) counts at the interface of two tissues, both sides together; None where it was not counted."""
        tables = [outcome.interfaces for outcome in self.done(variant)] if variant else []
        if not tables or any(name not in table for table in tables for name in INTERFACE_COUNTS):
            return None
        i, j = (self.classes.index(name) for name in (one, other))
        return {name: np.stack([t[name][:, i, j] + t[name][:, j, i] for t in tables]) for name in INTERFACE_COUNTS}

    def patients_of(self, variants: Iterable[Variant]) -> list[str]:
        """Patients of the evaluated sections, which are the same for all networks."""
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
        return [self.patients[name] for name in names]


def dig(document: Document, *path: str) -> float | None:
    """A number deep in a document; None where it, or anything on the way, is missing."""
    value: Any = document
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return None if value is None or isinstance(value, Mapping) else float(value)


def compare_stacks(
    pairs: Mapping[Key, tuple[Stack, Stack]], patients: Sequence[str], statistic: Statistic | None
) -> dict[Key, Comparison]:
    """First minus second of every pair on the same sections, corrected for their number, where it is defined.

    Counts (seeds, S, K, K) are compared by a statistic, scores of sections (seeds, S) by their mean without one.
    """
    found: dict[Key, Comparison] = {}
    for key, (first, second) in pairs.items():
        models = {"first": first, "second": second}
        with suppress(DataError):
            if statistic is None:
                (found[key],) = compare_scores(models, patients)
            else:
                (found[key],) = compare_confusions(models, patients, statistic=statistic)
    corrected = holm([result.p for result in found.values()])
    return {key: replace(result, p_holm=p) for (key, result), p in zip(found.items(), corrected, strict=True)}


def compare_variants(
    results: PlanResults, pairs: Sequence[Variants], measure: Statistic | str
) -> dict[Variants, Comparison]:
    """First minus second of every pair of networks that both have results.

    In a statistic of the counts of all sections, or in the mean of a column of ``sections.csv``, by its name: then the
    networks may be of different resolutions.
    """
    known: dict[Variant, Stack] = {}
    for variant in dict.fromkeys(chain.from_iterable(pairs)):
        stack = results.section_scores(variant, measure) if isinstance(measure, str) else results.stack(variant)
        if stack is not None:
            known[variant] = stack
    ready = {(one, other): (known[one], known[other]) for one, other in pairs if one in known and other in known}
    patients = results.patients_of(chain.from_iterable(ready)) if ready else []
    return compare_stacks(ready, patients, None if isinstance(measure, str) else measure)


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
