"""Is one model better than another? Paired bootstrap over patients, and Holm's correction for several questions.

The sections of a patient are alike, so patients, not sections, are drawn with replacement, and both models are scored
on the same draw: what makes a patient hard for both cancels. The statistic of a draw is computed from the confusion
matrices summed over its sections (or from the mean of its scores). A model trained with several seeds has its
statistic averaged over them within each draw; the interval speaks for new patients and for these trained networks.
What another training of the same models would show is another question: `Comparison.over_trainings` answers it from
how much the seeds differ, by Welch's t.

The interval is the percentile interval of the drawn differences, and the two-sided p is twice the smaller tail,
``2 · min(#(d ≤ 0) + 1, #(d ≥ 0) + 1) / (draws + 1)``. Drawing from few patients understates how much patients vary:
plain percentiles of 8 patients hold the truth in 87 % of simulations, not 95. Both are therefore read as those of
Student's t with ``patients − 1`` degrees of freedom (the expanded percentile interval; Hesterberg, The American
Statistician, 2015). And p is never put below ``2^(1 − patients)``, the least that an exact test by exchanging the two
models can reach: five patients or fewer establish nothing at 5 %, however well they agree. A patient for whom the
statistic is defined in no model (one without a pixel of what it counts) can speak for none, and is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import fmean, variance
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from ntrm.core.errors import DataError, RefusedError, UsageError, check_number, check_seed, choices_error, plain_fields
from ntrm.core.wording import counted, signed
from ntrm.metrics.overlap import class_scores, mean_defined, ratio

Values = NDArray[np.float64]
Statistic = Callable[[Values], Values]
"""Summed confusion matrices (…, K, K), ground truth in rows, to one number each (…); NaN where undefined."""

CHUNK_VALUES = 4_000_000  # Numbers held at once while drawing (32 MB)


@dataclass(frozen=True)
class Bootstrap:
    """How to draw: equal settings give equal results."""

    draws: int = 10_000
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("number of draws", self.draws, 100, 10_000_000, whole=True)
        check_number("confidence", self.confidence, 0.5, 0.9999)
        check_seed(self.seed)
        plain_fields(self)


@dataclass(frozen=True)
class Comparison:
    """The difference ``first − second`` of two models in one statistic, and what may be said about it."""

    first: str
    second: str
    first_by_seed: tuple[float, ...]  # Statistic over all patients, one for each training seed of the first model
    second_by_seed: tuple[float, ...]
    low: float  # Lower end of the interval of the difference
    high: float
    p: float  # Two-sided, for this comparison alone
    p_holm: float  # Corrected for the family of comparisons it was made in
    patients: int
    draws: int  # Draws in which both statistics were defined
    confidence: float

    @property
    def difference(self) -> float:
        """First minus second, each averaged over its seeds."""
        return fmean(self.first_by_seed) - fmean(self.second_by_seed)

    @property
    def established(self) -> bool:
        """Whether the corrected p is below 1 − confidence and the interval does not contain 0."""
        return self.p_holm < 1 - self.confidence and not self.low <= 0 <= self.high

    @property
    def over_trainings(self) -> tuple[float, float] | None:
        """Interval of the difference over training seeds (Welch's t); None unless both models have several."""
        groups = (self.first_by_seed, self.second_by_seed)
        if min(map(len, groups)) < 2:
            return None
        squared_errors = [variance(group) / len(group) for group in groups]
        total = sum(squared_errors)
        if not total:
            return self.difference, self.difference
        lost = sum(error**2 / (len(group) - 1) for error, group in zip(squared_errors, groups, strict=True))
        width = float(special.stdtrit(total**2 / lost, (1 + self.confidence) / 2)) * math.sqrt(total)
        return self.difference - width, self.difference + width

    @property
    def may_turn(self) -> bool:
        """Whether the difference is established for these networks, but another training may show otherwise."""
        ends = self.over_trainings
        return self.established and ends is not None and ends[0] <= 0 <= ends[1]

    @property
    def verdict(self) -> str:
        """The finding in a plain sentence, or in two."""
        numbers = (
            f"{signed(self.difference, 4)}, {100 * self.confidence:g} % interval {_range(self.low, self.high)}, "
            f"p = {self.p_holm:.2g} after Holm's correction, {counted(self.patients, 'patient')}, "
            f"{len(self.first_by_seed)} and {counted(len(self.second_by_seed), 'training seed')}"
        )
        if not self.established:
            return f"A difference between {self.first} and {self.second} is not established ({numbers})."
        direction = "higher" if self.difference > 0 else "lower"
        finding = f"{self.first} scores {direction} than {self.second} ({numbers})."
        if self.over_trainings is None or not self.may_turn:
            return finding
        return f"{finding} Other trainings may show otherwise: over the seeds {_range(*self.over_trainings)}."

    def as_dict(self) -> dict[str, Any]:
        """Numbers and verdict as a JSON document."""
        derived = ("difference", "established", "verdict", "over_trainings")
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}


def macro_iou(confusions: Values) -> Values:
    """Mean IoU over the classes that occur in ground truth or prediction, of every matrix of a stack.

    >>> macro_iou(np.array([[[3.0, 1.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 0.0]]])).tolist()
    [0.775]
    """
    return mean_defined(class_scores(confusions, "iou"), axis=-1)


