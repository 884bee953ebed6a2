"""What to train: the networks of every table, once per seed, as independent jobs with stable keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import Any, NamedTuple

from ntrm.core.errors import UsageError, check_seed, choices_error
from ntrm.models.config import DEFAULT, DEFAULT_NETWORK, Option, network_named
from ntrm.models.registry import ARCHITECTURES, option_names
from ntrm.paper.published import CONTROL, OURS, PRIMARY, TITLES
from ntrm.training.recipe import Recipe
from ntrm.training.run import FREE

ALIASES = {"mit": "mit-b2"}
IMAGENET, SCRATCH = "imagenet", "scratch"
SINCE = {"fill": 0}  # Fields of a recipe that came later, switched off: folders from before them keep their names


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


def make_plan(
    fingerprints: Mapping[str, str],
    recipe: Recipe,
    *,
    archs: Sequence[str],
    seeds: Sequence[int],
    encoder_init: Callable[[str, Mapping[str, Option], Recipe], str],
    options: Mapping[str, Option],
    ablation: bool,
) -> TrainingPlan:
    """Lay out the jobs for the levels that ``fingerprints`` has.

    ``encoder_init`` tells what the encoder of an architecture would start from under a recipe; ``options`` go to
    every architecture that takes them.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise UsageError("impossible seeds", got=list(seeds), expected="different whole numbers from 0 on")
    for seed in seeds:
        check_seed(seed)
    names, notes = _usable(archs)
    unused = [key for key in options if not any(taken(arch, {key: None}) for arch in names)]
    if unused:
        raise UsageError("no network takes the option", got=", ".join(unused), expected=f"an option of {names}")
    levels = tuple(fingerprints)
    primary = PRIMARY if PRIMARY in levels else levels[0]
    inits = {arch: encoder_init(arch, taken(arch, options), recipe) for arch in names}

    def variant(
        arch: str, level: str = primary, init: str = "", changes: Mapping[str, Option] | None = None
    ) -> Variant:
        chosen = tuple(sorted(taken(arch, {**options, **(changes or {})}).items()))
        return Variant(arch, chosen, level, init or inits.get(arch) or inits[OURS])

    ablations: dict[Variant, Ablated] = {}
    with_ntrm = OURS in names
    for factor in FACTORS if ablation and with_ntrm else ():
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
        recipe=recipe,
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
    return {
        "recipe": plan.recipe.as_dict(),
        "seeds": list(plan.seeds),
        "primary": plan.primary or None,
        "data": dict(plan.fingerprints),
        "notes": list(plan.notes),
        "jobs": [
            {
                "key": job.key,
                "arch": job.variant.arch,
                "options": dict(job.variant.options),
                "level": job.variant.level or None,
                "encoder_init": job.variant.init,
                "seed": job.seed,
            }
            for job in plan.jobs
        ],
    }
