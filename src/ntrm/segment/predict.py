"""One slide from its windows to its maps: arrays in memory, or mapped from files without a name where a slide is large.

Windows are read ahead by threads while the network works.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ntrm.core.arrays import FULL, Bytes, new_map
from ntrm.core.labels import IGNORE
from ntrm.core.threads import thread_map
from ntrm.data.tiles import Window
from ntrm.models.predictor import Predictor
from ntrm.models.windows import Graphs, Observe, Rows, Stitching, blended_rows, most_probable, strongest
from ntrm.slides.grid import SlideGrid

IN_MEMORY = 1 << 29  # Bytes that the maps of a slide may have together to be kept in memory


@dataclass(frozen=True, eq=False)
class Maps:
    """What the network says about every pixel of a slide; (H, W) bytes, and (K, H, W) of the probabilities."""

    labels: Bytes  # Class indices; 255 for nothing
    confidence: Bytes  # Of the label, ``FULL`` for 1
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
        self.labels[rows.slice], self.confidence[rows.slice] = labels.cpu().numpy(), _as_bytes(highest)
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
