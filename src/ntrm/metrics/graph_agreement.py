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
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ntrm.core.counts import IndexMask, boundary_counts
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.metrics.boundary import check_masks, harmonic_mean

MIN_LENGTH_UM = 50.0
"""Shorter contacts, up to seven pixel sides at 10x, are touches in passing, not relations.

In real skin masks at 10x they are 5 % of the contacts in a tile, and 0.1 % of the boundary.
"""


@dataclass(frozen=True)
class Interface:
    """One pair of tissues: its boundary in ground truth and prediction, over all sections counted."""

    tissues: tuple[str, str]
    true_um: float
    predicted_um: float
    error_um: float  # Sum over the sections of the absolute difference
    found: int  # Sections that have the edge in ground truth and prediction
    missed: int  # Sections that have it in the ground truth only
    invented: int  # Sections that have it in the prediction only

    @property
    def relative_error(self) -> float | None:
        """Length error over true length; None where the ground truth has no such boundary."""
        return self.error_um / self.true_um if self.true_um else None

    def as_dict(self) -> dict[str, Any]:
        """The interface as a JSON document."""
        return {**asdict(self), "tissues": list(self.tissues), "relative_error": self.relative_error}


@dataclass(frozen=True)
class GraphAgreement:
    """Every interface that occurs in ground truth or prediction of one section or, added up, of many."""

    schema: LabelSchema
    interfaces: tuple[Interface, ...]

    @classmethod
    def total(cls, sections: Sequence[GraphAgreement]) -> GraphAgreement:
        """Sections together: edges are counted and errors summed section by section, so that they cannot cancel."""
        schema = sections[0].schema
        by_pair: dict[tuple[str, str], list[Interface]] = {}
        for interface in (interface for section in sections for interface in section.interfaces):
            by_pair.setdefault(interface.tissues, []).append(interface)
        order = sorted(by_pair, key=lambda pair: (schema.index(pair[0]), schema.index(pair[1])))
        summed = ("true_um", "predicted_um", "error_um", "found", "missed", "invented")
        sums = {pair: [sum(getattr(one, name) for one in by_pair[pair]) for name in summed] for pair in order}
        return cls(schema, tuple(Interface(pair, *values) for pair, values in sums.items()))

    @property
    def precision(self) -> float | None:
        """Fraction of the predicted edges that are true; None where none was predicted."""
        found, _, invented = self._edge_counts
        return found / (found + invented) if found + invented else None

    @property
    def recall(self) -> float | None:
        """Fraction of the true edges that were predicted; None where there is none."""
        found, missed, _ = self._edge_counts
        return found / (found + missed) if found + missed else None

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall; None where neither graph has an edge."""
        return harmonic_mean(self.precision, self.recall)

    @property
    def relative_error(self) -> float | None:
        """All length errors over all true lengths; None where the ground truth has no boundary."""
        true_um = sum(interface.true_um for interface in self.interfaces)
        return sum(interface.error_um for interface in self.interfaces) / true_um if true_um else None

    def as_dict(self) -> dict[str, Any]:
        """Scores and interfaces as a JSON document."""
        return {
            "min_length_um": MIN_LENGTH_UM,
            "adjacency_precision": self.precision,
            "adjacency_recall": self.recall,
            "adjacency_f1": self.f1,
            "length_relative_error": self.relative_error,
            "interfaces": [interface.as_dict() for interface in self.interfaces],
        }

    @cached_property
    def _edge_counts(self) -> tuple[int, int, int]:
        counts = ((interface.found, interface.missed, interface.invented) for interface in self.interfaces)
        found, missed, invented = map(sum, zip((0, 0, 0), *counts, strict=True))
        return found, missed, invented


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
    true, predicted = (boundary_counts(mask, len(schema), resolution.x, resolution.y) for mask in (truth, known))
    interfaces = []
    for i, j in np.argwhere(np.triu(true + predicted)).tolist():
        true_um, predicted_um = float(true[i, j]), float(predicted[i, j])
        there, named = true_um > MIN_LENGTH_UM, predicted_um > MIN_LENGTH_UM
        edges = (int(there and named), int(there and not named), int(named and not there))
        tissues = (schema.names[i], schema.names[j])
        interfaces.append(Interface(tissues, true_um, predicted_um, abs(predicted_um - true_um), *edges))
    return GraphAgreement(schema, tuple(interfaces))
