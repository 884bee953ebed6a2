"""A section of any size from windows of one size: placed with overlap, predicted, blended, handed out row by row.

At a pixel x covered by the windows w ∈ C(x), each with probabilities p_w and blending weight a_w(x) > 0,

    p(x) = Σ_{w ∈ C(x)} a_w(x) · p_w(x)  /  Σ_{w ∈ C(x)} a_w(x)

The divisor is the sum of the very weights that were added, whichever windows there were. Weights fall smoothly towards
the rim of a window, where a network sees least around a pixel. What a window shows beyond the section is glass: the
network sees it, but it is not blended in.

Windows are predicted row by row, from left to right, so that only what can still change is held, on the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntrm.core.arrays import Singles
from ntrm.core.errors import check_number, plain_fields
from ntrm.core.labels import IGNORE
from ntrm.data.tiles import GLASS, Window, cut, tile_windows
from ntrm.inference.blending import Blender, Block
from ntrm.inference.network_runner import Image, NetworkRunner, check_image
from ntrm.models.base import TissueGraph

A_QUARTER = -1
"""Overlap to mean a quarter of the window."""

LEAST_WEIGHT = 1e-3
"""Weight at the very rim of a window, relative to its middle: a section's border is seen by one window only."""


@dataclass(frozen=True)
class Stitching:
    """How windows cover a section.

    >>> Stitching(256)
    Stitching(window=256, overlap=64)
    """

    window: int
    """Side in pixels; the network's ``config.window`` unless a study wants another."""
    overlap: int = A_QUARTER
    """Pixels that neighbours share at least."""

    def __post_init__(self) -> None:
        check_number("window", self.window, 32, 2**15, whole=True)
        if self.overlap == A_QUARTER:
            object.__setattr__(self, "overlap", self.window // 4)
        check_number("overlap of windows", self.overlap, 0, self.window - 1, whole=True)
        plain_fields(self)

    def windows(self, height: int, width: int) -> tuple[Window, ...]:
        """Positions of the windows, row by row."""
        return tile_windows(height, width, size=self.window, overlap=self.overlap)

    def weights(self) -> Tensor:
        """(S, S) blending weights: the product of a raised-cosine ramp over the overlap along each axis."""
        ramp = max(1, min(self.overlap, self.window // 2))
        index = torch.arange(self.window, dtype=torch.float64)
        from_rim = torch.minimum(index, self.window - 1 - index) + 0.5
        rise = torch.sin(math.pi / 2 * (from_rim / ramp).clamp(max=1)) ** 2
        along = LEAST_WEIGHT + (1 - LEAST_WEIGHT) * rise if self.overlap else torch.ones_like(rise)
        return torch.outer(along, along).float()

    def as_dict(self) -> dict[str, int]:
        """For JSON."""
        return {"window": self.window, "overlap": self.overlap}


Observe = Callable[[Sequence[Window], Tensor, Tensor], None]
"""Windows, their pixels (B, S, S, 3) uint8 and their probabilities (B, K, S, S), both on the device."""


class Rows(NamedTuple):
    """Finished rows of a section, over its whole width, on the predictor's device."""

    top: int
    final: Tensor
    """(K, rows, W) probabilities; all 0 where no window was."""
    coarse: Tensor | None
    """(K, rows, W) of the coarse head, where it was asked for and there is one."""

    @property
    def slice(self) -> slice:
        """The rows of the section."""
        return slice(self.top, self.top + self.final.shape[1])


def blended_blocks(
    predictor: NetworkRunner,
    height: int,
    width: int,
    read: Callable[[Sequence[Window]], Image],
    *,
    stitching: Stitching | None = None,
    windows: Sequence[Window] | None = None,
    coarse: bool = False,
    graphs: Callable[[TissueGraph, int], None] | None = None,
    observe: Observe | None = None,
) -> Iterator[Block]:
    """Predict a section window by window; yield its finished blocks row by row.

    Args:
        predictor: the network; its ``batch`` is how many windows are predicted at a time.
        height: of the section.
        width: of the section.
        read: returns the tiles (B, S, S, 3) under windows, with glass beyond the section.
        stitching: default: windows of the network's own size that overlap by a quarter.
        windows: some of ``stitching.windows(height, width)`` in their order, to leave out glass; default: all.
        coarse: also blend the coarse head's probabilities, as further channels.
        graphs: called with the tissue graphs of each batch, on the device, and the number of the first of its windows.
        observe: called with the same windows, their pixels and their probabilities.

    """
    stitching = stitching or Stitching(predictor.config.window)
    todo = stitching.windows(height, width) if windows is None else windows
    tops = sorted({window.top for window in todo})
    blender: Blender | None = None

    def blend(channels: int) -> Blender:
        return Blender(channels, height, width, stitching.weights(), tops, predictor.device)

    for first in range(0, len(todo), predictor.batch):
        batch = todo[first : first + predictor.batch]
        tiles = predictor.on_device(read(batch))
        out = predictor.probabilities(tiles, coarse=coarse, graph=graphs is not None)
        if graphs is not None and out.graph is not None:
            graphs(out.graph, first)
        if observe is not None:
            observe(batch, tiles, out.final)
        maps = out.final if out.coarse is None else torch.cat([out.final, out.coarse], dim=1)  # (B, K or 2K, S, S)
        blender = blender or blend(maps.shape[1])
        for row in _by_row(batch):
            yield from blender.add_all(batch[row], maps[row])
    yield from (blender or blend(predictor.config.classes)).finish()


def _by_row(windows: Sequence[Window]) -> Iterator[slice]:
    """The slice of each row of windows."""
    start = 0
    for _, row in groupby(windows, key=lambda window: window.top):
        stop = start + len([*row])
        yield slice(start, stop)
        start = stop


def blended_rows(
    predictor: NetworkRunner,
    height: int,
    width: int,
    read: Callable[[Window], Image],
    *,
    stitching: Stitching | None = None,
    coarse: bool = False,
    observe: Observe | None = None,
) -> Iterator[Rows]:
    """As ``blended_blocks``, over the whole width at a time: for sections that fit into the memory.

    ``read`` returns the tile (S, S, 3) under a window.
    """
    row: list[Block] = []

    def read_all(batch: Sequence[Window]) -> Image:
        return np.stack([read(window) for window in batch])

    for block in blended_blocks(
        predictor, height, width, read_all, stitching=stitching, coarse=coarse, observe=observe
    ):
        row.append(block)
        if block.left + block.width == width:
            yield _joined(row, predictor.config.classes)
            row = []


def _joined(blocks: Sequence[Block], classes: int) -> Rows:
    """Adjacent blocks as rows."""
    values = [block.values for block in blocks if block.values is not None]
    row = values[0] if len(values) == 1 else torch.cat(values, dim=2)
    return Rows(blocks[0].top, row[:classes], row[classes:] if len(row) > classes else None)


@dataclass(frozen=True, eq=False)
class Stitched:
    """A network's prediction of a whole section."""

    mask: Image
    """(H, W) index of the most probable class."""
    confidence: Singles
    """(H, W) probability of that class."""
    coarse_mask: Image | None = None
    """(H, W) of the coarse head, where it was asked for and there is one."""
    probabilities: Singles | None = None
    """(K, H, W), where asked for."""


def stitch(
    predictor: NetworkRunner,
    image: Image,
    *,
    stitching: Stitching | None = None,
    coarse: bool = False,
    probabilities: bool = False,
    watch: Callable[[Rows], None] | None = None,
    observe: Observe | None = None,
) -> Stitched:
    """Predict a whole section: ``image`` is (H, W, 3) uint8 in memory or a memory map, of any size.

    ``coarse`` adds the coarse head's mask, ``probabilities`` the probabilities themselves (4·K bytes a pixel).
    ``watch`` is called with the probabilities while they are on the device, for counts that can be made there, and
    ``observe`` with every batch of windows.
    """
    check_image(image)
    height, width = image.shape[:2]
    canvas: dict[str, NDArray[Any]] = {}

    def read(window: Window) -> Image:
        return cut(image, window, fill=GLASS)

    for rows in blended_rows(predictor, height, width, read, stitching=stitching, coarse=coarse, observe=observe):
        for name, band in _leave_device(rows, probabilities=probabilities).items():
            if name not in canvas:
                canvas[name] = np.empty((*band.shape[:-2], height, width), dtype=band.dtype)
            canvas[name][..., rows.slice, :] = band
        if not np.isfinite(canvas["confidence"][rows.slice]).all():
            raise predictor.broken_network()
        if watch is not None:
            watch(rows)
    return Stitched(**canvas)


def strongest(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """(K, H, W) → (H, W) the highest probability, and as uint8 the index of its class; ignore where all are 0.

    >>> strongest(torch.tensor([[[0.2, 0.0]], [[0.8, 0.0]]]))[1].tolist()
    [[1, 255]]
    """
    on_cpu = probabilities.device.type == "cpu"
    highest, chosen = _running_maximum(probabilities) if on_cpu else probabilities.max(dim=0)
    return highest, torch.where(highest > 0, chosen, IGNORE).to(torch.uint8)


def most_probable(probabilities: Tensor) -> Tensor:
    """(K, H, W) → (H, W) uint8 class indices; ignore where all probabilities are 0."""
    return strongest(probabilities)[1]


def _running_maximum(values: Tensor) -> tuple[Tensor, Tensor]:
    """``values.max(dim=0)``, the first of equals, in a third of its time on CPUs."""
    highest = values[0].clone()
    chosen = torch.zeros(highest.shape, dtype=torch.uint8)
    for number, value in enumerate(values[1:], start=1):
        # Numbers rise, so that the largest of those that surpassed all before is the last of them.
        surpassed = (value > highest).view(torch.uint8)
        torch.maximum(chosen, surpassed.mul_(number), out=chosen)
        torch.maximum(highest, value, out=highest)
    return highest, chosen


def normalised_entropy(probabilities: Tensor) -> Tensor:
    """(K, H, W) → (H, W) entropy over its largest value, log K: 0 certain, 1 no idea.

    >>> normalised_entropy(torch.tensor([[[0.5, 1.0]], [[0.5, 0.0]]])).tolist()
    [[1.0, 0.0]]
    """
    largest = math.log(max(len(probabilities), 2))
    entropy: Tensor = torch.special.entr(probabilities).sum(dim=0) / largest
    return entropy.clamp(0, 1)


def _leave_device(rows: Rows, *, probabilities: bool) -> dict[str, NDArray[Any]]:
    """The maps of ``Stitched`` for some rows, as arrays."""
    highest, mask = strongest(rows.final)
    maps = {"mask": mask, "confidence": highest.clamp(max=1)}
    if rows.coarse is not None:
        maps["coarse_mask"] = most_probable(rows.coarse)
    if probabilities:
        maps["probabilities"] = rows.final
    return {name: tensor.cpu().numpy() for name, tensor in maps.items()}
