"""What the runs have left on disk, read back and looked up by network."""

from __future__ import annotations

import csv
import json
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError
from ntrm.core.io import by_column, read_rows
from ntrm.reproduction.cells import Score
from ntrm.reproduction.plan import Job, Plan, Variant

Document = Mapping[str, Any]
EVALUATION, INTERFACES = "evaluation", "interfaces.npz"
DONE, FAILED, MISSING = "done", "failed", "not run"


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of a job."""

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
        """``confusions.npz``: names, patients, final (S, K, K), and initial where the network has a coarse head."""
        return _read_arrays(self.folder / EVALUATION / "confusions.npz")

    @cached_property
    def interfaces(self) -> dict[str, NDArray[Any]]:
        """``interfaces.npz``: pixels and wrong (S, K, K), and corrected and broken where there is a coarse head."""
        return _read_arrays(self.folder / EVALUATION / INTERFACES)

    @cached_property
    def sections(self) -> list[dict[str, str]]:
        """``sections.csv``."""
        path = self.folder / EVALUATION / "sections.csv"
        try:
            with path.open(encoding="utf-8", newline="") as stream:
                columns, *rows = [*read_rows(stream)] or [[]]
                return [by_column(columns, row) for row in rows]
        except (OSError, ValueError, csv.Error) as error:
            raise _damaged(path, error) from error


def evaluation_of(folder: Path) -> Document | None:
    """``metrics.json`` of a run; it is written last, so that its presence means that the run is done."""
    return _read(folder / EVALUATION / "metrics.json")


def read_outcome(job: Job, folder: Path, failure: str = "") -> Outcome:
    """What became of a job, by what lies in its folder."""
    metrics = evaluation_of(folder)
    if metrics is None:
        return Outcome(job, folder, FAILED if failure else MISSING, failure=failure)
    return Outcome(job, folder, DONE, metrics, _read(folder / "provenance.json") or {})


@dataclass(frozen=True, eq=False)
class Results:
    """The outcomes of a plan."""

    plan: Plan
    outcomes: Mapping[str, Outcome]
    """By key of the job."""

    @classmethod
    def read(cls, plan: Plan, folder: Callable[[Job], Path], failures: Mapping[str, str]) -> Results:
        """Read every job's folder; ``failures`` has the reason of those that failed, by key."""
        jobs = plan.jobs
        return cls(plan, {job.key: read_outcome(job, folder(job), failures.get(job.key, "")) for job in jobs})

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """Jobs that have no result."""
        return tuple(outcome for outcome in self.outcomes.values() if outcome.status != DONE)

    def of(self, variant: Variant) -> tuple[Outcome, ...]:
        """Outcomes of a network, one a seed."""
        return tuple(self.outcomes[self.plan.job(variant, seed).key] for seed in self.plan.seeds)

    def done(self, variant: Variant) -> tuple[Outcome, ...]:
        """Those that have results."""
        return tuple(outcome for outcome in self.of(variant) if outcome.status == DONE)

    def score(self, variant: Variant, value: Callable[[Outcome], float | None], digits: int = 4) -> Score:
        """A number over the seeds; seeds in which it is not defined are left out."""
        found = [value(outcome) for outcome in self.done(variant)]
        failed = sum(outcome.status != DONE for outcome in self.of(variant))
        return Score(tuple(number for number in found if number is not None), failed, digits)

    def metric(self, variant: Variant, *path: str) -> Score:
        """A number of ``metrics.json`` over the seeds: ``metric(variant, "pooled", "macro", "iou")``."""
        return self.score(variant, lambda outcome: dig(outcome.metrics, path))

    def stack(self, variant: Variant, array: str = "final") -> NDArray[Any] | None:
        """An array of ``confusions.npz`` with a leading axis of seeds; None where no seed has it."""
        found = [outcome.arrays[array] for outcome in self.done(variant) if array in outcome.arrays]
        return np.stack(found) if found else None

    def section_scores(self, variant: Variant, column: str) -> NDArray[np.float64] | None:
        """(seeds, S) a column of ``sections.csv``, NaN where a cell is empty; None where no seed has results."""
        rows = [outcome.sections for outcome in self.done(variant)]
        if not rows:
            return None
        return np.array([[float(row[column]) if row[column] else np.nan for row in each] for each in rows])

    def sections(self, variants: Iterable[Variant]) -> tuple[list[str], list[str]]:
        """Names and patients of the sections that the networks were judged on: the same for all of them."""
        known = [outcome.arrays for variant in variants for outcome in self.done(variant)]
        lists = {(tuple(map(str, each["names"])), tuple(map(str, each["patients"]))) for each in known}
        if len(lists) != 1:
            raise DataError(
                "the evaluations are not of the same sections",
                got=f"{len(lists)} different lists of sections",
                expected="one",
                mend="delete the folders `evaluation` of the runs and start again",
            )
        ((names, patients),) = lists
        return list(names), list(patients)


def dig(document: Document, path: Iterable[str]) -> float | None:
    """A number deep in a document; None where it, or anything on the way, is missing."""
    here: Any = document
    for key in path:
        here = here.get(key) if isinstance(here, Mapping) else None
    return None if here is None or isinstance(here, Mapping) else float(here)


def _read(path: Path) -> Document | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(f"cannot read {path}", got=error, mend=f"delete the folder {path.parent} and start again")
