"""The network's own relations over many windows: attention, edge weights, and the windows behind an edge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ntrm.core.arrays import Floats
from ntrm.data.tiles import Window
from ntrm.models.base import NetworkGraph
from ntrm.results.documents import EdgeWindow, Matrix, Network, StrongestWindows

KEPT = 10  # Windows that are remembered of each edge
ATTENTION, AREA, NUMBER = range(3)
"""What is remembered of a window: its attention along the edge, the area that receives, its place in the run."""
NO_WINDOW = -1.0  # In place of the attention where there is no window; all attention is above it


class RelationsMean:
    """Adds up the graphs of windows where they are, on the device: memory does not grow with their number.

    A window that shows nothing but ``background`` (index of a class) is not counted. Of every edge the ``KEPT`` windows
    with the highest attention (mean over the layers) are remembered; of equal ones those where more pixels receive, and
    of these the first. ``edge_weights`` says whether the network trains its edge weights.
    """

    def __init__(self, names: tuple[str, ...], background: int | None = None, *, edge_weights: bool = False) -> None:
        self.names = names
        self._edge_weights = edge_weights
        self._background = background
        self._sums: Tensor | None = None
        self._strongest: Tensor | None = None
        """(3, K·K, KEPT)."""

    def add_graphs(self, graphs: NetworkGraph, first: int) -> None:
        """Take in some windows, of which the first has this number in the run; nothing waits for the device."""
        # Apple's devices know no double precision.
        device = torch.device("cpu") if graphs.area.device.type == "mps" else graphs.area.device
        presence, area, adjacency, _, attention, weights, _ = (values.to(device) for values in graphs)
        counted = presence.any(dim=1)  # (B,)
        if self._background is not None:
            counted = presence.sum(dim=1) > presence[:, self._background]
        edges = adjacency & counted[:, None, None]  # (B, K, K)
        attention = attention.double() * edges[:, None]  # (B, L, K, K)
        terms = (attention, weights.double() * edges, edges, counted)
        sums = torch.cat([term.sum(dim=0).double().flatten() for term in terms])
        self._sums = sums if self._sums is None else self._sums + sums
        self._remember(attention, area.double(), edges, first)

    def _remember(self, attention: Tensor, area: Tensor, edges: Tensor, first: int) -> None:
        """Keep the strongest of what was kept and what is new, which comes later."""
        batch, device = len(area), area.device
        mean = attention.mean(dim=1) if attention.shape[1] else torch.zeros_like(edges, dtype=area.dtype)
        numbers = torch.arange(first, first + batch, dtype=area.dtype, device=device)
        of_window = (torch.where(edges, mean, NO_WINDOW), area[:, None, :], numbers[:, None, None])
        new = torch.stack([values.expand_as(mean).flatten(1).T for values in of_window])  # (3, K·K, B)
        if self._strongest is None:
            self._strongest = new.new_full((*new.shape[:2], KEPT), NO_WINDOW)
        entries = torch.cat([self._strongest, new], dim=2)
        for key in (AREA, ATTENTION):  # the more important one last: a stable order leaves equals as they were
            order = entries[key].sort(dim=1, descending=True, stable=True).indices
            entries = entries.gather(2, order.expand_as(entries))
        self._strongest = entries[..., :KEPT].contiguous()

    def result(self, windows: Sequence[Window]) -> Network | None:
        """The means; None before the first window. ``windows`` are those of the run, by their numbers."""
        if self._sums is None or self._strongest is None or not (count := int(self._sums[-1])):
            return None
        size = len(self.names)
        sums: Floats = self._sums[:-1].cpu().numpy().reshape(-1, size, size)
        edges = sums[-1]
        means = np.divide(sums[:-1], edges, out=np.zeros_like(sums[:-1]), where=edges > 0)
        strongest = self._strongest.cpu().numpy() if len(means) > 1 else np.zeros((3, 0, 0))
        return Network(
            self.names,
            attention=tuple(map(_rows, means[:-1])),
            edge_windows=tuple(map(tuple, edges.astype(np.int64).tolist())),
            edge_weight=_rows(means[-1]) if self._edge_weights else None,
            strongest_windows=tuple(self._edge_windows(strongest, windows)),
            windows=count,
        )

    def _edge_windows(self, strongest: Floats, windows: Sequence[Window]) -> list[StrongestWindows]:
        """By edge; only edges that some window has."""
        pairs = [(sender, receiver) for sender in self.names for receiver in self.names]
        found = []
        for (sender, receiver), entries in zip(pairs, strongest.transpose(1, 2, 0), strict=False):
            kept = [(windows[int(number)], value) for value, _, number in entries if value != NO_WINDOW]
            boxes = tuple(EdgeWindow(w.top, w.left, w.height, w.width, round(float(a), 6)) for w, a in kept)
            if boxes:
                found.append(StrongestWindows(sender, receiver, boxes))
        return found


def _rows(matrix: Floats) -> Matrix:
    return tuple(map(tuple, matrix.round(6).tolist()))
