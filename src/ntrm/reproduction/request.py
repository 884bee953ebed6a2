"""What is asked for, and the plan that follows once the data has been looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ntrm.core.errors import NtrmError, UsageError
from ntrm.core.labels import LabelSchema
from ntrm.core.progress import SILENT, Progress
from ntrm.data.split import DatasetSplits, open_parts
from ntrm.models.config import Option
from ntrm.reproduction.facts import Facts, choose_levels, gather_facts, recall_facts
from ntrm.reproduction.paper import SYSTEMS
from ntrm.reproduction.plan import IMAGENET, SCRATCH, Plan, make_plan
from ntrm.reproduction.results import evaluation_of
from ntrm.reproduction.workspace import Workspace
from ntrm.training.initial import build_network
from ntrm.training.recipe import Recipe, load_recipe

SEEDS = (0, 1, 2)


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
        return open_parts(self.data, level=level or None, split_file=self.split_file)

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
        known = recall_facts(request.workspace.facts(level), parts.whole, request.resolved)
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
