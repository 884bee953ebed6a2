"""Which of several evaluated models is better: paired bootstrap over patients with Holm's correction.

Reads what ``ntrm evaluate`` wrote (``metrics.json`` and ``confusions.npz``). Evaluations of networks that differ only
in their training seed are one model with several seeds. Only evaluations of the same sections with the same classes
are compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.csv_text import rows_text
from ntrm.core.errors import DataError, RefusedError, UsageError, choices_error, first_names, path_error
from ntrm.core.io import read_arrays, read_json, write_json, write_text
from ntrm.core.wording import counted, short_repr
from ntrm.evaluation.result import CONFUSIONS, METRICS
from ntrm.metrics.significance import Bootstrap, Comparison, compare_confusions, macro_dice, macro_iou, pixel_accuracy

MEASURES = {
    "iou": ("Mean IoU", macro_iou),
    "dice": ("Mean Dice", macro_dice),
    "accuracy": ("Pixel accuracy", pixel_accuracy),
}
"""Measures by name: their title and the statistic of pooled confusion counts."""

AGAIN = "evaluate again with this version of ntrm"
COLUMNS = (
    *("first", "second", "difference", "low", "high", "p", "p_holm", "established", "patients", "draws", "confidence"),
    *("first_by_seed", "second_by_seed", "verdict"),
)
"""Of the table, after the measure."""

TRAITS = ("arch", "options", "recipe", "init", "encoder_init", "data", "sections", "level", "mpp")
"""What distinguishes models of one name, together with the stitching; the seed does not."""


@dataclass(frozen=True, eq=False)
class Evaluated:
    """One evaluation, read back and checked."""

    folder: Path
    name: str  # The model's name, or its architecture
    traits: Mapping[str, str]  # Everything that distinguishes models, flat, as text
    seed: int | None  # Of its training; None where it is not known
    data: Mapping[str, Any]  # Fingerprint, split, resolution
    classes: tuple[str, ...]
    sections: tuple[str, ...]
    patients: tuple[str, ...]
    confusions: NDArray[np.int64] = field(repr=False)  # (S, K, K)

    @property
    def compared_on(self) -> dict[str, list[Any]]:
        """What must be the same in all evaluations."""
        patients = sorted(zip(self.sections, self.patients, strict=True))
        data = list(self.data.items())
        return {"classes": [*self.classes], "sections": sorted(self.sections), "patients": patients, "data": data}


@dataclass(frozen=True)
class ModelScores:
    """One model: its score by training seed."""

    label: str
    seeds: tuple[int | None, ...]
    scores: tuple[float, ...]  # Pooled over all sections, in the order of the seeds
    evaluations: tuple[str, ...]  # Their folders

    __repr__ = short_repr

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return fmean(self.scores)

    def as_dict(self) -> dict[str, Any]:
        """The fields as a JSON document."""
        return {"label": self.label, "mean": self.mean, **asdict(self)}


@dataclass(frozen=True)
class Comparisons:
    """All models with their scores, best first, and the comparison of each pair."""

    measure: str
    models: tuple[ModelScores, ...]
    pairs: tuple[Comparison, ...]
    reference: str | None
    bootstrap: Bootstrap
    sections: int
    patients: int
    data: Mapping[str, Any]

    __repr__ = short_repr

    @property
    def title(self) -> str:
        """The measure in words."""
        return MEASURES[self.measure][0]

    @property
    def verdicts(self) -> tuple[str, ...]:
        """One plain sentence for each pair."""
        return tuple(pair.verdict for pair in self.pairs)

    def as_dict(self) -> dict[str, Any]:
        """The fields as a JSON document."""
        return {
            **{name: getattr(self, name) for name in ("measure", "sections", "patients", "data", "reference")},
            "draws": self.bootstrap.draws,
            "seed": self.bootstrap.seed,
            "models": [model.as_dict() for model in self.models],
            "comparisons": [pair.as_dict() for pair in self.pairs],
        }

    def write(self, path: Path) -> None:
        """As a table with one row for each pair (``.csv``) or as a document (``.json``)."""
        check_target(path)
        if path.suffix == ".json":
            write_json(path, self.as_dict())
            return
        rows: list[Iterable[object]] = [("measure", *COLUMNS)]
        for pair in self.pairs:
            cells = (getattr(pair, column) for column in COLUMNS)
            by_seed = (
                (" ".join(f"{score:.6f}" for score in cell) if isinstance(cell, tuple) else cell) for cell in cells
            )
            rows.append([self.measure, *by_seed])
        write_text(path, rows_text(rows))


def compare(
    outs: Sequence[str | Path],
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
            got=", ".join(f"{label} ({counted(len(group), 'evaluation')})" for label, group in models.items()),
            expected="evaluations of two or more models",
            hint="evaluate another model on the same data",
        )
    stacks = {label: np.stack([seed.confusions for seed in group]) for label, group in models.items()}
    patients, statistic = evaluated[0].patients, MEASURES[measure][1]
    pairs = compare_confusions(stacks, patients, statistic=statistic, reference=reference, bootstrap=bootstrap)
    scored = []
    for label, group in models.items():
        scores = statistic(stacks[label].sum(axis=1).astype(np.float64)).tolist()
        seeds, folders = zip(*((each.seed, str(each.folder)) for each in group), strict=True)
        scored.append(ModelScores(label, seeds, tuple(scores), folders))
    scored.sort(key=lambda model: -model.mean)
    counts = len(patients), len(set(patients))
    return Comparisons(measure, tuple(scored), pairs, reference, bootstrap, *counts, evaluated[0].data)


def check_target(path: Path) -> None:
    """Refuse a file that is neither a table nor a document, or that is an evaluation's."""
    if path.suffix not in (".csv", ".json") or path.name == METRICS:
        raise UsageError("cannot write the comparison there", got=path, expected="a file that ends in .csv or .json")


