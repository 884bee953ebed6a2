"""What to reproduce: the networks of every table, once per seed, as independent jobs, and the commands that do them."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ntrm.core.errors import DataError, RefusedError, UsageError, check_seed, choices_error
from ntrm.core.io import PARTIAL, check_folder, foreign_files, read_object, write_json
from ntrm.core.labels import LabelSchema
from ntrm.core.processes import parallel_map
from ntrm.core.progress import SILENT, Progress
from ntrm.data.cache import SectionCache
from ntrm.data.dataset import SPLITS, check_outside
from ntrm.data.layouts import open_dataset, survey_dataset
from ntrm.data.split import FRACTIONS, DatasetSplits, open_splits
from ntrm.evaluation.result import METRICS
from ntrm.models.config import DEFAULT, DEFAULT_NETWORK, Option, network_named
from ntrm.models.registry import ARCHITECTURES, encoder_name, option_names
from ntrm.models.weights import find_weights
from ntrm.paper.published import CONTROL, OURS, PRIMARY, SYSTEMS, TABLE_2, TITLES
from ntrm.training.initial_weights import build_network
from ntrm.training.recipe import Recipe, check_start, load_recipe, write_recipe
from ntrm.training.run import FREE

ALIASES = {"mit": "mit-b2"}
IMAGENET, SCRATCH = "imagenet", "scratch"
SINCE = {"fill": 0}  # Fields of a recipe that came later, switched off: folders from before them keep their names
MARK, LOCK, EVALUATION = "reproduction.json", ".lock", "evaluation"

Document = Mapping[str, Any]
EncoderInit = Callable[[str, Mapping[str, Option]], str]  # What the encoder of an architecture starts from


class Factor(NamedTuple):
    """Options of the relation module with other values than the paper's."""

    name: str
    options: Mapping[str, Option]
    meaning: str


FACTORS = (
    Factor("masks plain", {"masks": "plain"}, "regions by the threshold alone, without the max-pool"),
    Factor("masks soft", {"masks": "soft"}, "probabilities instead of 0/1 masks pool and project"),
    Factor("order mask-first", {"order": "mask-first"}, "features masked, then convolved (main text)"),
    Factor("layer sum", {"layer": "sum"}, "the main text's layer instead of the supplement's attention"),
    Factor("boundary off", {"boundary": False}, "edges do not know the boundary ratios"),
    Factor("edge weight on", {"edge_weight": True}, "the edge weight, defined and unused in the paper, is used"),
    Factor("absent linked", {"absent": "linked"}, "absent tissues send their learned embedding"),
    Factor("coarse d2", {"coarse": "d2"}, "the coarse prediction is read from D2 instead of E5"),
    Factor("nodes region", {"nodes": "region"}, "a node for each connected region, at most four of a tissue"),
    Factor("nodes region, layer sum", {"nodes": "region", "layer": "sum"}, "the same with the main text's layer"),
    Factor("gate", {"gate": True}, "what the module adds is multiplied by a learned number that starts at 0"),
    Factor("graph complete", {"graph": "complete"}, "every pair of present tissues is joined"),
    Factor("graph none", {"graph": "none"}, "nodes are pooled and projected without any message"),
)
"""One factor at a time from ``ntrm-paper``; the last two ask whether adjacency, and the graph at all, matter."""


@dataclass(frozen=True)
class Variant:
    """One network trained in one way; its scores are averaged over seeds."""

    arch: str
    options: tuple[tuple[str, Option], ...]  # Of the architecture, sorted by name
    level: str  # Resolution level, empty where the layout has none
    init: str  # Start of its encoder: imagenet or scratch

    @property
    def title(self) -> str:
        """Name for readers, without options."""
        return TITLES.get(self.arch, self.arch)

    @property
    def label(self) -> str:
        """The variant in one line."""
        options = [f"{key}={value}" for key, value in self.options]
        return " ".join(filter(None, [self.arch, *options, self.level, self.init]))


