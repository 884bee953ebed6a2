"""Does a prediction keep the relations of tissues? Agreement of the predicted with the true section graph.

The *section graph* of a mask has the classes present as nodes, the background among them: where tissue meets it lies
the skin's surface or a cut margin. Two nodes are joined where their common boundary is longer than a stated minimum.
That boundary's length is the sum of the pixel sides between 4-neighbours of the two classes: ``mpp.y`` for two
pixels side by side, ``mpp.x`` for one above the other. (Pixel sides overstate a slanting line by up to √2, in truth
and prediction alike.) Pixels that the truth ignores take no part on either side.

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
from numpy.typing import NDArray

from ntrm.core.errors import UsageError, check_number
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.data.stats import pixel_counts
from ntrm.metrics.boundary import check_masks, harmonic_mean

MIN_LENGTH_UM = 50.0
"""Shorter contacts, up to seven pixel sides at 10x, are touches in passing, not relations.

In real skin masks at 10x they are 5 % of the contacts in a tile, and 0.1 % of the boundary.
"""

IndexMask = NDArray[np.integer[Any]]
Lengths = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SectionGraph:
    """Tissues of a section with their areas, and the lengths along which they meet."""

    schema: LabelSchema
    areas_um2: NDArray[np.float64]
    """Area per class: (K,)."""
    lengths_um: Lengths
    """Boundary length per pair of classes: (K, K), symmetric, empty diagonal."""
    min_length_um: float = MIN_LENGTH_UM

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Names of the classes present."""
        return tuple(name for name, area in zip(self.schema.names, self.areas_um2, strict=True) if area > 0)

    @property
    def adjacency(self) -> NDArray[np.bool_]:
        """Whether two classes are joined: (K, K)."""
        return self.lengths_um > self.min_length_um

    @cached_property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """Pairs of names that are joined, in index order."""
        names = self.schema.names
        return tuple((names[i], names[j]) for i, j in np.argwhere(np.triu(self.adjacency)))

    def as_dict(self) -> dict[str, Any]:
        """Nodes with areas and edges with lengths as a JSON document."""
        index = self.schema.index
        return {
            "min_length_um": self.min_length_um,
            "nodes": [{"name": name, "area_um2": float(self.areas_um2[index(name)])} for name in self.nodes],
            "edges": [
                {"tissues": [one, other], "length_um": float(self.lengths_um[index(one), index(other)])}
                for one, other in self.edges
            ],
        }


@dataclass(frozen=True)
class Interface:
    """One pair of tissues: the boundary it has in truth and in the prediction, over all sections counted."""

    tissues: tuple[str, str]
    true_um: float
    predicted_um: float
    error_um: float
    """Sum over the sections of the absolute difference."""
    found: int
    """Sections whose graph has the edge in truth and prediction."""
    missed: int
    """Sections whose graph has it in truth only."""
    invented: int
    """Sections whose graph has it in the prediction only."""

    @property
    def relative_error(self) -> float | None:
        """Length error over true length; None where the truth has no such boundary."""
        return self.error_um / self.true_um if self.true_um else None

    def as_dict(self) -> dict[str, Any]:
        """The interface as a JSON document."""
        return {**asdict(self), "tissues": list(self.tissues), "relative_error": self.relative_error}


@dataclass(frozen=True)
class GraphAgreement:
    """Every interface that occurs in truth or prediction of one section or, added up, of many."""

    schema: LabelSchema
    interfaces: tuple[Interface, ...]
    min_length_um: float = MIN_LENGTH_UM

    @classmethod
    def total(cls, parts: Sequence[GraphAgreement]) -> GraphAgreement:
        """Sections together: edges are counted and errors summed section by section, so that they cannot cancel."""
        kinds = {(part.schema.fingerprint, part.min_length_um) for part in parts}
        if len(kinds) != 1:
            raise UsageError(
                "section graphs that cannot be added up",
                got=f"{len(parts)} sections of {len(kinds)} kinds",
                expected="at least one section, and one schema and one minimum length for all",
            )
        schema = parts[0].schema
        by_pair: dict[tuple[str, str], list[Interface]] = {}
        for interface in (interface for part in parts for interface in part.interfaces):
            by_pair.setdefault(interface.tissues, []).append(interface)
        order = sorted(by_pair, key=lambda pair: (schema.index(pair[0]), schema.index(pair[1])))
        return cls(schema, tuple(_sum(by_pair[pair]) for pair in order), parts[0].min_length_um)

    @property
    def precision(self) -> float | None:
        """Share of the predicted edges that are true; None where none was predicted."""
        found, _, invented = self._edge_counts
        return found / (found + invented) if found + invented else None

    @property
    def recall(self) -> float | None:
        """Share of the true edges that were predicted; None where there is none."""
        found, missed, _ = self._edge_counts
        return found / (found + missed) if found + missed else None

    @property
    def f1(self) -> float | None:
        """Harmonic mean of precision and recall; None where neither graph has an edge."""
        return harmonic_mean(self.precision, self.recall)

    @property
    def relative_error(self) -> float | None:
        """All length errors over all true lengths; None where the truth has no boundary."""
        true_um = sum(interface.true_um for interface in self.interfaces)
        return sum(interface.error_um for interface in self.interfaces) / true_um if true_um else None

    def as_dict(self) -> dict[str, Any]:
        """Scores and interfaces as a JSON document."""
        return {
            "min_length_um": self.min_length_um,
            "adjacency_precision": self.precision,
            "adjacency_recall": self.recall,
            "adjacency_f1": self.f1,
            "length_relative_error": self.relative_error,
            "interfaces": [interface.as_dict() for interface in self.interfaces],
        }

    @cached_property
    def _edge_counts(self) -> tuple[int, int, int]:
        found, missed, invented = (
            sum(getattr(interface, kind) for interface in self.interfaces) for kind in ("found", "missed", "invented")
        )
        return found, missed, invented


