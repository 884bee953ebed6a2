"""One slide from its windows to its maps and to the network's own relations: attention, edge weights, where they are.

Maps are arrays in memory, or mapped from files without a name where a slide is large. Windows are read ahead by threads
while the network works.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ntrm.core.arrays import FULL, Bytes, Floats, new_map
from ntrm.core.labels import IGNORE
from ntrm.core.threads import thread_map
from ntrm.data.tiles import Window
from ntrm.models.base import NetworkGraph
from ntrm.models.predictor import Predictor
from ntrm.models.windows import Graphs, Observe, Rows, Stitching, blended_rows, most_probable, strongest
from ntrm.results.documents import EdgeWindow, Matrix, Network, StrongestWindows
from ntrm.slides.grid import SlideGrid

IN_MEMORY = 1 << 29  # Bytes that the maps of a slide may have together to be kept in memory
KEPT = 10  # Windows that are remembered of each edge of the network's relations
ATTENTION, AREA, NUMBER = range(3)
"""What is remembered of a window: its attention along the edge, the area that receives, its place in the run."""
NO_WINDOW = -1.0  # In place of the attention where there is no window; all attention is above it


@dataclass(frozen=True, eq=False)
class Maps:
    """What the network says about every pixel of a slide; (H, W) bytes, and (K, H, W) of the probabilities."""

    labels: Bytes  # Class indices; 255 for nothing
    confidence: Bytes | None  # Of the label, ``FULL`` for 1; None without a network
    coarse: Bytes | None = None  # The coarse head's labels, where they were asked for
    probabilities: Bytes | None = None  # Of every class, where they were asked for; ``FULL`` for 1

    @classmethod
    def new(cls, height: int, width: int, folder: Path, *, coarse: bool = False, classes: int = 0) -> Maps:
        """Maps that say nothing yet, in ``folder`` where they are large; ``classes`` have their probabilities kept."""
        shape = (height, width)
        place = folder if (2 + coarse + classes) * height * width > IN_MEMORY else None
        return cls(
            new_map(shape, place, IGNORE),
            new_map(shape, place),
            new_map(shape, place, IGNORE) if coarse else None,
            new_map((classes, *shape), place) if classes else None,
        )

    def fill(self, rows: Rows) -> None:
        """Take over what was predicted."""
        highest, labels = strongest(rows.final)
        self.labels[rows.slice] = labels.cpu().numpy()
        if self.confidence is not None:
            self.confidence[rows.slice] = _as_bytes(highest)
        if self.coarse is not None and rows.coarse is not None:
            self.coarse[rows.slice] = most_probable(rows.coarse).cpu().numpy()
        if self.probabilities is not None:
            self.probabilities[:, rows.slice] = _as_bytes(rows.final)


def predict_maps(
    predictor: Predictor,
    grid: SlideGrid,
    maps: Maps,
    *,
    stitching: Stitching,
    windows: Sequence[Window],
    graphs: Graphs | None = None,
    observe: Observe | None = None,
) -> Iterator[int]:
    """Predict a slide into new ``maps``; yields every row of it once it is predicted.

    ``windows`` are some of ``stitching.windows``, in their order; where there is none, the maps stay as they are.
    ``graphs`` and ``observe`` are called as by ``blended_rows``.
    """
    tiles = tiles_ahead(grid, windows, predictor.batch)
    coarse, done = maps.coarse is not None, 0
    for rows in blended_rows(predictor, tiles, grid.width, stitching, coarse=coarse, graphs=graphs, observe=observe):
        maps.fill(rows)
        yield from range(done, rows.slice.stop)
        done = rows.slice.stop
    yield from range(done, grid.height)


def tiles_ahead(grid: SlideGrid, windows: Sequence[Window], batch: int) -> Iterator[tuple[Sequence[Window], Bytes]]:
    """Windows and their tiles (B, S, S, 3), with glass where one exceeds the slide; read ahead by threads."""
    batches = [windows[start : start + batch] for start in range(0, len(windows), batch)]

    def read(batch: Sequence[Window]) -> Bytes:
        # Beyond the slide a grid is white, as glass is.
        return np.stack([grid.read(window.top, window.left, *window.tile_shape) for window in batch])

    # Of two threads; up to one batch more than these are waits for the network.
    return zip(batches, thread_map(read, batches, 2), strict=True)


def _as_bytes(probabilities: Tensor) -> Bytes:
    values: Bytes = (probabilities.clamp(0, 1) * FULL).round().to(torch.uint8).cpu().numpy()
    return values


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
