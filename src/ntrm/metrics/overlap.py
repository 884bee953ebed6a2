"""Overlap scores from confusion counts, per tissue and macro, pooled over sections or averaged over them.

With t_c the true and p_c the predicted pixels of a class, and h_c those that are both:

    IoU        h_c / (t_c + p_c − h_c)     Dice   2·h_c / (t_c + p_c)
    precision  h_c / p_c                   recall   h_c / t_c

A score whose denominator is 0 is undefined: NaN in arrays, None in ``as_dict``. Undefined scores are left out of
every mean: a class that is neither there nor predicted is never scored 0 or 1, while one that is only predicted has
an IoU of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Floats
from ntrm.core.errors import DataError
from ntrm.core.labels import Counts, LabelSchema

MEASURES: dict[str, Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], Floats]] = {
    "iou": lambda hits, true, predicted: ratio(hits, true + predicted - hits),
    "dice": lambda hits, true, predicted: ratio(2 * hits, true + predicted),
    "precision": lambda hits, _, predicted: ratio(hits, predicted),
    "recall": lambda hits, true, _: ratio(hits, true),
}
"""Scores that every class has, from its pixels h_c, t_c and p_c."""


@dataclass(frozen=True, eq=False)
class Overlap:
    """Scores of one section, of several pooled, or averaged over sections."""

    schema: LabelSchema
    sections: int
    pixels: Counts  # (K,) true pixels of each class
    pixel_accuracy: float
    per_class: dict[str, Floats]  # (K,) for each of ``MEASURES``
    macro: dict[str, float]  # For each of ``MEASURES``, the mean over the classes where it is defined

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers with class names, ready for JSON; undefined scores are None."""
        classes = {
            name: {"pixels": int(self.pixels[index])}
            | {measure: none_if_nan(scores[index]) for measure, scores in self.per_class.items()}
            for index, name in enumerate(self.schema.names)
        }
        macro = {measure: none_if_nan(score) for measure, score in self.macro.items()}
        return {
            "sections": self.sections,
            "pixels": int(self.pixels.sum()),
            "pixel_accuracy": none_if_nan(self.pixel_accuracy),
            "macro": {**macro, "accuracy": macro["recall"]},
            "classes": classes,
        }


def overlap(confusion: NDArray[np.integer], schema: LabelSchema) -> Overlap:
    """Scores of one table of counts (K, K), ground truth in rows.

    >>> from ntrm.core.labels import Tissue
    >>> pair = LabelSchema((Tissue(0, "A", "", (0, 0, 0)), Tissue(1, "B", "", (9, 9, 9))))
    >>> scores = overlap(np.array([[3, 1], [0, 0]]), pair)
    >>> scores.pixel_accuracy, scores.per_class["iou"].tolist(), scores.macro["recall"]
    (0.75, [0.75, 0.0], 0.75)
    """
    counts = _check_counts(confusion, schema)
    per_class = {measure: class_scores(counts, measure) for measure in MEASURES}
    return Overlap(
        schema=schema,
        sections=1,
        pixels=counts.sum(axis=1),
        pixel_accuracy=float(ratio(np.trace(counts), counts.sum())),
        per_class=per_class,
        macro={measure: float(mean_defined(scores)) for measure, scores in per_class.items()},
    )


def pooled(confusions: Sequence[NDArray[np.integer]], schema: LabelSchema) -> Overlap:
    """Scores of all sections' pixels together: every pixel counts the same."""
    counts = np.sum([_check_counts(table, schema) for table in confusions], axis=0)
    return replace(overlap(counts, schema), sections=len(confusions))


def per_section(confusions: Sequence[NDArray[np.integer]], schema: LabelSchema) -> Overlap:
    """Each section scored by itself, then averaged: every section counts the same, however large.

    A tissue's score is the mean over the sections where it is defined; a macro score is the mean of the sections'
    own macro scores.
    """
    scores = [overlap(table, schema) for table in confusions]
    return Overlap(
        schema=schema,
        sections=len(scores),
        pixels=np.sum([section.pixels for section in scores], axis=0),
        pixel_accuracy=float(mean_defined(np.array([section.pixel_accuracy for section in scores]))),
        per_class={m: mean_defined(np.stack([section.per_class[m] for section in scores])) for m in MEASURES},
        macro={m: float(mean_defined(np.array([section.macro[m] for section in scores]))) for m in MEASURES},
    )


def class_scores(confusions: NDArray[Any], measure: str) -> Floats:
    """One of ``MEASURES`` for each class, (…, K), of one table of counts (K, K) or of a stack (…, K, K)."""
    hits = np.diagonal(confusions, axis1=-2, axis2=-1)
    return MEASURES[measure](hits, confusions.sum(axis=-1), confusions.sum(axis=-2))


def mean_defined(scores: Floats, axis: int = 0) -> Floats:
    """Mean along an axis over what is not NaN; NaN where nothing is.

    >>> mean_defined(np.array([[1.0, np.nan], [0.0, np.nan]])).tolist()
    [0.5, nan]
    """
    defined = ~np.isnan(scores)
    return ratio(np.where(defined, scores, 0.0).sum(axis=axis), defined.sum(axis=axis))


def ratio(numerator: NDArray[Any], denominator: NDArray[Any]) -> Floats:
    """Numerator over denominator; NaN where the denominator is 0."""
    numerator, denominator = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    out = np.full(denominator.shape, np.nan)
    quotient: Floats = np.divide(numerator, denominator, out=out, where=denominator > 0)
    return quotient


def none_if_nan(score: float) -> float | None:
    """A score as JSON has it."""
    return None if np.isnan(score) else float(score)


def _check_counts(confusion: NDArray[np.integer], schema: LabelSchema) -> Counts:
    counts = np.asarray(confusion)
    if counts.shape != (len(schema), len(schema)) or counts.dtype.kind not in "iu" or (counts < 0).any():
        raise DataError(
            "this is no table of confusion counts for these classes",
            got=f"{counts.dtype} {counts.shape}",
            expected=f"whole numbers from 0, {len(schema)} × {len(schema)} for the classes {', '.join(schema.names)}",
            hint="count with ntrm.metrics.confusion and the number of classes of the same label schema",
        )
    return counts.astype(np.int64)
