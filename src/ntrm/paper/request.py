"""What to reproduce, the folder it is made in, and the plan that follows from the data."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ntrm.core.errors import DataError, RefusedError, UsageError, check_seed
from ntrm.core.io import PARTIAL, check_folder, foreign_files, write_json
from ntrm.core.labels import LabelSchema
from ntrm.core.progress import SILENT, Progress
from ntrm.data.dataset import check_outside
from ntrm.data.layouts import survey_dataset
from ntrm.data.split import FRACTIONS, DatasetSplits, open_splits
from ntrm.models.config import Option
from ntrm.models.registry import encoder_name
from ntrm.models.weights import find_weights
from ntrm.paper.facts import Facts, check_splits, choose_levels, gather_facts, present_levels
from ntrm.paper.outcomes import EVALUATION, evaluation_of
from ntrm.paper.plan import IMAGENET, SCRATCH, Job, TrainingPlan, make_plan
from ntrm.paper.published import SYSTEMS, TABLE_2
from ntrm.paper.runner import Task
from ntrm.training.initial_weights import build_network
from ntrm.training.recipe import Recipe, check_start, load_recipe, write_recipe

SEEDS = (0, 1, 2)
MARK = "reproduction.json"
LOCK = ".lock"


@dataclass(frozen=True)
class Request:
    """What to reproduce, with which data, where."""

    data: Path
    out: Path
    archs: tuple[str, ...] = SYSTEMS
    """The systems of Table 1."""
    resolutions: tuple[str, ...] = ()
    """Levels of Table 2; all that the dataset has if empty."""
    seeds: tuple[int, ...] = SEEDS
    """Training seeds of every network."""
    recipe: str | Path = "fast"
    """By name or as a YAML file, the same for all networks."""
    overrides: Mapping[str, object] | None = None
    """Fields of the recipe to change."""
    options: Mapping[str, object] | None = None
    """Options of architectures, for each that takes them."""
    ablation: bool = True
    """Whether to train the variants of the relation module."""
    split_file: Path | None = None
    """What ``ntrm data split`` wrote; the dataset's own splits if not given."""

    @cached_property
    def resolved(self) -> Recipe:
        """The recipe with its changes."""
        recipe = load_recipe(self.recipe, self.overrides)
        check_start(recipe, None)
        return recipe

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """Levels to work at, coarsest first."""
        return choose_levels(self.data, self.resolutions)

    def splits(self, level: str) -> DatasetSplits:
        """The data at one level."""
        return open_splits(self.data, resolution=level or None, splits=self.split_file)

    @property
    def patients(self) -> dict[str, str]:
        """Patients by name of the section, as the dataset has them now."""
        return {case.name: case.group for level in self.levels for case in self.splits(level).dataset}

    def gather(self, *, jobs: int = 1, progress: Progress = SILENT) -> dict[str, Facts]:
        """Facts about the data at every level; every section is decoded into the cache on the way."""
        return {
            level: gather_facts(self.splits(level), level, self.resolved, jobs=jobs, progress=progress)
            for level in self.levels
        }

    def fingerprints(self) -> dict[str, str]:
        """Of the data at every level; nothing is decoded."""
        parts = {level: self.splits(level) for level in self.levels}
        for part in parts.values():
            check_splits(part)
        return {level: part.fingerprint() for level, part in parts.items()}

    def plan(self, fingerprints: Mapping[str, str]) -> TrainingPlan:
        """The jobs, for the levels that ``fingerprints`` has."""
        schema = self.splits(next(iter(fingerprints))).schema
        plan = make_plan(
            fingerprints,
            self.resolved,
            archs=self.archs,
            seeds=self.seeds,
            encoder_init=lambda arch, options, recipe: encoder_init(arch, options, recipe, schema),
            options=_check_options(self.options or {}),
            ablation=self.ablation,
        )
        return replace(plan, notes=(*plan.notes, *self._notes(fingerprints)))

    def _notes(self, levels: Collection[str]) -> list[str]:
        """Choices made by default: the split, and levels that are left out or lacking."""
        notes = []
        if self.split_file is None and any(case.split is None for case in survey_dataset(self.data).cases):
            shares = ", ".join(f"{100 * share:.0f}" for share in FRACTIONS)
            notes.append(f"The dataset names no splits: it is divided by patient, {shares} % (ntrm data split).")
        present = present_levels(self.data)
        if self.resolutions or present == ("",):
            return notes
        if left := ", ".join(level for level in present if level not in levels):
            notes.append(f"{left} is left out: the paper has no results there (include it with --resolutions).")
        if lacking := ", ".join(level for level in TABLE_2 if level not in present):
            notes.append(f"Not in this dataset: {lacking}. ntrm data resample makes coarser levels from finer ones.")
        return notes

    def run(self, job: Job) -> Path:
        """Folder of a job's training and evaluation."""
        return self.out / "runs" / job.key

    def recipe_file(self, job: Job) -> Path:
        """The recipe of a job: one file for each start of encoders."""
        return self.out / "recipes" / f"{job.variant.init}-{job.recipe_digest}.yaml"

    def claim(self, command: Sequence[str] = ()) -> None:
        """Refuse an output folder that holds something else, and mark it before anything is written there."""
        check_outside(self.out, self.data)
        check_folder(self.out)
        names = [path.name for path in self.out.iterdir()] if self.out.exists() else []
        foreign = [name for name in names if name != LOCK and not name.startswith(PARTIAL)]
        # Asked after the names: another command may be marking the folder just now.
        if not (self.out / MARK).is_file():
            if foreign:
                raise foreign_files(self.out, "reproduction", foreign)
            self.describe({"command": list(command)})

    def describe(self, document: Mapping[str, Any]) -> None:
        """Mark the output folder as a reproduction, and write what is done there."""
        write_json(self.out / MARK, dict(document))

    def task(self, job: Job, *, boundaries: bool, pictures: bool) -> Task:
        """A job as its process reads it, with the commands that do the same by hand."""
        recipe, run, jobs = self.recipe_file(job), self.run(job), self.out / "jobs"
        if not recipe.exists():
            recipe.parent.mkdir(parents=True, exist_ok=True)
            write_recipe(job.recipe, recipe)
        jobs.mkdir(parents=True, exist_ok=True)
        document = {
            "arch": job.variant.arch,
            "options": dict(job.variant.options),
            "data": str(self.data),
            "level": job.variant.level,
            "split_file": None if self.split_file is None else str(self.split_file),
            "recipe": str(recipe),
            "seed": job.seed,
            "run": str(run),
            "name": job.variant.label,
            "pictures": pictures,
            "boundaries": boundaries,
            "command": self._train_command(job),
            "evaluate_command": self._evaluate_command(job),
        }
        return Task(job.key, job.label, document, jobs)

    def _train_command(self, job: Job) -> list[str]:
        options = [word for key, value in job.variant.options for word in ("--option", f"{key}={_yaml(value)}")]
        words = ["ntrm", "train", "--arch", job.variant.arch, *self._data(job), *options]
        words += ["--recipe", str(self.recipe_file(job)), "--seed", str(job.seed), "--out", str(self.run(job))]
        return [*words, "--resume", "--no-reference"]

    def _evaluate_command(self, job: Job) -> list[str]:
        run = self.run(job)
        return ["ntrm", "evaluate", "--model", str(run / "model"), *self._data(job), "--out", str(run / EVALUATION)]

    def _data(self, job: Job) -> list[str]:
        level = ["--resolution", job.variant.level] if job.variant.level else []
        return ["--data", str(self.data), *level, *(["--splits", str(self.split_file)] if self.split_file else [])]


