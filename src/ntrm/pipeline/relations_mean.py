"""The network's own relations over many windows: attention and edge weights, weighted by area."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntrm.analysis.graph import NetworkRelations
from ntrm.core.errors import UsageError
from ntrm.inference.predictor import TissueRelations
from ntrm.models.base import TissueGraph

Floats = NDArray[np.float64]


class RelationsMean:
    """Adds up the graphs of windows where they are, on the device: memory does not grow with their number.

    A window that shows nothing but ``background`` (index of a class) is not counted.
    """

    def __init__(self, names: tuple[str, ...], background: int | None = None) -> None:
        self.names = names
        self._tissues = torch.tensor([index != background for index in range(len(names))])
        self._sums: Tensor | None = None

    def add(self, graph: TissueRelations) -> None:
        """Take one window in."""
        if graph.names != self.names:
            raise UsageError("a window of other classes", got=graph.names, expected=self.names)
        arrays = (getattr(graph, name) for name in TissueGraph._fields)
        self.add_graphs(TissueGraph(*(torch.from_numpy(np.asarray(array))[None] for array in arrays)))

    def add_graphs(self, graphs: TissueGraph) -> None:
        """Take several windows in; nothing waits for the device."""
        # Apple's devices know no double precision.
        device = torch.device("cpu") if graphs.area.device.type == "mps" else graphs.area.device
        presence, area, adjacency, _, attention, weights, _ = (values.to(device) for values in graphs)
        counted = (presence & self._tissues.to(device)).any(dim=1)  # (B,)
        area = torch.where(presence & counted[:, None], area, 0).double()[:, None]  # (B, 1, K)
        joined = area * adjacency  # (B, K, K)
        mean = attention.double().mean(dim=1) if attention.shape[1] else torch.zeros_like(joined)
        terms = (mean * area, weights * joined, joined, area, counted)
        sums = torch.cat([term.sum(dim=0).double().flatten() for term in terms])
        self._sums = sums if self._sums is None else self._sums.to(device) + sums

    def state(self) -> Tensor:
        """The sums so far, to go on from later; on the device."""
        size = len(self.names)
        return torch.zeros(3 * size**2 + size + 1, dtype=torch.float64) if self._sums is None else self._sums.clone()

    def restore(self, state: Tensor) -> None:
        """Go on from what ``state`` gave."""
        self._sums = state.clone()

    def result(self) -> NetworkRelations | None:
        """The means; None before the first window."""
        sums: Floats = self.state().cpu().numpy()
        size = len(self.names)
        attention, weight, edge_area = sums[: 3 * size**2].reshape(3, size, size)
        windows = int(sums[-1])
        if not windows:
            return None
        area = np.broadcast_to(sums[3 * size**2 : -1], attention.shape)
        return NetworkRelations(self.names, _ratio(attention, area), _ratio(weight, edge_area), windows)


def _ratio(sums: Floats, weights: Floats) -> Floats:
    return np.divide(sums, weights, out=np.zeros_like(sums), where=weights > 0)
