"""What is asked for, the folder that it is made in, and the plan that follows once the data has been looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ntrm.core.errors import NtrmError, RefusedError, UsageError
from ntrm.core.io import write_json
from ntrm.core.labels import LabelSchema
from ntrm.core.progress import SILENT, Progress
from ntrm.data.split import DatasetSplits, open_splits
from ntrm.models.config import Option
from ntrm.paper.facts import Facts, choose_levels, gather_facts, recall_facts
from ntrm.paper.outcomes import EVALUATION, evaluation_of
from ntrm.paper.plan import IMAGENET, SCRATCH, Job, Plan, make_plan
from ntrm.paper.published import SYSTEMS
from ntrm.paper.runner import Task
from ntrm.training.recipe import Recipe, load_recipe, write_recipe
from ntrm.training.transfer import build_network

SEEDS = (0, 1, 2)
MARK = "reproduction.json"


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

    @property
    def workspace(self) -> Workspace:
        """The folder to work in."""
        return Workspace(Path(self.out))

    @cached_property
    def resolved(self) -> Recipe:
        """The recipe with its changes."""
        return load_recipe(self.recipe, self.overrides)

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """Levels to work at, coarsest first."""
        return choose_levels(self.data, self.resolutions)

    def parts(self, level: str) -> DatasetSplits:
        """The data at one level."""
        return open_splits(self.data, resolution=level or None, splits=self.split_file)

    def gather(self, *, jobs: int = 1, progress: Progress = SILENT) -> dict[str, Facts]:
        """Facts about the data at every level."""
        return {
            level: gather_facts(
                self.parts(level), level, self.resolved, self.workspace.facts(level), jobs=jobs, progress=progress
            )
            for level in self.levels
        }

    def plan(self, fingerprints: Mapping[str, str]) -> Plan:
        """The jobs, for the levels that ``fingerprints`` has."""
        schema = self.parts(next(iter(fingerprints))).schema
        return make_plan(
            fingerprints,
            self.resolved,
            archs=self.archs,
            seeds=self.seeds,
            encoder_init=lambda arch, options, recipe: encoder_init(arch, options, recipe, schema),
            options=_check_options(self.options or {}),
            ablation=self.ablation,
        )


def dry_run(request: Request) -> tuple[Plan, dict[str, bool]]:
    """The plan and, by key, which jobs are done; nothing is written."""
    fingerprints = {}
    for level in request.levels:
        parts = request.parts(level)
        known = recall_facts(request.workspace.facts(level), parts.dataset, request.resolved)
        fingerprints[level] = known.fingerprint if known else parts.fingerprint()
    plan = request.plan(fingerprints)
    return plan, {job.key: evaluation_of(request.workspace.run(job)) is not None for job in plan.jobs}


def encoder_init(arch: str, options: Mapping[str, Option], recipe: Recipe, schema: LabelSchema) -> str:
    """What the encoder of a network starts from; where the recipe's weights are missing, that is scratch."""
    wanted = "auto" if recipe.encoder_weights == IMAGENET else recipe.encoder_weights
    try:
        _, report = build_network(arch, schema, options=options, recipe=replace(recipe, encoder_weights=wanted))
    except NtrmError:
        if wanted in ("auto", "none"):
            raise
        return SCRATCH  # a file of weights fits one kind of encoder
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
        return tuple(int(name) for name in parse_names(text))
    except ValueError as error:
        raise UsageError("cannot understand the seeds", got=text, expected="whole numbers such as 0,1,2") from error


def _check_options(options: Mapping[str, object]) -> dict[str, Option]:
    plain: dict[str, Option] = {}
    for key, value in options.items():
        if not isinstance(value, str | int | float | bool | None):
            raise UsageError(f"impossible value of the option {key}", got=repr(value), expected="text or a number")
        plain[key] = value
    return plain


@dataclass(frozen=True)
class Workspace:
    """``OUT`` and what is in it."""

    out: Path

    @property
    def page(self) -> Path:
        """The page with everything."""
        return self.out / "index.html"

    @property
    def tables(self) -> Path:
        """Tables as CSV."""
        return self.out / "tables"

    @property
    def figures(self) -> Path:
        """Figures as PNG."""
        return self.out / "figures"

    @property
    def jobs(self) -> Path:
        """What every job is to do, and what it printed."""
        return self.out / "jobs"

    @property
    def lock(self) -> Path:
        """Held while a reproduction works here."""
        return self.out / ".lock"

    def run(self, job: Job) -> Path:
        """The run of a job."""
        return self.out / "runs" / job.key

    def facts(self, level: str) -> Path:
        """What is known about the data at a level."""
        return self.out / "data" / f"{level or 'plain'}.json"

    def recipe(self, job: Job) -> Path:
        """The recipe of a job: one file for each start of encoders."""
        return self.out / "recipes" / f"{job.variant.init}-{job.recipe_digest}.yaml"

    def claim(self) -> None:
        """Refuse a folder that holds something else."""
        if self.out.exists() and not self.out.is_dir():
            raise UsageError("the output is not a folder", got=self.out, hint="choose another --out")
        strange = [path.name for path in self.out.iterdir() if path.name != self.lock.name] if self.out.exists() else []
        if strange and not (self.out / MARK).is_file():
            raise RefusedError(
                "the folder holds something that is no reproduction",
                got=f"{self.out}: {', '.join(sorted(strange)[:3])}",
                hint="choose an empty or a new folder",
            )

    def describe(self, document: Mapping[str, Any]) -> None:
        """Write what is done here."""
        write_json(self.out / MARK, dict(document))

    def task(self, job: Job, data: Path, split_file: Path | None, *, boundaries: bool, pictures: bool) -> Task:
        """A job as its worker reads it, with the commands that do the same by hand."""
        recipe, run = self.recipe(job), self.run(job)
        self._write_recipe(job.recipe, recipe)
        self.jobs.mkdir(parents=True, exist_ok=True)
        document = {
            "arch": job.variant.arch,
            "options": dict(job.variant.options),
            "data": str(data),
            "level": job.variant.level,
            "split_file": None if split_file is None else str(split_file),
            "recipe": str(recipe),
            "seed": job.seed,
            "run": str(run),
            "name": job.variant.label,
            "pictures": pictures,
            "boundaries": boundaries,
            "command": self.train_command(job, data, split_file),
            "evaluate_command": self.evaluate_command(job, data, split_file),
        }
        return Task(job.key, job.label, document, self.jobs)

    def train_command(self, job: Job, data: Path, split_file: Path | None) -> list[str]:
        """What trains the same network by hand."""
        options = [word for key, value in job.variant.options for word in ("--option", f"{key}={_yaml(value)}")]
        words = ["ntrm", "train", "--arch", job.variant.arch, *_data(job, data, split_file), *options]
        return [*words, "--recipe", str(self.recipe(job)), "--seed", str(job.seed), "--out", str(self.run(job))]

    def evaluate_command(self, job: Job, data: Path, split_file: Path | None) -> list[str]:
        """What evaluates it by hand."""
        run = self.run(job)
        where = _data(job, data, split_file)
        return ["ntrm", "evaluate", "--model", str(run / "model"), *where, "--out", str(run / EVALUATION)]

    def _write_recipe(self, recipe: Recipe, path: Path) -> None:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_recipe(recipe, path)


def _data(job: Job, data: Path, split_file: Path | None) -> Sequence[str]:
    level = ["--resolution", job.variant.level] if job.variant.level else []
    return ["--data", str(data), *level, *(["--splits", str(split_file)] if split_file else [])]


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
