"""What to reproduce, what the data holds, and the commands that do it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from ntrm.core.errors import DataError, RefusedError, UsageError, choices_error
from ntrm.core.io import PARTIAL, check_folder, foreign_files, write_json
from ntrm.core.labels import LabelSchema
from ntrm.core.processes import parallel_map
from ntrm.core.progress import SILENT, Progress
from ntrm.data.cache import SectionCache
from ntrm.data.dataset import SPLITS, Case, check_outside
from ntrm.data.layouts import open_dataset, survey_dataset
from ntrm.data.split import FRACTIONS, DatasetSplits, open_splits
from ntrm.data.tiles import foreground_windows, tile_windows
from ntrm.models.config import Option
from ntrm.models.registry import encoder_name
from ntrm.models.weights import find_weights
from ntrm.paper.outcomes import EVALUATION, evaluation_of
from ntrm.paper.plan import IMAGENET, SCRATCH, Job, TrainingPlan, make_plan
from ntrm.paper.published import SYSTEMS, TABLE_2
from ntrm.training.initial_weights import build_network
from ntrm.training.recipe import Recipe, check_start, load_recipe, write_recipe

SEEDS = (0, 1, 2)
MARK = "reproduction.json"
LOCK = ".lock"


@dataclass(frozen=True)
class Facts:
    """A dataset at one resolution."""

    mpp: float
    fingerprint: str
    sections: Mapping[str, int]  # By split, as are patients
    patients: Mapping[str, int]
    test_pixels: int
    windows: int  # Of the training, cut as the recipe says
    phantom: bool  # Whether the sections are synthetic


@dataclass(frozen=True)
class Request:
    """What to reproduce, with which data, where."""

    data: Path
    out: Path
    archs: tuple[str, ...] = SYSTEMS  # The systems of Table 1
    resolutions: tuple[str, ...] = ()  # Levels of Table 2; all that the dataset has if empty
    seeds: tuple[int, ...] = SEEDS  # Training seeds of every network
    recipe: str | Path = "fast"  # By name or as a YAML file, the same for all networks
    overrides: Mapping[str, object] | None = None  # Fields of the recipe to change
    options: Mapping[str, Any] | None = None  # Options of architectures, for each that takes them
    ablation: bool = True  # Whether to train the variants of the relation module
    split_file: Path | None = None  # What ntrm data split wrote; the dataset's own splits if not given
    boundaries: bool = True  # Whether evaluations measure distances of boundaries, too

    @cached_property
    def resolved(self) -> Recipe:
        """The recipe with its changes."""
        recipe = load_recipe(self.recipe, self.overrides)
        check_start(recipe, None)
        return recipe

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """Levels to work at, coarsest first: those wanted, or the paper's that are there, or whatever the data has."""
        present = self._present
        if self.resolutions and present == ("",):
            got = ", ".join(self.resolutions)
            raise UsageError("this dataset has no resolution levels", got=got, hint="leave them out")
        if missing := [level for level in self.resolutions if level not in present]:
            raise choices_error(f"no such resolution in {self.data}", ", ".join(missing), present)
        chosen = self.resolutions or TABLE_2
        return tuple(level for level in present if level in chosen) or present

    @cached_property
    def _present(self) -> tuple[str, ...]:
        """Levels that the dataset has, coarsest first; faults at levels that nobody asks for do not matter."""
        cases = survey_dataset(self.data).cases
        return tuple(dict.fromkeys(case.level for case in cases)) or open_dataset(self.data).levels

    @cached_property
    def splits(self) -> dict[str, DatasetSplits]:
        """The data at every level, with sections in each of the splits."""
        opened = {}
        for level in self.levels:
            opened[level] = open_splits(self.data, resolution=level or None, splits=self.split_file)
            if empty := {*SPLITS} - {case.split for case in opened[level].dataset}:
                raise UsageError(
                    f"{opened[level].dataset.root} has an empty split",
                    got=f"no section in {', '.join(sorted(empty))}",
                    hint="divide it with `ntrm data split` and give the file with --splits",
                )
        return opened

    @property
    def patients(self) -> dict[str, str]:
        """Patients by name of the section, as the dataset has them now."""
        return {case.name: case.group for splits in self.splits.values() for case in splits.dataset}

    def gather(self, *, jobs: int = 1, progress: Progress = SILENT) -> dict[str, Facts]:
        """Facts about the data at every level; every section is decoded into the cache, once for all runs."""
        facts = {}
        for level, splits in self.splits.items():
            cases = list(splits.dataset)
            count = partial(_count, schema=splits.schema, recipe=self.resolved)
            label = f"reading sections {level}".strip()
            counts = list(progress.track(parallel_map(count, cases, jobs), len(cases), label))
            of = {split: [k for k, case in enumerate(cases) if case.split == split] for split in SPLITS}
            facts[level] = Facts(
                mpp=splits.resolution.mean,
                fingerprint=splits.fingerprint(),
                sections={split: len(members) for split, members in of.items()},
                patients={split: len({cases[k].group for k in members}) for split, members in of.items()},
                test_pixels=sum(counts[k][0] for k in of["test"]),
                windows=sum(counts[k][1] for k in of["train"]),
                phantom=(splits.dataset.root / "truth.json").is_file(),  # which `ntrm phantom` alone writes
            )
        return facts

    def plan(self) -> TrainingPlan:
        """The jobs for the data as it is; nothing is decoded."""
        schema = next(iter(self.splits.values())).schema
        plan = make_plan(
            {level: splits.fingerprint() for level, splits in self.splits.items()},
            self.resolved,
            archs=self.archs,
            seeds=self.seeds,
            encoder_init=lambda arch, options, recipe: encoder_init(arch, options, recipe, schema),
            options=self.options or {},
            ablation=self.ablation,
        )
        notes = list(plan.notes)
        if self.split_file is None and any(case.split is None for case in survey_dataset(self.data).cases):
            shares = ", ".join(f"{100 * share:.0f}" for share in FRACTIONS)
            notes.append(f"The dataset names no splits: it is divided by patient, {shares} % (ntrm data split).")
        if not self.resolutions and self._present != ("",):
            if left := ", ".join(level for level in self._present if level not in self.levels):
                notes.append(f"{left} is left out: the paper has no results there (include it with --resolutions).")
            if lacking := ", ".join(level for level in TABLE_2 if level not in self._present):
                advice = "ntrm data resample makes coarser levels from finer ones"
                notes.append(f"Not in this dataset: {lacking}. {advice}.")
        return replace(plan, notes=tuple(notes))

    def check_folder(self, command: Sequence[str] = ()) -> None:
        """Refuse an output folder that holds something else, and mark it before anything is written there."""
        check_outside(self.out, self.data)
        check_folder(self.out)
        names = [path.name for path in self.out.iterdir()] if self.out.exists() else []
        foreign = [name for name in names if name != LOCK and not name.startswith(PARTIAL)]
        # Asked after the names: another command may be marking the folder just now.
        if not (self.out / MARK).is_file():
            if foreign:
                raise foreign_files(self.out, "reproduction", foreign)
            write_json(self.out / MARK, {"command": list(command)})

    def run(self, job: Job) -> Path:
        """Folder of a job's training and evaluation."""
        return self.out / "runs" / job.key

    def is_done(self, job: Job) -> bool:
        """Whether a job is trained and evaluated."""
        return evaluation_of(self.run(job)) is not None

    def commands(self, job: Job, *, pictures: bool = False) -> tuple[list[str], list[str]]:
        """Words after ``ntrm`` that train a network and evaluate it; writes the recipe that they name."""
        variant, run = job.variant, self.run(job)
        recipe = self.out / "recipes" / f"{job.key}.yaml"
        recipe.parent.mkdir(parents=True, exist_ok=True)
        write_recipe(job.recipe, recipe)
        options = [
            f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in variant.options
        ]
        # Pictures of every run would take longer than the runs themselves.
        shared = ["--data", str(self.data), *([] if pictures else ["--no-pictures"])]
        shared += ["--resolution", variant.level] if variant.level else []
        shared += ["--splits", str(self.split_file)] if self.split_file else []
        train = ["train", *shared, "--arch", variant.arch, *(word for each in options for word in ("--option", each))]
        train += ["--recipe", str(recipe), "--seed", str(job.seed), "--name", variant.label, "--out", str(run)]
        evaluate = ["evaluate", *shared, "--model", str(run / "model"), "--out", str(run / EVALUATION)]
        # The tables compare networks and judge no slide: a reference is of no use.
        return [*train, "--resume", "--no-reference"], [*evaluate, *([] if self.boundaries else ["--no-boundaries"])]


def _count(case: Case, schema: LabelSchema, recipe: Recipe) -> tuple[int, int]:
    """Pixels and windows of a section."""
    section = SectionCache().open(case, schema)
    height, width = section.shape
    windows = tile_windows(height, width, size=recipe.window, overlap=recipe.overlap)
    if recipe.drop_background:
        windows = foreground_windows(section.mask, windows, schema.background_index)
    return height * width, len(windows)


def commands_left(request: Request) -> list[str]:
    """A line of shell for each run that is not done, for the jobs of a cluster; writes the recipes that they name."""
    request.check_folder()
    left = [request.commands(job) for job in request.plan().jobs if not request.is_done(job)]
    return [" && ".join(shlex.join(["ntrm", *words]) for words in commands) for commands in left]


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
        return tuple(int(name) for name in parse_names(text))
    except ValueError as error:
        raise UsageError("cannot understand the seeds", got=text, expected="whole numbers such as 0,1,2") from error