def macro_dice(confusions: Values) -> Values:
    """Mean Dice over the classes that occur in ground truth or prediction, of every matrix of a stack."""
    return mean_defined(class_scores(confusions, "dice"), axis=-1)


def pixel_accuracy(confusions: Values) -> Values:
    """Fraction of pixels on the diagonal, of every matrix of a stack."""
    return ratio(np.trace(confusions, axis1=-2, axis2=-1), confusions.sum(axis=(-2, -1)))


def compare_confusions(
    models: Mapping[str, ArrayLike],
    patients: Sequence[Hashable],
    *,
    statistic: Statistic = macro_iou,
    reference: str | None = None,
    bootstrap: Bootstrap | None = None,
) -> tuple[Comparison, ...]:
    """Compare models by their confusion matrices (ground truth in rows) on the same sections.

    Each model has (S, K, K), or (seeds, S, K, K) if it was trained several times; ``patients`` names the patient of
    each of the S sections. All pairs are compared, or every other model with ``reference``; Holm's correction runs over
    all of them.
    """
    pairs = _pairs(list(models), reference)
    _check_patients(patients)
    stacks = {name: _with_seeds(name, matrices, 4, len(patients)) for name, matrices in models.items()}
    _check_counts(stacks)
    return _compare(stacks, pairs, patients, statistic, bootstrap or Bootstrap())


def compare_scores(
    models: Mapping[str, ArrayLike],
    patients: Sequence[Hashable],
    *,
    reference: str | None = None,
    bootstrap: Bootstrap | None = None,
) -> tuple[Comparison, ...]:
    """Compare models by one score per section, (S,) or (seeds, S): the statistic is the mean over sections.

    A section for which any model has no score (NaN) is left out for all of them, and so is a patient who has no other.

    >>> better, worse = [0.8, 0.9, 0.7, 0.8, 0.9, 0.6, 0.7, 0.8], [0.7, 0.8, 0.6, 0.7, 0.8, 0.5, 0.6, 0.7]
    >>> result, = compare_scores({"new": better, "old": worse}, list("abcdefgh"))
    >>> result.established, round(result.difference, 3)
    (True, 0.1)
    """
    pairs = _pairs(list(models), reference)
    _check_patients(patients)
    stacks = {name: _with_seeds(name, scores, 2, len(patients)) for name, scores in models.items()}
    scored = np.all([np.isfinite(scores).all(axis=0) for scores in stacks.values()], axis=0)  # (S,)
    if not scored.any():
        raise DataError("no section has a score of every model", got=counted(len(patients), "section"))
    known = {name: scores[:, scored] for name, scores in stacks.items()}
    sums = {name: np.stack([scores, np.ones_like(scores)], axis=-1) for name, scores in known.items()}
    known_patients = [patient for patient, has_score in zip(patients, scored, strict=True) if has_score]
    return _compare(sums, pairs, known_patients, _mean_score, bootstrap or Bootstrap())


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down correction: the adjusted p of each comparison of a family, in the order given.

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    count = len(p_values)
    adjusted = [0.0] * count
    highest = 0.0
    for rank, position in enumerate(sorted(range(count), key=lambda index: p_values[index])):
        highest = max(highest, min(1.0, (count - rank) * p_values[position]))
        adjusted[position] = highest
    return tuple(adjusted)


def _compare(
    counts: Mapping[str, Values],
    pairs: Sequence[tuple[str, str]],
    patients: Sequence[Hashable],
    statistic: Statistic,
    bootstrap: Bootstrap,
) -> tuple[Comparison, ...]:
    """Every pair of the family; all models are scored on the same draws. ``counts`` are (seeds, S, …) and add up."""
    members = _membership(patients)
    sums = {name: np.einsum("rs...,sp->rp...", values, members) for name, values in counts.items()}
    by_seed = {name: _by_seed(name, values, statistic) for name, values in sums.items()}
    known = np.any([np.isfinite(statistic(values)).any(axis=0) for values in sums.values()], axis=0)  # (patients,)
    drawn = {name: _drawn(values[:, known], statistic, bootstrap) for name, values in sums.items()}
    number = int(known.sum())
    intervals = [_interval(drawn[one] - drawn[two], number, bootstrap.confidence) for one, two in pairs]
    corrected = holm([p for _, _, p, _ in intervals])
    return tuple(
        Comparison(one, two, by_seed[one], by_seed[two], low, high, p, p_holm, number, draws, bootstrap.confidence)
        for (one, two), (low, high, p, draws), p_holm in zip(pairs, intervals, corrected, strict=True)
    )


def _by_seed(name: str, sums: Values, statistic: Statistic) -> tuple[float, ...]:
    """The statistic over all patients for each seed."""
    values = statistic(sums.sum(axis=1))
    if not np.isfinite(values).all():
        raise DataError(f"the statistic of {name} is not defined", got=values, expected="a number over all sections")
    return tuple(values.tolist())


