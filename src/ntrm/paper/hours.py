"""How long runs take: windows and pixels, counted, times the seconds of each, measured on one NVIDIA H200.

The speeds are those of ``docs/results/networks.md``, at full width, with windows in the GPU's memory and one run at a
time. They give the order of magnitude on other devices; a reproduction corrects them by the runs it has finished.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ntrm.data.tiles import TILE_SIZE
from ntrm.paper.facts import Facts
from ntrm.paper.plan import Job
from ntrm.paper.published import OURS
from ntrm.training.recipe import Recipe
from ntrm.training.schedule import Rounds

MEASURED_ON = "NVIDIA H200"
MEASURED_BATCH = 32
MEASURED_STEP_S = {
    "deeplabv3plus": 0.0136,
    "unet-resnet18": 0.0212,
    "ntrm-control": 0.0233,
    "ntrm-paper": 0.0254,
    "unet-vgg16": 0.0388,
    "mit-b2": 0.0424,
    "attention-unet": 0.0601,
}
"""Seconds of a training step of ``MEASURED_BATCH`` windows of 256 pixels, by architecture; NTRM's for others."""
REGIONS_STEP_S = 0.0287
"""The same for NTRM with regions as nodes."""
LEAST_STEP_S = 0.012
"""Part of a step that does not depend on the batch; NTRM's steps of 4, 32 and 64 windows lie on this line."""
FORWARD = 1 / 3
"""Part of a training step's time that a window takes in validation."""
START_S = 30.0
"""Until a process trains: imports, windows brought to the GPU, kernels recorded."""
SECTION_S, MEGAPIXEL_S = 0.85, 0.085
"""Seconds to score a section, and each million pixels of it; measured: 0.9, 1.2 and 2.4 s at 10x, 5x and 2x."""


def predict_seconds(job: Job, facts: Facts) -> float:
    """Seconds of training and evaluation; where the recipe may stop early, the longest it can take."""
    recipe, rounds = job.recipe, rounds_of(job.recipe, facts.windows["train"])
    validations = rounds.total / (recipe.validate_every or rounds.per_epoch)
    validation = validations * facts.windows["val"] * FORWARD * _step_s(job, MEASURED_BATCH) / MEASURED_BATCH
    scoring = facts.sections["test"] * SECTION_S + facts.pixels["test"] / 1e6 * MEGAPIXEL_S
    return START_S + rounds.total * _step_s(job, recipe.batch) + validation + scoring


def rounds_of(recipe: Recipe, windows: int) -> Rounds:
    """The steps of a training; an epoch is the whole batches of the training windows, at least one."""
    return Rounds.of(recipe, max(1, windows // recipe.batch))


def _step_s(job: Job, batch: int) -> float:
    """Seconds of a step: the part that every step has, and a part for each window by its pixels."""
    arch, options = job.variant.arch, dict(job.variant.options)
    measured = MEASURED_STEP_S.get(arch, MEASURED_STEP_S[OURS])
    if options.get("nodes") == "region":
        measured = REGIONS_STEP_S
    window_s = (measured - LEAST_STEP_S) / MEASURED_BATCH * (job.recipe.window / TILE_SIZE) ** 2
    return LEAST_STEP_S + batch * window_s


def makespan(seconds: Iterable[float], slots: int) -> float:
    """Seconds until all runs are done, each on the slot that is free first, the longest run first.

    >>> makespan([3, 1, 1, 1], 2), makespan([], 8)
    (3.0, 0.0)
    """
    busy = [0.0] * slots
    for run in sorted(seconds, reverse=True):
        heapq.heapreplace(busy, busy[0] + run)
    return max(busy)


def long_runs_first(expected: Mapping[str, float], slots: int) -> list[str]:
    """Keys in their order, but first those that take longer than a slot's share of everything: all would wait for them.

    >>> long_runs_first({"a": 1, "b": 9, "c": 1}, slots=2), long_runs_first({"a": 1, "b": 9, "c": 1}, slots=1)
    (['b', 'a', 'c'], ['a', 'b', 'c'])
    """
    share = sum(expected.values()) / slots
    return sorted(expected, key=lambda key: expected[key] <= share)


@dataclass
class TimeLeft:
    """Expected time until a list of runs is done, corrected by those that were."""

    expected: Mapping[str, float]
    """Predicted seconds by key of the runs to do."""
    slots: int

    def __post_init__(self) -> None:
        self._left = dict(self.expected)
        self._ours = self._others = self._taken = 0.0

    def done(self, key: str, seconds: float | None) -> None:
        """Note that a run has ended after so many seconds; None for one that another command has made."""
        predicted = self._left.pop(key, 0.0)
        if seconds is None:
            self._others += predicted
        else:
            self._ours += predicted
            self._taken += seconds

    @property
    def seconds(self) -> float | None:
        """Seconds left, if other commands go on to do their part; None before the first run has ended."""
        if not self._ours:
            return None
        part = self._ours / (self._ours + self._others)
        return makespan(self._left.values(), self.slots) * part * self._taken / self._ours


def in_words(seconds: float) -> str:
    """A duration for people, rounded.

    >>> in_words(40), in_words(600), in_words(4000), in_words(90 * 3600)
    ('1 minute', '10 minutes', '1.1 hours', '90 hours')
    """
    minutes = max(1, round(seconds / 60))
    if minutes < 60:
        return f"{minutes} minute{'s' * (minutes > 1)}"
    hours = seconds / 3600
    return f"{hours:.1f} hours" if hours < 9.95 else f"{hours:.0f} hours"