@dataclass(frozen=True)
class Job:
    """One training with its evaluation."""

    variant: Variant
    seed: int
    recipe: Recipe
    fingerprint: str  # Of the data at the variant's level

    @property
    def key(self) -> str:
        """Name of the job's folder: readable, and another one where anything differs that changes the result."""
        variant = self.variant
        what = [*map(str, (variant.arch, variant.level, variant.init, self.seed, self.fingerprint))]
        # With the fields of the augmentation that were given, as folders have always been named.
        fields = asdict(self.recipe).items()
        recipe = {name: value for name, value in fields if name not in FREE and (name, value) not in SINCE.items()}
        document = json.dumps([what, list(variant.options), recipe], sort_keys=True)
        digest = hashlib.sha256(document.encode()).hexdigest()[:10]
        return "_".join(filter(None, [variant.arch, variant.level, variant.init, f"seed{self.seed}", digest]))

    @property
    def label(self) -> str:
        """The job in one line."""
        return f"{self.variant.label} seed {self.seed}"


class Ablated(NamedTuple):
    """A row of the ablation: a network that differs from NTRM in one factor, and the control that matches it."""

    factor: Factor
    variant: Variant
    control: Variant


@dataclass(frozen=True)
class TrainingPlan:
    """All networks, by the table that shows them."""

    recipe: Recipe
    seeds: tuple[int, ...]
    primary: str  # Level of Table 1 and of the ablation
    fingerprints: Mapping[str, str]  # Of the data, by level
    systems: tuple[Variant, ...]  # Table 1
    scratch: tuple[Variant, ...]
    """Table 1 and the control with every encoder from scratch; empty where all encoders of Table 1 start alike."""
    resolutions: tuple[Variant, ...]  # Table 2, coarsest first; empty without NTRM
    control: Variant | None  # The matched control of NTRM; None without NTRM
    ablation: tuple[Ablated, ...]
    notes: tuple[str, ...] = ()  # What was left out, and why

    @property
    def ours(self) -> Variant | None:
        """NTRM at the primary resolution."""
        return next((variant for variant in self.systems if variant.arch == OURS), None)

    @property
    def compared(self) -> tuple[Variant, ...]:
        """Table 1 and the matched control."""
        return (*self.systems, *([self.control] if self.control else []))

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Every network of the plan, once."""
        ablated = [variant for row in self.ablation for variant in (row.variant, row.control)]
        return tuple(dict.fromkeys([*self.compared, *self.resolutions, *self.scratch, *ablated]))

    @property
    def jobs(self) -> tuple[Job, ...]:
        """One for every network and seed; the first seed of all networks comes first, so that no table waits long."""
        return tuple(self.job(variant, seed) for seed in self.seeds for variant in self.variants)

    def job(self, variant: Variant, seed: int) -> Job:
        """The job of a network and a seed."""
        weights = self.recipe.encoder_weights
        weights = "none" if variant.init == SCRATCH else IMAGENET if weights == "auto" else weights
        recipe = replace(self.recipe, encoder_weights=weights)
        return Job(variant, seed, recipe, self.fingerprints[variant.level])


@dataclass(frozen=True)
class Request:
    """What to reproduce, with which data, where."""

    data: Path
    out: Path
    archs: tuple[str, ...] = SYSTEMS  # The systems of Table 1
    resolutions: tuple[str, ...] = ()  # Levels of Table 2; all that the dataset has if empty
    seeds: tuple[int, ...] = (0, 1, 2)  # Training seeds of every network
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
        cases = survey_dataset(self.data).cases  # faults at levels that nobody asks for do not matter
        present = tuple(dict.fromkeys(case.level for case in cases)) or open_dataset(self.data).levels
        if self.resolutions and present == ("",):
            got = ", ".join(self.resolutions)
            raise UsageError("this dataset has no resolution levels", got=got, hint="leave them out")
        if missing := [level for level in self.resolutions if level not in present]:
            raise choices_error(f"no such resolution in {self.data}", ", ".join(missing), present)
        chosen = self.resolutions or TABLE_2
        return tuple(level for level in present if level in chosen) or present

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

    def decode(self, jobs: int, progress: Progress = SILENT) -> None:
        """Read every section into the cache, once for all runs; one that cannot be used ends the command here."""
        for level, splits in self.splits.items():
            read = parallel_map(partial(SectionCache().open, schema=splits.schema), splits.dataset, jobs)
            for _ in progress.track(read, len(splits.dataset), f"reading sections {level}".strip()):
                pass

    def plan(self) -> TrainingPlan:
        """The jobs for the data as it is; nothing is decoded."""
        schema = next(iter(self.splits.values())).schema
        init = partial(encoder_init, recipe=self.resolved, schema=schema)
        plan = make_plan(self, {level: splits.fingerprint() for level, splits in self.splits.items()}, init)
        notes, cases = list(plan.notes), survey_dataset(self.data).cases
        if self.split_file is None and any(case.split is None for case in cases):
            shares = ", ".join(f"{100 * share:.0f}" for share in FRACTIONS)
            notes.append(f"The dataset names no splits: it is divided by patient, {shares} % (ntrm data split).")
        if present := dict.fromkeys(case.level for case in cases if case.level and not self.resolutions):
            if left := ", ".join(level for level in present if level not in self.levels):
                notes.append(f"{left} is left out: the paper has no results there (include it with --resolutions).")
            if lacking := ", ".join(level for level in TABLE_2 if level not in present):
                notes.append(
                    f"Not in this dataset: {lacking}. ntrm data resample makes coarser levels from finer ones."
                )
        return replace(plan, notes=tuple(notes))

    @property
    def patients(self) -> dict[str, str]:
        """Patients by name of the section, as the dataset has them now."""
        return {case.name: case.group for splits in self.splits.values() for case in splits.dataset}

    def check_folder(self, command: Sequence[str] = ()) -> None:
        """Refuse an output folder that holds something else, and mark it before anything is written there."""
        check_outside(self.out, self.data)
        check_folder(self.out)
        if (self.out / MARK).is_file():
            return
        names = [path.name for path in self.out.iterdir()] if self.out.exists() else []
        # Another command may be marking the folder just now.
        if foreign := [name for name in names if name not in (MARK, LOCK) and not name.startswith(PARTIAL)]:
            raise foreign_files(self.out, "reproduction", foreign)
        write_json(self.out / MARK, {"command": list(command)})

    def run(self, job: Job) -> Path:
        """Folder of a job's training and evaluation."""
        return self.out / "runs" / job.key

    def is_done(self, job: Job) -> bool:
        """Whether a job is trained and evaluated."""
        return bool(evaluation_of(self.run(job)))

    def commands(self, job: Job, *, pictures: bool = False) -> tuple[list[str], list[str]]:
        """Words after ``ntrm`` that train a network and evaluate it; writes the recipe that they name."""
        variant, run = job.variant, self.run(job)
        recipe = self.out / "recipes" / f"{job.key}.yaml"
        recipe.parent.mkdir(parents=True, exist_ok=True)
        write_recipe(job.recipe, recipe)
        # Pictures of every run would take longer than the runs themselves.
        shared = ["--data", str(self.data), *([] if pictures else ["--no-pictures"])]
        shared += ["--resolution", variant.level] if variant.level else []
        shared += ["--splits", str(self.split_file)] if self.split_file else []
        train = ["train", *shared, "--arch", variant.arch, "--recipe", str(recipe), "--seed", str(job.seed)]
        for key, value in variant.options:
            train += ["--option", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
        train += ["--name", variant.label, "--out", str(run)]
        evaluate = ["evaluate", *shared, "--model", str(run / "model"), "--out", str(run / EVALUATION)]
        # The tables compare networks and judge no slide: a reference is of no use.
        return [*train, "--resume", "--no-reference"], [*evaluate, *([] if self.boundaries else ["--no-boundaries"])]

    def commands_left(self) -> list[str]:
        """A line of shell for each run that is not done, for a cluster's jobs; writes the recipes that they name."""
        self.check_folder()
        left = [self.commands(job) for job in self.plan().jobs if not self.is_done(job)]
        return [" && ".join(shlex.join(["ntrm", *words]) for words in commands) for commands in left]


def evaluation_of(folder: Path) -> Document:
    """``metrics.json`` of a run, or nothing; it is written last, so that its presence means that the run is done."""
    return read_object(folder / EVALUATION / METRICS)


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


def make_plan(request: Request, fingerprints: Mapping[str, str], encoder_init: EncoderInit) -> TrainingPlan:
    """Lay out the jobs for the levels that ``fingerprints`` has."""
    seeds, options = request.seeds, request.options or {}
    if not seeds or len(set(seeds)) < len(seeds):
        raise UsageError("impossible seeds", got=list(seeds), expected="different whole numbers from 0 on")
    for seed in seeds:
        check_seed(seed)
    names, notes = _usable(request.archs)
    if unused := [key for key in options if not any(taken(arch, {key: None}) for arch in names)]:
        raise UsageError("no network takes the option", got=", ".join(unused), expected=f"an option of {names}")
    levels = tuple(fingerprints)
    primary = PRIMARY if PRIMARY in levels else levels[0]
    inits = {arch: encoder_init(arch, taken(arch, options)) for arch in names}

    def variant(
        arch: str, level: str = primary, init: str = "", changes: Mapping[str, Option] | None = None
    ) -> Variant:
        chosen = tuple(sorted(taken(arch, {**options, **(changes or {})}).items()))
        return Variant(arch, chosen, level, init or inits.get(arch) or inits[OURS])

    ablations: dict[Variant, Ablated] = {}
    with_ntrm = OURS in names
    for factor in FACTORS if request.ablation and with_ntrm else ():
        # A factor that the options have already makes no network of its own.
        changed, control = variant(OURS, changes=factor.options), variant(CONTROL, changes=factor.options)
        if changed != variant(OURS):
            ablations.setdefault(changed, Ablated(factor, changed, control))
    compared = [*names, *([CONTROL] if with_ntrm and CONTROL not in names else [])]
    if not with_ntrm:
        notes.append(f"{OURS} is not among the networks: no Table 2, no claims, no ablation.")
    mixed = len(set(inits.values())) > 1
    if IMAGENET in inits.values() and mixed:
        lacking = ", ".join(arch for arch in names if inits[arch] == SCRATCH)
        notes.append(f"No ImageNet weights for {lacking}: a second Table 1 has every encoder from scratch.")
    return TrainingPlan(
        recipe=request.resolved,
        seeds=tuple(seeds),
        primary=primary,
        fingerprints=dict(fingerprints),
        systems=tuple(variant(arch) for arch in names),
        scratch=tuple(variant(arch, init=SCRATCH) for arch in compared) if mixed else (),
        resolutions=tuple(variant(OURS, level) for level in levels) if with_ntrm else (),
        control=variant(CONTROL) if with_ntrm else None,
        ablation=tuple(ablations.values()),
        notes=tuple(notes),
    )


def taken(arch: str, options: Mapping[str, Option]) -> dict[str, Option]:
    """The options that an architecture takes.

    >>> taken("unet-vgg16", {"width": 0.5, "dim": 32}), taken("ntrm-paper", {"width": 0.5, "dim": 32})
    ({'width': 0.5}, {'width': 0.5, 'dim': 32})
    """
    names = option_names(arch)
    return {key: value for key, value in options.items() if key in names}


def _usable(archs: Sequence[str]) -> tuple[list[str], list[str]]:
    """The architectures by their own names, without those whose library is missing, and notes about these."""
    names = list(dict.fromkeys(network_named(ALIASES.get(arch, arch)) for arch in archs))
    unknown = [arch for arch in names if arch not in ARCHITECTURES]
    if unknown or not names:
        raise choices_error("unknown architecture", ", ".join(unknown) or "none", [DEFAULT, *ARCHITECTURES, *ALIASES])
    missing = [arch for arch in names if arch.startswith("mit") and find_spec("transformers") is None]
    kept = [arch for arch in names if arch not in missing]
    if not kept:
        raise UsageError("transformers is missing", got=", ".join(missing), hint='pip install "ntrm[mit]"')
    notes = [f'{arch} is left out: it needs transformers (pip install "ntrm[mit]").' for arch in missing]
    if DEFAULT in archs:
        notes.insert(0, f"{DEFAULT} is {DEFAULT_NETWORK} in this version of ntrm.")
    return kept, notes


def describe(plan: TrainingPlan) -> dict[str, Any]:
    """The plan as a JSON document."""
    document = {"recipe": plan.recipe.as_dict(), "seeds": plan.seeds, "primary": plan.primary or None}
    jobs = []
    for job in plan.jobs:
        arch, options, level, init = asdict(job.variant).values()
        of_network = {"arch": arch, "options": dict(options), "level": level or None, "encoder_init": init}
        jobs.append({"key": job.key, **of_network, "seed": job.seed})
    return {**document, "data": dict(plan.fingerprints), "notes": plan.notes, "jobs": jobs}