def _drawn(sums: Values, statistic: Statistic, bootstrap: Bootstrap) -> Values:
    """The statistic of each draw of patients, averaged over seeds: (draws,)."""
    seeds, patients, *shape = sums.shape
    flat = sums.swapaxes(0, 1).reshape(patients, -1)  # (patients, seeds · …)
    rng = np.random.default_rng(bootstrap.seed)
    step = max(1, CHUNK_VALUES // max(flat.shape[1], patients))
    chunks = []
    for start in range(0, bootstrap.draws, step):
        size = min(step, bootstrap.draws - start)
        # A draw with replacement is fully described by how often each patient is drawn.
        times = rng.multinomial(patients, np.full(patients, 1 / patients), size=size)  # (draws, patients)
        chunks.append(statistic((times @ flat).reshape(size, seeds, *shape)).mean(axis=1))
    return np.concatenate(chunks)


def _interval(differences: Values, patients: int, confidence: float) -> tuple[float, float, float, int]:
    """Ends of the percentile interval, the two-sided p, and the draws that could be used."""
    # Equal models must tie in every draw, also where averaging over seeds leaves the last bit to chance.
    usable = np.round(differences[np.isfinite(differences)], 12)
    if not usable.size:
        raise DataError("the statistic is not defined in any draw", got=f"{differences.size} draws")
    freedom = max(patients - 1, 1)
    widening = math.sqrt((freedom + 1) / freedom)
    tail = special.ndtr(special.stdtrit(freedom, (1 - confidence) / 2) * widening)
    low, high = (float(end) for end in np.quantile(usable, [tail, 1 - tail]))
    smaller = (min(np.count_nonzero(usable <= 0), np.count_nonzero(usable >= 0)) + 1) / (usable.size + 1)
    p = 2 * float(special.stdtr(freedom, special.ndtri(min(smaller, 0.5)) / widening))
    return low, high, max(p, 2.0 ** (1 - patients)), usable.size


def _pairs(names: list[str], reference: str | None) -> list[tuple[str, str]]:
    if len(names) < 2:
        raise UsageError("nothing to compare", got=f"{len(names)} model(s)", expected="two or more")
    if reference is None:
        return list(combinations(names, 2))
    if reference not in names:
        raise choices_error("the reference is not among the models", reference, names)
    return [(name, reference) for name in names if name != reference]


def _check_patients(patients: Sequence[Hashable]) -> None:
    """Refuse missing names: each NaN would count as a patient of its own, all None as one."""
    missing = [(index, patient) for index, patient in enumerate(patients) if _is_missing(patient)]
    if missing:
        index, patient = missing[0]
        raise DataError(
            "sections without a patient",
            got=f"{len(missing)} of {len(patients)} missing, the first is section {index}: {patient}",
            expected="the patient of every section",
            hint="fill the column of patients in the table; leave out sections whose patient is not known",
        )


def _is_missing(patient: Any) -> bool:
    try:
        return patient is None or bool(patient != patient)  # noqa: PLR0124 - NaN and NaT differ from themselves
    except TypeError:  # pandas.NA does not even say whether it does
        return True


def _membership(patients: Sequence[Hashable]) -> Values:
    """1 where a section belongs to a patient: (sections, patients)."""
    column = {patient: index for index, patient in enumerate(dict.fromkeys(patients))}
    return np.eye(len(column))[[column[patient] for patient in patients]]


def _with_seeds(name: str, values: ArrayLike, dimensions: int, sections: int) -> Values:
    """The values of a model as float64 with a leading axis of seeds."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == dimensions - 1:
        array = array[None]
    if array.ndim != dimensions or array.shape[1] != sections or 0 in array.shape:
        shape = "(sections, K, K)" if dimensions == 4 else "(sections,)"
        raise DataError(
            f"the values of {name} have the wrong shape",
            got=array.shape,
            expected=f"{shape} of {sections} sections, with a leading axis where there are several seeds",
            hint="give every model's values for the same sections in the same order",
        )
    return array


def _check_counts(stacks: Mapping[str, Values]) -> None:
    """Refuse what is no count, and another ground truth: the rows of all models must sum to the same numbers."""
    for name, stack in stacks.items():
        if stack.shape[2] != stack.shape[3] or not (stack >= 0).all():
            raise DataError(
                f"{name} has no confusion matrices",
                got=f"{stack.shape[2]} × {stack.shape[3]}, least value {stack.min()}",
                expected="K × K pixel counts of 0 or more",
            )
    truths = {name: stack.sum(axis=-1) for name, stack in stacks.items()}  # (seeds, S, K)
    common = next(iter(truths.values()))[:1]
    for name, truth in truths.items():
        if truth.shape[1:] != common.shape[1:] or (truth != common).any():
            raise RefusedError(
                f"{name} was not scored on the same ground truth as the models or seeds before it",
                got="different numbers of true pixels per section and class",
                expected="the same sections, in the same order, at the same resolution",
                hint="evaluate all models on one split of one dataset",
            )


def _mean_score(sums: Values) -> Values:
    return ratio(sums[..., 0], sums[..., 1])


def _range(low: float, high: float) -> str:
    return f"{signed(low, 4)} to {signed(high, 4)}"
