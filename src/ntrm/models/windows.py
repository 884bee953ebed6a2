"""A section of any size from windows of one size: placed with overlap, predicted, blended, handed out row by row.

At a pixel x covered by the windows w ∈ C(x), each with probabilities p_w and blending weight a_w(x) > 0,

    p(x) = Σ_{w ∈ C(x)} a_w(x) · p_w(x)  /  Σ_{w ∈ C(x)} a_w(x)

Weights fall smoothly towards the rim of a window, where a network sees least around a pixel. What a window shows beyond
the section is glass: the network sees it, but it is not blended in. Only rows that can still change are held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntrm.core.arrays import Bytes, Singles
from ntrm.core.errors import UsageError, check_number, plain_fields
from ntrm.core.labels import IGNORE
from ntrm.data.tiles import GLASS, Window, cut, tile_windows
from ntrm.models.base import NetworkGraph

if TYPE_CHECKING:
    from ntrm.models.predictor import Predictor

A_QUARTER = -1  # Overlap to mean a quarter of the window

LEAST_WEIGHT = 1e-3
"""Weight at the very rim of a window, relative to its middle: a section's border is seen by one window only."""


@dataclass(frozen=True)
class Stitching:
    """How windows cover a section.

    >>> Stitching(256)
    Stitching(window=256, overlap=64)
    """

    window: int  # Side in pixels; the network's ``config.window`` unless a study wants another.
    overlap: int = A_QUARTER  # Pixels that neighbours share at least

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
        """The fields as a JSON document."""
        return {"window": self.window, "overlap": self.overlap}


Image = Bytes  # (H, W, 3) RGB, or the mask of one
Graphs = Callable[[NetworkGraph, int], None]
"""The tissue graphs of some windows, on the device, and the number of the first of them."""
Observe = Callable[[Sequence[Window], Tensor, Tensor], None]
"""Windows, their pixels (B, S, S, 3) uint8 and their probabilities (B, K, S, S), both on the device."""


class Rows(NamedTuple):
    """Finished rows of a section, over its whole width, on the predictor's device."""

    top: int
    final: Tensor  # (K, rows, W) probabilities; all 0 where no window was
    coarse: Tensor | None  # (K, rows, W) of the coarse head, where it was asked for and there is one

    @property
    def slice(self) -> slice:
        """The rows of the section."""
        return slice(self.top, self.top + self.final.shape[1])


def blended_rows(
    predictor: Predictor,
    tiles: Iterable[tuple[Sequence[Window], Image]],
    width: int,
    stitching: Stitching,
    *,
    coarse: bool = False,
    graphs: Graphs | None = None,
    observe: Observe | None = None,
) -> Iterator[Rows]:
    """Predict a section of ``width`` window by window; yield its finished rows. Values that are not finite are refused.

    ``tiles`` are windows, some of ``stitching.windows(height, width)`` in their order, with their pixels (B, S, S, 3).
    ``graphs`` and ``observe`` are called with every batch.
    """
    classes, weights = predictor.config.classes, stitching.weights().to(predictor.device)

    def predicted() -> Iterator[tuple[Sequence[Window], Tensor]]:
        first = 0
        for windows, images in tiles:
            pixels = predictor.on_device(images)
            out = predictor.probabilities(pixels, coarse=coarse, graph=graphs is not None)
            if graphs is not None and out.graph is not None:
                graphs(out.graph, first)
            if observe is not None:
                observe(windows, pixels, out.final)
            yield windows, out.final if out.coarse is None else torch.cat([out.final, out.coarse], dim=1)
            first += len(windows)

    for top, values in blended(predicted(), weights, width):
        if not bool(torch.isfinite(values[:classes].sum())):
            raise predictor.broken_network()
        yield Rows(top, values[:classes], values[classes:] if len(values) > classes else None)


