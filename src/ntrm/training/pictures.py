"""Learning curves and example predictions of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ntrm.data.tensors import TileDataset
from ntrm.training.log import LogRow

EXAMPLES = 6


def choose_examples(tiles: TileDataset, count: int = EXAMPLES) -> list[int]:
    """Windows with as many tissues as possible, each from another section as long as there are others."""
    classes = len(tiles.schema)
    first: list[tuple[int, int]] = []
    best: dict[str, tuple[int, int]] = {}
    for index, (case, section, window) in enumerate(tiles.places):
        known = np.bincount(np.asarray(section.mask[window.slices]).ravel(), minlength=classes)[:classes]
        found = (-int(np.count_nonzero(known)), index)
        best[case.name] = min(found, best.get(case.name, found))
        first.append(found)
    leading = sorted(best.values())[:count]
    rest = [found for found in sorted(first) if found not in leading]
    return [index for _, index in [*leading, *rest][:count]]


def draw_curves(rows: Sequence[LogRow], path: Path) -> None:
    """Write ``curves.png``."""
    from ntrm.report.training_figures import curves_figure

    curves_figure(rows, path)


def draw_examples(predict: Callable[[Tensor], Tensor], tiles: TileDataset, indices: Sequence[int], path: Path) -> None:
    """Write ``examples.png``; ``predict`` takes bytes (B, 3, S, S) and returns masks (B, S, S)."""
    from ntrm.report.training_figures import Example, examples_figure

    chosen = [tiles[index] for index in indices]
    masks = predict(torch.stack([tile.image for tile in chosen])).numpy()
    examples = [
        Example(tiles.places[index].case.name, tile.image.permute(1, 2, 0).numpy(), tile.mask.numpy(), mask)
        for index, tile, mask in zip(indices, chosen, masks, strict=True)
    ]
    examples_figure(examples, tiles.schema, path)
