"""Overlap scores from confusion counts, per tissue and macro, pooled over sections or averaged over them.

With t_c the true and p_c the predicted pixels of a class, and h_c those that are both:

    IoU        h_c / (t_c + p_c − h_c)     Dice   2·h_c / (t_c + p_c)
    precision  h_c / p_c                   recall   h_c / t_c

A score whose denominator is 0 is undefined: NaN in arrays, None in ``as_dict``. Undefined scores are left out of
every mean; so a class that is neither there nor predicted is never scored 0 or 1, while one that is predicted where
it is not has an IoU of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError
from ntrm.core.labels import LabelSchema
from ntrm.metrics.confusion import Counts

Floats = NDArray[np.float64]

MEASURES = ("iou", "dice", "precision", "recall")
"""Scores that every class has."""


@dataclass(frozen=True, eq=False)
class Overlap:
    """Scores of one section, of several pooled, or averaged over sections."""

    schema: LabelSchema
    sections: int
    pixels: Counts
    """(K,) true pixels of each class."""
    pixel_accuracy: float
    per_class: dict[str, Floats]
    """(K,) for each of ``MEASURES``."""
    macro: dict[str, float]
    """For each of ``MEASURES``, the mean over the classes where it is defined."""

    @property
    def macro_accuracy(self) -> float:
        """Mean over classes of the share of their pixels that is found: the macro recall."""
        return self.macro["recall"]

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers with class names, ready for JSON; undefined scores are None."""
        classes = {
            name: {
                "pixels": int(self.pixels[index]),
                **{measure: _plain(self.per_class[measure][index]) for measure in MEASURES},
            }
            for index, name in enumerate(self.schema.names)
        }
        macro = {measure: _plain(self.macro[measure]) for measure in MEASURES}
        return {
            "sections": self.sections,
            "pixels": int(self.pixels.sum()),
            "pixel_accuracy": _plain(self.pixel_accuracy),
            "macro": {**macro, "accuracy": macro["recall"]},
            "classes": classes,
        }


def overlap(confusion: NDArray[np.integer], schema: LabelSchema) -> Overlap:
    """Scores of one table of counts (K, K), truth in rows.

    >>> from ntrm.core.labels import Tissue
    >>> pair = LabelSchema((Tissue(0, "A", "", (0, 0, 0)), Tissue(1, "B", "", (9, 9, 9))))
    >>> scores = overlap(np.array([[3, 1], [0, 0]]), pair)
    >>> scores.pixel_accuracy, scores.per_class["iou"].tolist(), scores.macro["recall"]
    (0.75, [0.75, 0.0], 0.75)
    """
    counts = _check_counts(confusion, schema)
    hits, true, predicted = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    per_class = {
        "iou": _ratio(hits, true + predicted - hits),
        "dice": _ratio(2 * hits, true + predicted),
        "precision": _ratio(hits, predicted),
        "recall": _ratio(hits, true),
    }
    return Overlap(
        schema=schema,
        sections=1,
        pixels=true,
        pixel_accuracy=float(_ratio(hits.sum(), true.sum())),
        per_class=per_class,
        macro={measure: float(mean_defined(scores)) for measure, scores in per_class.items()},
    )


def pooled(confusions: Sequence[NDArray[np.integer]], schema: LabelSchema) -> Overlap:
    """Scores of all sections' pixels together: every pixel counts the same, whichever section it is from."""
    counts = sum((_check_counts(each, schema) for each in _some(confusions)), np.zeros((len(schema),) * 2, np.int64))
    return replace(overlap(counts, schema), sections=len(confusions))


def per_section(confusions: Sequence[NDArray[np.integer]], schema: LabelSchema) -> Overlap:
    """Each section scored by itself, then averaged: every section counts the same, however large.

    A tissue's score is the mean over the sections where it is defined; a macro score is the mean of the sections'
    own macro scores.
    """
    scores = [overlap(each, schema) for each in _some(confusions)]
    return Overlap(
        schema=schema,
        sections=len(scores),
        pixels=np.sum([each.pixels for each in scores], axis=0),
        pixel_accuracy=float(mean_defined(np.array([each.pixel_accuracy for each in scores]))),
        per_class={m: mean_defined(np.stack([each.per_class[m] for each in scores])) for m in MEASURES},
        macro={m: float(mean_defined(np.array([each.macro[m] for each in scores]))) for m in MEASURES},
    )


def mean_defined(scores: Floats) -> Floats:
    """Mean along the first axis over what is not NaN; NaN where nothing is.

    >>> mean_defined(np.array([[1.0, np.nan], [0.0, np.nan]])).tolist()
    [0.5, nan]
    """
    defined = ~np.isnan(scores)
    return _ratio(np.where(defined, scores, 0.0).sum(axis=0), defined.sum(axis=0))


def _ratio(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    """Part over whole, NaN where the whole is 0."""
    part, whole = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    ratio: Floats = np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)
    return ratio


def _plain(score: float) -> float | None:
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


def _some(confusions: Sequence[NDArray[np.integer]]) -> Sequence[NDArray[np.integer]]:
    if len(confusions) == 0:
        raise DataError("nothing to score", got="no section", expected="the counts of at least one section")
    return confusions
