"""The passes over a slide before it is predicted: sums over its windows, kept on disk as they grow.

The whole slide is one section, all its pieces together, as a picture is in training and evaluation. Windows are too
large to tell neighbouring pieces apart (1.7 mm at 6.7 µm/px, against gaps from 0.35 mm on), and a window that sees two
could be told about one of them only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ntrm.core.io import remove_partials
from ntrm.core.progress import SILENT, Progress
from ntrm.data.tiles import Window
from ntrm.gathering import Context, Gathered, one_pass
from ntrm.inference.mask_store import fingerprint
from ntrm.inference.predictor import Predictor
from ntrm.inference.window_checkpoint import Checkpoint, Checkpoints
from ntrm.inference.wsi_inference import PixelGrid, reading_ahead
from ntrm.models.section.sums import SectionSums

FOLDER = "pass-{}"
SHAPE = "shape"
"""R and K of the tables of pairs, of which there may be none."""


def gather_slide(
    predictor: Predictor,
    grid: PixelGrid,
    windows: Sequence[Window],
    folder: Path,
    plan: Any,
    progress: Progress = SILENT,
) -> Context | None:
    """Go over ``windows`` as often as the network wants; None for one that wants no pass, or without windows.

    What a killed run had added up is taken from ``folder``, if it was made by the same ``plan``; it ends with the same
    sums, to the last bit.
    """
    context: list[SectionSums] = []
    for number in range(predictor.passes if windows else 0):
        kept = _Kept(folder / FOLDER.format(number), fingerprint([plan, number, len(windows)]))
        last = kept.load(len(windows), predictor.device)
        if last.windows < len(windows):
            todo = windows[last.windows :]
            with reading_ahead(grid, todo, 2 * predictor.batch) as read:
                steps = one_pass(predictor, windows, read, context, last)
                for last in progress.track(steps, -(-len(todo) // predictor.batch), f"pass {number + 1}"):
                    kept.save(last, whole=last.windows == len(windows))
        if last.sums is not None:
            context.append(predictor.finished(last.sums))
    return context or None


class _Kept:
    """The sums of one pass on disk."""

    def __init__(self, folder: Path, plan: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        remove_partials(folder)
        self._checkpoints = Checkpoints(folder, plan)

    def load(self, windows: int, device: torch.device) -> Gathered:
        found = self._checkpoints.load(windows)
        return Gathered(None, 0) if found is None else Gathered(_sums(found.arrays, device), found.first)

    def save(self, gathered: Gathered, *, whole: bool) -> None:
        if gathered.sums is not None and (self._checkpoints.due() or whole):
            # The number of windows stands for that of rows: the latest is the one with most.
            self._checkpoints.save(Checkpoint(gathered.windows, gathered.windows, _arrays(gathered.sums)))


def _arrays(sums: SectionSums) -> dict[str, NDArray[Any]]:
    features, weight, pairs = (part.cpu().numpy() for part in sums)
    # A number more, since there may be no table of pairs, and an array that is kept is not empty.
    flat = np.append(pairs.ravel(), pairs.dtype.type(0))
    return {"features": features, "weight": weight, "pairs": flat, SHAPE: np.array(pairs.shape[1:3], dtype=np.float64)}


def _sums(arrays: Mapping[str, NDArray[Any]], device: torch.device) -> SectionSums:
    tables, count = (int(number) for number in arrays[SHAPE])
    pairs = arrays["pairs"][:-1].reshape(1, tables, count, count)
    return SectionSums(*(torch.from_numpy(part).to(device) for part in (arrays["features"], arrays["weight"], pairs)))