def group_seeds(evaluated: Sequence[Evaluated]) -> dict[str, list[Evaluated]]:
    """Evaluations by model, under labels that distinguish the models; seeds in order.

    An evaluation whose training seed is not known is a model of its own: nothing says what it repeats.
    """
    groups: dict[tuple[Any, ...], list[Evaluated]] = {}
    for evaluation in evaluated:
        alone = str(evaluation.folder) if evaluation.seed is None else ""
        groups.setdefault((evaluation.name, tuple(evaluation.traits.items()), alone), []).append(evaluation)
    for group in groups.values():
        group.sort(key=lambda evaluation: evaluation.seed or 0)
        for one, two in pairwise(group):
            if one.seed == two.seed:
                raise RefusedError(
                    f"two trainings of {one.name} cannot be distinguished",
                    got=f"{one.folder} and {two.folder}: the same settings and seed {one.seed}",
                    expected="one evaluation for each seed",
                    hint="leave one of them out, or give the models different names when training",
                )
    labels = _labels([group[0] for group in groups.values()])
    return dict(zip(labels, groups.values(), strict=True))


def _labels(firsts: Sequence[Evaluated]) -> list[str]:
    """A label for each model: its name and, where others have the same, what distinguishes it."""
    labels = []
    for evaluation in firsts:
        namesakes = [other for other in firsts if other.name == evaluation.name]
        keys = dict.fromkeys(key for other in namesakes for key in other.traits)
        differing = [key for key in keys if len({other.traits.get(key) for other in namesakes}) > 1]
        traits = [f"{key} {evaluation.traits.get(key, 'default')}" for key in differing]
        if sum(other.traits == evaluation.traits for other in namesakes) > 1:
            traits.append(str(evaluation.folder))
        labels.append(f"{evaluation.name} ({', '.join(traits)})" if traits else evaluation.name)
    return labels