def interface_lengths(mask: IndexMask, classes: int, resolution: Resolution) -> Lengths:
    """Boundary length in µm of each pair of classes: (K, K), symmetric, ignore left out.

    >>> interface_lengths(np.array([[0, 0, 1], [0, 1, 255]]), 2, Resolution(x=2, y=5)).tolist()
    [[0.0, 12.0], [12.0, 0.0]]
    """
    one_way = np.zeros(classes * classes)
    sides = ((mask[:, :-1], mask[:, 1:], resolution.y), (mask[:-1], mask[1:], resolution.x))
    for here, there, side_um in sides:
        border = (here != there) & (here < classes) & (there < classes)
        code = here[border].astype(np.int64) * classes + there[border]
        one_way += np.bincount(code, minlength=classes * classes) * side_um
    lengths = one_way.reshape(classes, classes)
    return lengths + lengths.T


def section_graph(
    mask: IndexMask, schema: LabelSchema, resolution: Resolution, *, min_length_um: float = MIN_LENGTH_UM
) -> SectionGraph:
    """The graph of tissues of one mask.

    >>> from ntrm.core.labels import SKIN
    >>> section_graph(np.array([[0, 5], [0, 5]]), SKIN, Resolution(40, 40)).edges
    (('EPI', 'PAP'),)
    """
    check_number("minimum length of an interface in µm", min_length_um, 0, 1e9)
    return SectionGraph(
        schema=schema,
        areas_um2=pixel_counts(mask, len(schema))[:-1].astype(np.float64) * resolution.pixel_area_um2,
        lengths_um=interface_lengths(mask, len(schema), resolution),
        min_length_um=min_length_um,
    )


def graph_agreement(
    truth: IndexMask,
    prediction: IndexMask,
    schema: LabelSchema,
    resolution: Resolution,
    *,
    min_length_um: float = MIN_LENGTH_UM,
) -> GraphAgreement:
    """Compare the section graphs of two masks of one section.

    >>> from ntrm.core.labels import SKIN
    >>> truth, prediction = np.array([[7, 0, 5]]), np.array([[7, 0, 3]])
    >>> agreement = graph_agreement(truth, prediction, SKIN, Resolution(60, 60))
    >>> agreement.precision, agreement.recall, agreement.relative_error
    (0.5, 0.5, 1.0)
    """
    check_masks(truth, prediction, schema)
    seen = np.where(truth == IGNORE, IGNORE, prediction)
    graphs = [section_graph(mask, schema, resolution, min_length_um=min_length_um) for mask in (truth, seen)]
    return compare_graphs(*graphs)


def compare_graphs(truth: SectionGraph, predicted: SectionGraph) -> GraphAgreement:
    """Agreement of two section graphs of one schema and one minimum length."""
    if truth.schema.names != predicted.schema.names or truth.min_length_um != predicted.min_length_um:
        raise UsageError(
            "section graphs of two kinds",
            got=f"{predicted.schema.names}, {predicted.min_length_um:g} µm",
            expected=f"{truth.schema.names}, {truth.min_length_um:g} µm",
        )
    pairs = np.argwhere(np.triu(truth.lengths_um + predicted.lengths_um))
    interfaces = tuple(_interface(truth, predicted, int(i), int(j)) for i, j in pairs)
    return GraphAgreement(truth.schema, interfaces, truth.min_length_um)


def _interface(truth: SectionGraph, predicted: SectionGraph, i: int, j: int) -> Interface:
    true_um, predicted_um = float(truth.lengths_um[i, j]), float(predicted.lengths_um[i, j])
    is_true, is_predicted = true_um > truth.min_length_um, predicted_um > predicted.min_length_um
    return Interface(
        tissues=(truth.schema.names[i], truth.schema.names[j]),
        true_um=true_um,
        predicted_um=predicted_um,
        error_um=abs(predicted_um - true_um),
        found=int(is_true and is_predicted),
        missed=int(is_true and not is_predicted),
        invented=int(is_predicted and not is_true),
    )


def _sum(parts: Sequence[Interface]) -> Interface:
    return Interface(
        tissues=parts[0].tissues,
        true_um=sum(part.true_um for part in parts),
        predicted_um=sum(part.predicted_um for part in parts),
        error_um=sum(part.error_um for part in parts),
        found=sum(part.found for part in parts),
        missed=sum(part.missed for part in parts),
        invented=sum(part.invented for part in parts),
    )
