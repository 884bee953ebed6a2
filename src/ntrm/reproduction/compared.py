"""Paired comparisons of networks over the patients of the test part, with Holm's correction over a family."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError
from ntrm.metrics import significance
from ntrm.metrics.significance import Bootstrap, Comparison, Statistic, compare_confusions, compare_scores, holm
from ntrm.reproduction.plan import Variant
from ntrm.reproduction.results import Results

STATISTICS: dict[str, Statistic] = {
    "accuracy": significance.pixel_accuracy,
    "iou": significance.macro_iou,
    "dice": significance.macro_dice,
}
BOOTSTRAP = Bootstrap(draws=10_000, confidence=0.95, seed=0)

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Pair:
    """Two models' counts on the same sections, (seeds, S, K, K) each; rows are the truth."""

    first: str
    second: str
    first_counts: NDArray[Any]
    second_counts: NDArray[Any]


def compare_family(
    pairs: Mapping[Key, Pair], patients: Sequence[str], statistic: Statistic, bootstrap: Bootstrap = BOOTSTRAP
) -> dict[Key, Comparison]:
    """Compare every pair, and correct for their number. A pair whose statistic is not defined is left out."""
    found: dict[Key, Comparison] = {}
    for key, pair in pairs.items():
        # Names may be equal (a network's initial and final prediction): the places tell the two apart.
        models = {"first": pair.first_counts, "second": pair.second_counts}
        try:
            (result,) = compare_confusions(models, patients, statistic=statistic, bootstrap=bootstrap)
        except DataError:
            continue
        found[key] = replace(result, first=pair.first, second=pair.second)
    corrected = holm([result.p for result in found.values()])
    return {key: replace(result, p_holm=p) for (key, result), p in zip(found.items(), corrected, strict=True)}


def compare_variants(
    results: Results, pairs: Sequence[tuple[Variant, Variant]], statistic: Statistic
) -> dict[tuple[Variant, Variant], Comparison]:
    """First minus second of every pair of networks that both have results."""
    stacks = {variant: results.stack(variant) for pair in pairs for variant in pair}
    ready: dict[tuple[Variant, Variant], Pair] = {}
    for first, second in pairs:
        one, other = stacks[first], stacks[second]
        if one is not None and other is not None:
            ready[first, second] = Pair(short_name(first), short_name(second), one, other)
    if not ready:
        return {}
    _, patients = results.sections([variant for pair in ready for variant in pair])
    return compare_family(ready, patients, statistic)


def short_name(variant: Variant) -> str:
    """A network's name in a sentence."""
    return " ".join(
        [variant.arch, *(f"{key}={value}" for key, value in variant.options if key not in ("width", "dim"))]
    )


def false_positive_rate(index: int) -> Statistic:
    """The share of the pixels of other classes that are called class ``index``.

    >>> false_positive_rate(1)(np.array([[[3.0, 1.0], [0.0, 4.0]]])).tolist()
    [0.25]
    """

    def rate(confusions: NDArray[np.float64]) -> NDArray[np.float64]:
        others = confusions.sum(axis=(-2, -1)) - confusions[..., index, :].sum(axis=-1)
        wrong = confusions[..., :, index].sum(axis=-1) - confusions[..., index, index]
        rates: NDArray[np.float64] = np.divide(wrong, others, out=np.full(wrong.shape, np.nan), where=others > 0)
        return rates

    return rate


def initial_and_final(results: Results, variant: Variant) -> tuple[Pair | None, list[str]]:
    """A network's final prediction against its own coarse head's, and the patients; None without a coarse head."""
    final, initial = results.stack(variant), results.stack(variant, "initial")
    if final is None or initial is None or final.shape != initial.shape:
        return None, []
    name = short_name(variant)
    return Pair(f"{name} final", f"{name} initial", final, initial), results.sections([variant])[1]


@dataclass(frozen=True, eq=False)
class Beside:
    """Pixels beside an interface, as right and wrong ones, of NTRM and of its control."""

    patients: list[str]
    within: Pair
    """NTRM's final prediction against its initial one."""
    changes: tuple[float, float, float]
    """Corrected, broken and all pixels; means over seeds."""
    across: Pair | None
    """NTRM's final prediction against the control's; None where that has no results."""
    control_changes: tuple[float, float, float]


def interface_pairs(results: Results, ours: Variant, control: Variant | None, one: str, other: str) -> Beside | None:
    """What happened beside the interface of two tissues; None where it does not occur or was not counted."""
    mine = _interface_counts(results, ours, one, other)
    if mine is None or not mine["pixels"].any():
        return None
    theirs = _interface_counts(results, control, one, other) if control else None
    name = short_name(ours)
    within = Pair(f"{name} final", f"{name} initial", _right_wrong(mine), _right_wrong(mine, initial=True))
    across = None
    if control is not None and theirs is not None:
        across = Pair(name, short_name(control), _right_wrong(mine), _right_wrong(theirs))
    _, patients = results.sections([ours, *([control] if control is not None and theirs is not None else [])])
    return Beside(patients, within, _changes(mine), across, _changes(theirs) if theirs else (0.0, 0.0, 0.0))


def compare_section_scores(
    results: Results, pairs: Sequence[tuple[Variant, Variant]], score: str
) -> dict[tuple[Variant, Variant], Comparison]:
    """First minus second in the mean of a column of ``sections.csv``; networks may be of different resolutions."""
    found: dict[tuple[Variant, Variant], Comparison] = {}
    for first, second in pairs:
        one, other = (results.section_scores(variant, score) for variant in (first, second))
        if one is None or other is None:
            continue
        _, patients = results.sections([first, second])
        try:
            (result,) = compare_scores({"first": one, "second": other}, patients, bootstrap=BOOTSTRAP)
        except DataError:
            continue
        found[first, second] = replace(result, first=short_name(first), second=short_name(second))
    corrected = holm([result.p for result in found.values()])
    return {key: replace(result, p_holm=p) for (key, result), p in zip(found.items(), corrected, strict=True)}


def _interface_counts(results: Results, variant: Variant, one: str, other: str) -> dict[str, NDArray[Any]] | None:
    """(seeds, S) counts beside an interface, both sides of it together."""
    done = results.done(variant)
    if not done:
        return None
    i, j = (list(done[0].metrics["classes"]).index(name) for name in (one, other))
    counts = {}
    for name in ("pixels", "wrong", "corrected", "broken"):
        tables = [outcome.interfaces[name] for outcome in done if name in outcome.interfaces]
        if len(tables) < len(done):
            return None
        counts[name] = np.stack([table[:, i, j] + table[:, j, i] for table in tables])
    return counts


def _right_wrong(counts: Mapping[str, NDArray[Any]], *, initial: bool = False) -> NDArray[Any]:
    """(seeds, S, 2, 2) as if there were one class: right, wrong. The accuracy of it is the share that is right."""
    wrong = counts["wrong"] + counts["corrected"] - counts["broken"] if initial else counts["wrong"]
    tables = np.zeros((*wrong.shape, 2, 2), dtype=np.int64)
    tables[..., 0, 0], tables[..., 0, 1] = counts["pixels"] - wrong, wrong
    return tables


def _changes(counts: Mapping[str, NDArray[Any]]) -> tuple[float, float, float]:
    corrected, broken, pixels = (float(counts[name].sum(axis=1).mean()) for name in ("corrected", "broken", "pixels"))
    return corrected, broken, pixels