@dataclass(frozen=True)
class Outlook:
    """A plan before it is carried out."""

    plan: TrainingPlan
    done: Mapping[str, bool]
    """By key of the job."""


def commands_left(request: Request) -> list[str]:
    """A line of shell for each run that is not done, for the jobs of a cluster; writes the recipes that they name."""
    request.claim()
    outlook = dry_run(request)
    jobs = [job for job in outlook.plan.jobs if not outlook.done[job.key]]
    left = [request.task(job, boundaries=True, pictures=False) for job in jobs]
    return [" && ".join(shlex.join(task.document[name]) for name in ("command", "evaluate_command")) for task in left]


def dry_run(request: Request) -> Outlook:
    """What would be done and what is done already; nothing is written."""
    plan = request.plan(request.fingerprints())
    return Outlook(plan, {job.key: evaluation_of(request.run(job)) is not None for job in plan.jobs})


def encoder_init(arch: str, options: Mapping[str, Option], recipe: Recipe, schema: LabelSchema) -> str:
    """Start of a network's encoder; scratch where the recipe's weights are missing."""
    wanted = "auto" if recipe.encoder_weights == IMAGENET else recipe.encoder_weights
    if wanted not in ("auto", "none"):
        wanted = str(find_weights(wanted, encoder_name(arch, options)))
    try:
        _, report = build_network(arch, schema, options=options, recipe=replace(recipe, encoder_weights=wanted))
    except (DataError, RefusedError):
        if wanted in ("auto", "none"):
            raise
        return SCRATCH  # the file is there, and fits another kind of encoder
    return report.encoder


def parse_names(text: str) -> tuple[str, ...]:
    """Names from a comma-separated list.

    >>> parse_names("mit, ntrm-paper,")
    ('mit', 'ntrm-paper')
    """
    return tuple(name.strip() for name in text.split(",") if name.strip())


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from a comma-separated list.

    >>> parse_seeds("0,1,2")
    (0, 1, 2)
    """
    try:
        seeds = tuple(int(name) for name in parse_names(text))
    except ValueError as error:
        raise UsageError("cannot understand the seeds", got=text, expected="whole numbers such as 0,1,2") from error
    for seed in seeds:
        check_seed(seed)
    return seeds


def _check_options(options: Mapping[str, object]) -> dict[str, Option]:
    plain: dict[str, Option] = {}
    for key, value in options.items():
        if not isinstance(value, str | int | float | bool | None):
            raise UsageError(f"impossible value of the option {key}", got=repr(value), expected="text or a number")
        plain[key] = value
    return plain


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
