"""The network's own relations over many windows: attention and edge weights, weighted by area."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntrm.errors import UsageError
from ntrm.predictor import TissueRelations

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NetworkRelations:
    """Means over windows; the first index sends, the second receives."""

    names: tuple[str, ...]
    attention: Floats
    """(K, K) mean over layers; over the windows each weighs by the receiver's area, 0 where there was no edge."""
    edge_weight: Floats
    """(K, K) mean over the windows that have the edge, weighted by the receiver's area; 0 where none has."""
    windows: int


class RelationsMean:
    """Adds up the graphs of windows, one after the other: memory does not grow with their number."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        size = len(names)
        self._attention, self._weight, self._edge_area = (np.zeros((size, size)) for _ in range(3))
        self._area = np.zeros(size)
        self._windows = 0

    def add(self, graph: TissueRelations) -> None:
        """Take one window in."""
        if graph.names != self.names:
            raise UsageError("a window of other classes", got=graph.names, expected=self.names)
        area = np.where(graph.presence, graph.area, 0.0).astype(np.float64)
        joined = area[None] * graph.adjacency
        if len(graph.attention):
            self._attention += graph.attention.mean(axis=0, dtype=np.float64) * area[None]
        self._weight += graph.edge_weights * joined
        self._edge_area += joined
        self._area += area
        self._windows += 1

    def result(self) -> NetworkRelations | None:
        """The means; None before the first window."""
        if not self._windows:
            return None
        area = np.broadcast_to(self._area[None], self._attention.shape)
        return NetworkRelations(
            self.names, _ratio(self._attention, area), _ratio(self._weight, self._edge_area), self._windows
        )


def _ratio(sums: Floats, weights: Floats) -> Floats:
    return np.divide(sums, weights, out=np.zeros_like(sums), where=weights > 0)