def _in_one_order(evaluated: Sequence[Evaluated]) -> list[Evaluated]:
    """Refuse evaluations of different things; bring the sections of all into the order of the first."""
    ordered = list(evaluated[:1])
    for other in evaluated[1:]:
        first, theirs = evaluated[0], other.compared_on
        for what, ours in first.compared_on.items():
            if ours != theirs[what]:
                raise RefusedError(
                    f"{first.folder} and {other.folder} were not evaluated on the same {what}",
                    got=f"{len(theirs[what])}: {first_names([str(item) for item in theirs[what] if item not in ours])}",
                    expected=f"{len(ours)}: {first_names([str(item) for item in ours if item not in theirs[what]])}",
                    hint="evaluate all models on one split of one dataset at one resolution",
                )
        counts = other.confusions[[other.sections.index(name) for name in first.sections]]
        ordered.append(replace(other, sections=first.sections, patients=first.patients, confusions=counts))
    return ordered


# --- an evaluation read back from its folder ---


def read_evaluation(folder: Path) -> Evaluated:
    """Read an evaluation back, and refuse one that is incomplete or whose files do not belong together."""
    if not (folder / METRICS).is_file():
        expected = "a folder that `ntrm evaluate --out` wrote"
        raise path_error(f"{folder} holds no evaluation", folder, got=f"no {METRICS}", expected=expected)
    document = read_json(folder / METRICS, hint=AGAIN)
    arrays = read_arrays(folder / CONFUSIONS, hint=AGAIN)
    try:
        model, data = document["model"], document["data"]
        evaluated = Evaluated(
            folder=folder,
            name=str(model.get("name") or model["arch"]),
            traits=_traits({**{key: model.get(key) for key in TRAITS}, "stitching": document.get("stitching")}),
            seed=None if model["seed"] is None else int(model["seed"]),
            data={key: data.get(key) for key in ("fingerprint", "split", "level", "mpp")},
            classes=tuple(map(str, document["classes"])),
            sections=tuple(arrays["names"].astype(str).ravel().tolist()),
            patients=tuple(arrays["patients"].astype(str).ravel().tolist()),
            confusions=arrays["final"],
        )
        written = float(document["pooled"]["pixel_accuracy"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        found = f"{type(error).__name__}: {error}"
        raise DataError(f"{folder / METRICS} cannot be understood", got=found, hint=AGAIN) from error
    _check_counts(evaluated, written)
    return evaluated


def _traits(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested values as one flat table: ``{"options": {"width": 0.5}}`` becomes ``{"width": "0.5"}``."""
    flat: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            inner = prefix if key == "options" else f"{prefix}{key}."
            flat.update(_traits(dict(sorted(value.items())), inner))
        else:
            flat[prefix + key] = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return flat


def _check_counts(evaluated: Evaluated, written: float) -> None:
    """Refuse counts that do not fit sections and classes, or another pixel accuracy than the one ``written``."""
    count, classes, tables = len(set(evaluated.sections)), len(evaluated.classes), evaluated.confusions
    fits = count == len(evaluated.sections) == len(evaluated.patients) and tables.shape == (count, classes, classes)
    if not count or not fits or tables.dtype.kind not in "iu":
        raise DataError(
            f"{evaluated.folder / CONFUSIONS} does not fit its evaluation",
            got=f"{count} sections, {len(evaluated.patients)} patients, {tables.dtype} {tables.shape}",
            expected=f"whole numbers (S, {classes}, {classes}) for S sections of different names",
            hint=AGAIN,
        )
    accuracy = float(pixel_accuracy(tables.sum(axis=0)))
    if not abs(accuracy - written) < 1e-9:
        raise DataError(
            f"{METRICS} and {CONFUSIONS} of {evaluated.folder} are not of one evaluation",
            got=f"pixel accuracy {written} and {accuracy:.6f}",
            expected="the same score of both",
            hint=AGAIN,
        )
