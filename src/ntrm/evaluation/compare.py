"""Which of several evaluated models is better: paired bootstrap over patients, Holm's correction, seeds understood.

Reads what ``ntrm evaluate`` wrote (``metrics.json`` and ``confusions.npz``). Evaluations of networks that differ in
nothing but their training seed are one model with several seeds. Only evaluations of the same sections with the same
classes are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import RefusedError, UsageError, choices_error
from ntrm.core.io import rows_text, write_json, write_text
from ntrm.evaluation.result import METRICS, Evaluated, read_evaluation
from ntrm.metrics import significance
from ntrm.metrics.significance import Bootstrap, Comparison, compare_confusions

MEASURES = {
    "iou": ("Mean IoU", significance.macro_iou),
    "dice": ("Mean Dice", significance.macro_dice),
    "accuracy": ("Pixel accuracy", significance.pixel_accuracy),
}
"""Measures by name: their title and the statistic of pooled confusion counts."""

FORMATS = (".csv", ".json")


@dataclass(frozen=True)
class ModelScores:
    """One model: its score by training seed."""

    label: str
    seeds: tuple[int | None, ...]
    scores: tuple[float, ...]
    """Pooled over all sections, in the order of the seeds."""
    folders: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return fmean(self.scores)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "label": self.label,
            "mean": self.mean,
            "seeds": list(self.seeds),
            "scores": list(self.scores),
            "evaluations": list(self.folders),
        }


@dataclass(frozen=True)
class Comparisons:
    """All models with their scores, best first, and what may be said about their differences."""

    measure: str
    models: tuple[ModelScores, ...]
    pairs: tuple[Comparison, ...]
    reference: str | None
    bootstrap: Bootstrap
    sections: int
    patients: int
    data: Mapping[str, Any]

    @property
    def title(self) -> str:
        """The measure in words."""
        return MEASURES[self.measure][0]

    @property
    def verdicts(self) -> tuple[str, ...]:
        """One plain sentence for each pair."""
        return tuple(pair.verdict for pair in self.pairs)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "measure": self.measure,
            "sections": self.sections,
            "patients": self.patients,
            "data": dict(self.data),
            "draws": self.bootstrap.draws,
            "seed": self.bootstrap.seed,
            "reference": self.reference,
            "models": [model.as_dict() for model in self.models],
            "comparisons": [pair.as_dict() for pair in self.pairs],
        }

    def write(self, path: Path) -> None:
        """As a table with one row for each pair (``.csv``) or as a document (``.json``)."""
        check_format(path)
        if path.suffix == ".json":
            write_json(path, self.as_dict())
        else:
            write_text(path, self._table())

    def _table(self) -> str:
        columns = ("first", "second", "difference", "low", "high", "p", "p_holm", "established", "patients", "draws")
        seeds = ("first_by_seed", "second_by_seed")
        rows: list[list[object]] = [["measure", *columns, "confidence", *seeds, "verdict"]]
        for pair in self.pairs:
            by_seed = [" ".join(f"{value:.6f}" for value in getattr(pair, side)) for side in seeds]
            values = [getattr(pair, column) for column in columns]
            rows.append([self.measure, *values, pair.confidence, *by_seed, pair.verdict])
        return rows_text(rows)


def compare(
    outs: Sequence[Path],
    *,
    measure: str = "iou",
    draws: int = 10_000,
    reference: str | None = None,
    seed: int = 0,
) -> Comparisons:
    """Compare the models behind evaluation folders, all pairs or each with ``reference`` (a model's label).

    Args:
        outs: folders that ``ntrm evaluate`` wrote; several seeds of one model are recognised.
        measure: ``iou``, ``dice`` or ``accuracy``, of the pooled confusion counts.
        draws: bootstrap draws of patients.
        reference: compare the others with this model only.
        seed: of the draws.
    """
    if measure not in MEASURES:
        raise choices_error("unknown measure", measure, MEASURES)
    bootstrap = Bootstrap(draws=draws, seed=seed)
    evaluated = _in_one_order([read_evaluation(Path(out)) for out in outs])
    models = group_seeds(evaluated)
    if len(models) < 2:
        raise UsageError(
            "nothing to compare",
            got=", ".join(
                f"{label} ({len(group)} evaluation{'s' if len(group) > 1 else ''})" for label, group in models.items()
            )
            or "no evaluation",
            expected="evaluations of two or more models",
            hint="evaluate another model on the same data",
        )
    stacks = {label: np.stack([each.confusions for each in group]) for label, group in models.items()}
    patients = evaluated[0].patients
    statistic = MEASURES[measure][1]
    pairs = compare_confusions(stacks, patients, statistic=statistic, reference=reference, bootstrap=bootstrap)
    scored = [_scores(label, group, stacks[label], statistic) for label, group in models.items()]
    return Comparisons(
        measure=measure,
        models=tuple(sorted(scored, key=lambda model: -model.mean)),
        pairs=pairs,
        reference=reference,
        bootstrap=bootstrap,
        sections=len(patients),
        patients=len(set(patients)),
        data=evaluated[0].data,
    )


def check_format(path: Path) -> None:
    """Refuse a file that is neither a table nor a document, or that would take an evaluation's place."""
    if path.suffix not in FORMATS or path.name == METRICS:
        raise UsageError("cannot write the comparison there", got=path, expected="a file that ends in .csv or .json")


def group_seeds(evaluated: Sequence[Evaluated]) -> dict[str, list[Evaluated]]:
    """Evaluations by the model they are of, under labels that tell the models apart; seeds in order.

    An evaluation whose training seed is not known stands for itself: nothing says what it is a repetition of.
    """
    _check_distinct(evaluated)
    groups: dict[tuple[Any, ...], list[Evaluated]] = {}
    for each in evaluated:
        alone = str(each.folder) if each.seed is None else ""
        groups.setdefault((each.name, tuple(each.traits.items()), alone), []).append(each)
    for group in groups.values():
        group.sort(key=lambda each: each.seed or 0)
        _check_seeds(group)
    labels = _labels([group[0] for group in groups.values()])
    return dict(zip(labels, groups.values(), strict=True))


def _labels(firsts: Sequence[Evaluated]) -> list[str]:
    """A label for each model: its name and, where others have the same, what tells it from them."""
    labels = []
    for one in firsts:
        namesakes = [other for other in firsts if other.name == one.name]
        keys = dict.fromkeys(key for other in namesakes for key in other.traits)
        telling = [key for key in keys if len({other.traits.get(key) for other in namesakes}) > 1]
        parts = [f"{key} {one.traits.get(key, 'default')}" for key in telling]
        if sum(other.traits == one.traits for other in namesakes) > 1:
            parts.append(str(one.folder))
        labels.append(f"{one.name} ({', '.join(parts)})" if parts else one.name)
    return labels


def _scores(
    label: str, group: Sequence[Evaluated], stack: NDArray[np.int64], statistic: significance.Statistic
) -> ModelScores:
    scores = statistic(stack.sum(axis=1).astype(np.float64))
    return ModelScores(
        label=label,
        seeds=tuple(each.seed for each in group),
        scores=tuple(scores.tolist()),
        folders=tuple(str(each.folder) for each in group),
    )


def _in_one_order(evaluated: Sequence[Evaluated]) -> list[Evaluated]:
    """Refuse evaluations of different things; bring the sections of all into the order of the first."""
    if not evaluated:
        return []
    first, *others = evaluated
    ordered = [first]
    for other in others:
        _check_same("classes", first, other, first.classes, other.classes)
        _check_same("sections", first, other, sorted(first.sections), sorted(other.sections))
        patients = [dict(zip(each.sections, each.patients, strict=True)) for each in (first, other)]
        _check_same("patients", first, other, *(sorted(each.items()) for each in patients))
        _check_same("data", first, other, sorted(first.data.items()), sorted(other.data.items()))
        place = {name: index for index, name in enumerate(other.sections)}
        order = [place[name] for name in first.sections]
        counts = other.confusions[order]
        ordered.append(replace(other, sections=first.sections, patients=first.patients, confusions=counts))
    return ordered


def _check_same(what: str, first: Evaluated, other: Evaluated, one: Sequence[Any], two: Sequence[Any]) -> None:
    if list(one) != list(two):
        raise RefusedError(
            f"{first.folder} and {other.folder} were not evaluated on the same {what}",
            got=_difference(two, one),
            expected=_difference(one, two),
            hint="evaluate all models on one split of one dataset at one resolution",
        )


def _difference(one: Iterable[Any], two: Iterable[Any]) -> str:
    """What one has and the other has not, briefly."""
    there = {repr(each) for each in two}
    beyond = [each for each in one if repr(each) not in there]
    extra = [" ".join(map(str, each)) if isinstance(each, tuple) else str(each) for each in beyond]
    more = f" and {len(extra) - 3} more" if len(extra) > 3 else ""
    return (", ".join(extra[:3]) or "the same ones in another order or number") + more


def _check_distinct(evaluated: Sequence[Evaluated]) -> None:
    seen: dict[Any, Evaluated] = {}
    for each in evaluated:
        weights = (each.sha256 or str(each.folder), each.name, tuple(each.traits.items()))
        for key in (each.folder.resolve(), weights):
            if key in seen:
                raise UsageError(
                    "one evaluation was given twice",
                    got=f"{seen[key].folder} and {each.folder}",
                    expected="each trained network once",
                )
            seen[key] = each


def _check_seeds(group: Sequence[Evaluated]) -> None:
    for one, two in pairwise(group):
        if one.seed is not None and one.seed == two.seed:
            raise RefusedError(
                f"two trainings of {one.name} cannot be told apart",
                got=f"{one.folder} and {two.folder}: the same settings, the same seed {one.seed}, different weights",
                expected="one evaluation for each seed",
                hint="leave one of them out, or name the models apart when training",
            )
