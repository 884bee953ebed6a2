"""Does a prediction keep the relations of tissues? Agreement of the predicted with the true section graph.

The *section graph* of a mask has the classes present as nodes, with the background: where tissue meets it lies the
skin's surface or a cut margin. An edge joins two nodes whose common boundary is longer than ``MIN_LENGTH_UM``. The
length of that boundary is the sum of the pixel sides between 4-neighbours of the two classes: ``mpp.y`` for two pixels
side by side, ``mpp.x`` for one above the other. (Pixel sides overstate a slanting line by up to √2, in ground truth and
prediction alike.) Ignored pixels of the ground truth are left out of both.

*Adjacency* precision, recall and F1 compare the edges of two graphs. The *length error* of an interface is the absolute
difference of predicted and true length in µm, its relative error that difference over the true length. The overall
relative error is the sum of all length errors over the sum of all true lengths: each interface weighs by its true
length, and an invented one counts in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Floats
from ntrm.core.labels import IGNORE, Counts, IndexMask, LabelSchema, boundary_counts
from ntrm.core.mpp import Resolution
from ntrm.metrics.boundary import check_masks, harmonic_mean

MIN_LENGTH_UM = 50.0
"""Shorter contacts, up to seven pixel sides at 10x, are touches in passing, not relations.

In real skin masks at 10x they are 5 % of the contacts in a tile, and 0.1 % of the boundary.
"""


@dataclass(frozen=True, eq=False)
class GraphAgreement:
    """The interfaces of one section or, added up, of many. All arrays are (K, K), with the smaller index first."""

    schema: LabelSchema
    true_um: Floats
    predicted_um: Floats
    error_um: Floats  # Sums over the sections of the absolute difference
    found: Counts  # Sections that have the edge in ground truth and prediction
    missed: Counts  # Sections that have it in the ground truth only
    invented: Counts  # Sections that have it in the prediction only

    @classmethod
    def total(cls, sections: Sequence[GraphAgreement]) -> GraphAgreement:
        """Sections together: edges are counted and errors summed section by section, so that they cannot cancel."""
        names = [field.name for field in fields(cls)[1:]]
        sums = (sum(getattr(section, name) for section in sections) for name in names)
        return cls(sections[0].schema, *sums)

    @property
    def precision(self) -> float | None:
        """Fraction of the predicted edges that are true; None where none was predicted."""
        return _fraction(self.found, self.found + self.invented)

    @property
    def recall(self) -> float | None:
        """Fraction of the true edges that were predicted; None where there is none."""
        return _fraction(self.found, self.found + self.missed)

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall; None where neither graph has an edge."""
        return harmonic_mean(self.precision, self.recall)

    @property
    def relative_error(self) -> float | None:
        """All length errors over all true lengths; None where the ground truth has no boundary."""
        return _fraction(self.error_um, self.true_um)

    def as_dict(self) -> dict[str, Any]:
        """Scores as a JSON document, and the numbers of every interface in ground truth or prediction."""
        counted = [field.name for field in fields(self)[1:]]
        interfaces = []
        for at in zip(*np.nonzero(self.true_um + self.predicted_um), strict=True):
            numbers = {name: getattr(self, name)[at].item() for name in counted}
            error = _fraction(self.error_um[at], self.true_um[at])
            tissues = [self.schema.names[index] for index in at]
            interfaces.append({"tissues": tissues, **numbers, "relative_error": error})
        return {
            "min_length_um": MIN_LENGTH_UM,
            "adjacency_precision": self.precision,
            "adjacency_recall": self.recall,
            "adjacency_f1": self.f1,
            "length_relative_error": self.relative_error,
            "interfaces": interfaces,
        }


def _fraction(part: NDArray[Any], whole: NDArray[Any]) -> float | None:
    """The sum of one over that of the other."""
    total = sum(whole.ravel().tolist())
    return sum(part.ravel().tolist()) / total if total else None


def graph_agreement(
    truth: IndexMask, prediction: IndexMask, schema: LabelSchema, resolution: Resolution
) -> GraphAgreement:
    """Compare the section graphs of two masks of one section.

    >>> from ntrm.core.labels import SKIN
    >>> truth, prediction = np.array([[7, 0, 5]]), np.array([[7, 0, 3]])
    >>> agreement = graph_agreement(truth, prediction, SKIN, Resolution(60, 60))
    >>> agreement.precision, agreement.recall, agreement.relative_error
    (0.5, 0.5, 1.0)
    """
    check_masks(truth, prediction, schema)
    known = np.where(truth == IGNORE, IGNORE, prediction)
    true, predicted = (
        np.triu(boundary_counts(mask, len(schema), resolution.x, resolution.y)) for mask in (truth, known)
    )
    there, named = true > MIN_LENGTH_UM, predicted > MIN_LENGTH_UM
    edges = ((there & named), (there & ~named), (named & ~there))
    return GraphAgreement(schema, true, predicted, abs(predicted - true), *(kind.astype(np.int64) for kind in edges))