def blended(
    batches: Iterable[tuple[Sequence[Window], Tensor]], weights: Tensor, width: int
) -> Iterator[tuple[int, Tensor]]:
    """Blend windows, which come row by row, with their values (B, C, S, S); yields finished rows (C, rows, W)."""
    side = len(weights)
    top, height, sums = 0, 0, torch.empty(0)
    for windows, values in batches:
        for window, value in zip(windows, values, strict=True):
            if not height:
                sums, top = value.new_zeros(len(value) + 1, side, width), window.top
            elif window.top != top:
                ready = min(window.top - top, height)
                yield top, _divided(sums[:, :ready])
                sums = torch.cat([sums[:, ready:], torch.zeros_like(sums[:, :ready])], dim=1)
                top = window.top
            height, inside = window.height, (..., slice(window.height), slice(window.width))
            place = sums[:, : window.height, window.left : window.left + window.width]
            # Not in one step with the sum: a fused one may round differently elsewhere.
            place[:-1] += value[inside] * weights[inside]
            place[-1] += weights[inside]
    if height:
        yield top, _divided(sums[:, :height])


def _divided(sums: Tensor) -> Tensor:
    """Without any window both sum and divisor are 0, and 0 is what stays."""
    return sums[:-1] / torch.where(sums[-1] > 0, sums[-1], 1)


def check_image(image: object) -> None:
    """Refuse what is no (H, W, 3) RGB array of bytes."""
    if not isinstance(image, np.ndarray):
        raise UsageError(
            "not an image",
            got=f"{image.dtype} tensor" if isinstance(image, Tensor) else type(image).__name__,
            expected="a uint8 array (H, W, 3), a uint8 tensor (3, H, W), a Pillow image, a path, or a list of these",
        )
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
        raise UsageError(
            "not an RGB image",
            got=f"{image.dtype} of shape {image.shape}",
            expected="uint8 of shape (H, W, 3), at least one pixel",
            hint="convert it to 8-bit RGB: repeat grey three times, scale floats to 0 … 255",
        )


def image_tiles(image: Image, windows: Sequence[Window], batch: int) -> Iterator[tuple[Sequence[Window], Image]]:
    """Windows of an image in memory with their tiles."""
    for start in range(0, len(windows), batch):
        chunk = windows[start : start + batch]
        yield chunk, np.stack([cut(image, window, fill=GLASS) for window in chunk])


@dataclass(frozen=True, eq=False)
class Stitched:
    """A network's prediction of a whole section; the coarse head's where it was asked for and there is one."""

    mask: Image  # (H, W) index of the most probable class
    confidence: Singles  # (H, W) probability of that class
    coarse_mask: Image | None = None
    probabilities: Singles | None = None  # (K, H, W), where asked for
    coarse: Singles | None = None  # (K, H, W), with them


def stitch(
    predictor: Predictor,
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
    ``watch`` is called with the rows while they are on the device, ``observe`` with every batch of windows.
    """
    check_image(image)
    height, width = image.shape[:2]
    stitching = stitching or Stitching(predictor.config.window)
    tiles = image_tiles(image, stitching.windows(height, width), predictor.batch)
    maps: dict[str, NDArray[Any]] = {}
    for rows in blended_rows(predictor, tiles, width, stitching, coarse=coarse, observe=observe):
        highest, mask = strongest(rows.final)
        found = {"mask": mask, "confidence": highest.clamp(max=1)}
        found |= {"probabilities": rows.final} if probabilities else {}
        if rows.coarse is not None:
            found |= {"coarse_mask": most_probable(rows.coarse)} | ({"coarse": rows.coarse} if probabilities else {})
        for name, tensor in found.items():
            values = tensor.cpu().numpy()
            whole = maps.setdefault(name, np.empty((*values.shape[:-2], height, width), dtype=values.dtype))
            whole[..., rows.slice, :] = values
        if watch is not None:
            watch(rows)
    return Stitched(**maps)


def strongest(probabilities: Tensor) -> tuple[Tensor, Tensor]:
    """(K, H, W) → (H, W) the highest probability, and as uint8 the index of its class; ignore where all are 0.

    >>> strongest(torch.tensor([[[0.2, 0.0]], [[0.8, 0.0]]]))[1].tolist()
    [[1, 255]]
    """
    highest, chosen = probabilities.max(dim=0)
    return highest, torch.where(highest > 0, chosen, IGNORE).to(torch.uint8)


def most_probable(probabilities: Tensor) -> Tensor:
    """(K, H, W) → (H, W) uint8 class indices; ignore where all probabilities are 0."""
    return strongest(probabilities)[1]
