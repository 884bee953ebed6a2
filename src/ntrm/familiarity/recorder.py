"""What a slide looks like, recorded while it is predicted, and the verdict once its mask is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntrm.core.arrays import Floats
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.data.tiles import Window
from ntrm.familiarity.cells import BLOCK, CELL, SUMS, ClassStatistics, block_sums, cell_statistics
from ntrm.familiarity.judge import LEAST_CELLS, Unit, judge_pieces, look_p_values
from ntrm.familiarity.reference import Reference
from ntrm.regions.graph import TissueGraph
from ntrm.results.familiarity import SlideFamiliarity
from ntrm.slides.pieces import NO_PIECE, PieceMap


class BlockRecorder:
    """Sums over the blocks of every window, on the device: a kilobyte or two a window."""

    def __init__(self, reference: Reference, schema: LabelSchema, device: torch.device) -> None:
        numbers = reference.numbers
        tables = (numbers.class_means, numbers.class_whitening)
        self._known = ClassStatistics(*(torch.from_numpy(table).float().to(device) for table in tables))
        self._background = schema.background_index
        self._windows: list[Tensor] = []

    def __call__(self, windows: Sequence[Window], pixels: Tensor, probabilities: Tensor) -> None:
        """Take windows in, in their order; nothing waits for the device."""
        cells = cell_statistics(pixels, probabilities, self._background)
        self._windows.append(block_sums(cells, self._known))

    def recorded(self) -> Tensor:
        """(windows, m, m, ``SUMS``) so far."""
        return torch.cat(self._windows) if self._windows else torch.zeros(0, 1, 1, SUMS)


@dataclass(frozen=True, eq=False)
class SlideBlocks:
    """The blocks of all windows of a slide."""

    boxes: NDArray[np.int64]  # (N, 4) top, left, height and width in pixels of the mask
    sums: Floats  # (N, SUMS)

    @classmethod
    def of(cls, windows: Sequence[Window], recorded: Tensor, window_px: int) -> SlideBlocks:
        """From what was recorded of ``windows``, each ``window_px`` pixels wide."""
        sums = recorded.cpu().double().numpy()
        count, along = sums.shape[:2]
        side = window_px if along == 1 else BLOCK * CELL
        corners = np.array([[window.top, window.left] for window in windows], dtype=np.int64).reshape(-1, 2)
        offsets = np.stack(np.meshgrid(*[np.arange(along) * side] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
        tops = (corners[:count, None] + offsets[None]).reshape(-1, 2)
        boxes = np.concatenate([tops, np.full_like(tops, side)], axis=1)
        return cls(boxes, sums.reshape(-1, sums.shape[-1]))

    def pieces(self, pieces: PieceMap, resolution: Resolution) -> NDArray[np.int64]:
        """(N,) the piece on which most pixels of a block lie, as far as they lie on any; 0 where none does."""
        numbers, scale = pieces.numbers, np.array([resolution.y / pieces.mpp.y, resolution.x / pieces.mpp.x])
        found = np.zeros(len(self.boxes), dtype=np.int64)
        seen = np.flatnonzero(self.sums[:, 0] > 0)
        first = np.floor(self.boxes[seen, :2] * scale).astype(np.int64)
        last = np.ceil((self.boxes[seen, :2] + self.boxes[seen, 2:]) * scale).astype(np.int64)
        for index, (top, left), (bottom, right) in zip(seen.tolist(), first.tolist(), last.tolist(), strict=True):
            counts = np.bincount(numbers[top:bottom, left:right].ravel(), minlength=1)
            counts[0] = 0
            found[index] = counts.argmax()
        return found


def judge_slide(
    blocks: SlideBlocks,
    pieces: PieceMap,
    graphs: Mapping[int, TissueGraph],
    reference: Reference,
    schema: LabelSchema,
    resolution: Resolution,
) -> SlideFamiliarity:
    """The verdict on a slide, on its pieces, and where it is unlike.

    ``graphs`` are by the numbers of the pieces; on a slide without any, that of what lies there under ``NO_PIECE``.
    """
    of_piece = blocks.pieces(pieces, resolution)
    units = {number: Unit.of(blocks.sums[of_piece == number].sum(axis=0), graph) for number, graph in graphs.items()}
    slide, verdicts = judge_pieces(units, reference, schema)
    verdicts.pop(NO_PIECE, None)
    cell_mm2 = CELL * CELL * resolution.pixel_area_um2 / 1e6
    enough = blocks.sums[:, 0] >= LEAST_CELLS
    p_values = look_p_values(blocks.sums[enough], cell_mm2, reference)
    windows = tuple((*box, p) for box, p in zip(blocks.boxes[enough].tolist(), p_values.tolist(), strict=True))
    return SlideFamiliarity(slide, verdicts, windows)
