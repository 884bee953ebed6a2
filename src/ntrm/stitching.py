"""A section of any size from windows of one size: placed with overlap, predicted, blended, handed out row by row.

At a pixel x covered by the windows w ∈ C(x), each with probabilities p_w and blending weight a_w(x) > 0,

    p(x) = Σ_{w ∈ C(x)} a_w(x) · p_w(x)  /  Σ_{w ∈ C(x)} a_w(x)

The divisor is the sum of the very weights that were added, whichever windows there were. Weights fall smoothly towards
the rim of a window, where a network sees least around a pixel. What a window shows beyond the section is glass: the
network sees it, nothing of it is blended in.

Windows go row by row, so that only one row of windows is held, on the predictor's device, however tall the section.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntrm.data.tiles import GLASS, Window, cut, tile_windows
from ntrm.errors import UsageError, check_number
from ntrm.labels import IGNORE
from ntrm.predictor import Floats, Image, Predictor, check_image

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

    def windows(self, height: int, width: int) -> tuple[Window, ...]:
        """Where the windows lie, row by row."""
        return tile_windows(height, width, size=self.window, overlap=self.overlap)

    def weights(self) -> Tensor:
        """(S, S) blending weights: the product of a raised-cosine ramp over the overlap along each axis."""
        ramp = max(1, min(self.overlap, self.window // 2))
        place = torch.arange(self.window, dtype=torch.float64)
        from_rim = torch.minimum(place, self.window - 1 - place) + 0.5
        rise = torch.sin(math.pi / 2 * (from_rim / ramp).clamp(max=1)) ** 2
        along = LEAST_WEIGHT + (1 - LEAST_WEIGHT) * rise if self.overlap else torch.ones_like(rise)
        return torch.outer(along, along).float()

    def as_dict(self) -> dict[str, int]:
        """For JSON."""
        return {"window": self.window, "overlap": self.overlap}


class Rows(NamedTuple):
    """Finished rows of a section, over its whole width, on the predictor's device."""

    top: int
    final: Tensor
    """(K, rows, W) probabilities; all 0 where no window was."""
    initial: Tensor | None
    """(K, rows, W) of the coarse head, where it was asked for and there is one."""

    @property
    def slice(self) -> slice:
        """The rows of the section."""
        return slice(self.top, self.top + self.final.shape[1])


class Blender:
    """Sums weighted windows in a band of rows and gives rows back once no later window can touch them.

    Windows must come row by row from the top; within a row in any order, and any of them may be left out.
    """

    def __init__(self, channels: int, height: int, width: int, stitching: Stitching, device: torch.device) -> None:
        self.height = height
        self.top = 0
        """First row that has not been given back."""
        self._weights = stitching.weights().to(device)
        rows = min(stitching.window, height)
        self._sum = torch.zeros(channels, rows, width, device=device)
        self._divisor = torch.zeros(rows, width, device=device)

    def add(self, window: Window, values: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Blend in ``values`` (C, S, S) of a window; yields (top, (C, rows, W)) for rows that are finished by this.

        The rows must be taken before the next window comes.
        """
        if window.top < self.top:
            raise UsageError("windows must come row by row", got=window, expected=f"a window from row {self.top} on")
        yield from self.finish(window.top)
        weights = self._weights[: window.height, : window.width]
        place = slice(0, window.height), window.slices[1]
        self._sum[:, *place] += values[:, : window.height, : window.width] * weights
        self._divisor[place] += weights

    def finish(self, stop: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """Rows up to ``stop`` (all that is left if not given), which no later window may touch."""
        stop = self.height if stop is None else stop
        while self.top < stop:
            count = min(stop - self.top, self._divisor.shape[0])
            divisor = self._divisor[:count]
            # Without any window both are 0, and 0 is what stays.
            yield self.top, self._sum[:, :count] / torch.where(divisor > 0, divisor, 1)
            self._advance(count)

    def _advance(self, count: int) -> None:
        kept = self._divisor.shape[0] - count
        for band in (self._sum, self._divisor):
            # Rows move up by less than their number, perhaps: a copy, since source and goal overlap.
            band[..., :kept, :] = band[..., count:, :].clone()
            band[..., kept:, :] = 0
        self.top += count


def blended_rows(
    predictor: Predictor,
    height: int,
    width: int,
    read: Callable[[Window], Image],
    *,
    stitching: Stitching | None = None,
    windows: Sequence[Window] | None = None,
    initial: bool = False,
) -> Iterator[Rows]:
    """Predict a section window by window and yield its finished rows from top to bottom.

    Args:
        predictor: the network; its ``batch`` is how many windows are predicted at a time.
        height: of the section.
        width: of the section.
        read: gives the tile (S, S, 3) under a window, with glass beyond the section.
        stitching: windows of the network's own size with a quarter overlapping, if not given.
        windows: some of ``stitching.windows(height, width)`` in their order, to leave out glass; all if not given.
        initial: also blend what the coarse head says.

    """
    stitching = stitching or Stitching(predictor.config.window)
    todo = stitching.windows(height, width) if windows is None else windows
    classes = predictor.config.classes
    blender: Blender | None = None
    start = 0
    while start < len(todo):
        some = todo[start : start + predictor.batch]
        start += len(some)
        out = predictor.probabilities(np.stack([read(window) for window in some]), initial=initial)
        maps = out.final if out.initial is None else torch.cat([out.final, out.initial], dim=1)  # (B, K or 2K, S, S)
        if blender is None:
            blender = Blender(maps.shape[1], height, width, stitching, predictor.device)
        for window, values in zip(some, maps, strict=True):
            yield from (_split(top, rows, classes) for top, rows in blender.add(window, values))
    blender = blender or Blender(classes, height, width, stitching, predictor.device)
    yield from (_split(top, rows, classes) for top, rows in blender.finish())


def _split(top: int, rows: Tensor, classes: int) -> Rows:
    return Rows(top, rows[:classes], rows[classes:] if len(rows) > classes else None)


@dataclass(frozen=True, eq=False)
class Stitched:
    """What a network says about a whole section."""

    mask: Image
    """(H, W) index of the most probable class; 255 where no window was."""
    confidence: Floats
    """(H, W) probability of that class."""
    entropy: Floats
    """(H, W) entropy of the probabilities over its largest value, log K: 0 certain, 1 no idea."""
    initial_mask: Image | None = None
    """(H, W) of the coarse head, where it was asked for and there is one."""
    probabilities: Floats | None = None
    """(K, H, W), where asked for."""


def stitch(
    predictor: Predictor,
    image: Image,
    *,
    stitching: Stitching | None = None,
    initial: bool = False,
    probabilities: bool = False,
    watch: Callable[[Rows], None] | None = None,
) -> Stitched:
    """Predict a whole section: ``image`` is (H, W, 3) uint8 in memory or a memory map, of any size.

    ``initial`` adds the coarse head's mask, ``probabilities`` the probabilities themselves (4·K bytes a pixel).
    ``watch`` is shown the probabilities while they are on the device, rows by rows: to count what need not leave it.
    """
    check_image(image)
    height, width = image.shape[:2]
    canvas: dict[str, NDArray[Any]] = {}
    rows_of_section = blended_rows(
        predictor,
        height,
        width,
        lambda window: cut(image, window, fill=GLASS),
        stitching=stitching,
        initial=initial,
    )
    for rows in rows_of_section:
        for name, band in _leave_device(rows, probabilities=probabilities).items():
            if name not in canvas:
                canvas[name] = np.empty((*band.shape[:-2], height, width), dtype=band.dtype)
            canvas[name][..., rows.slice, :] = band
        if not np.isfinite(canvas["confidence"][rows.slice]).all():
            raise predictor.broken_network()
        if watch is not None:
            watch(rows)
    return Stitched(**canvas)


def most_probable(probabilities: Tensor) -> Tensor:
    """(K, H, W) → (H, W) uint8 class indices; ignore where all probabilities are 0."""
    highest, chosen = probabilities.max(dim=0)
    return torch.where(highest > 0, chosen, IGNORE).to(torch.uint8)


def normalised_entropy(probabilities: Tensor) -> Tensor:
    """(K, H, W) → (H, W) in [0, 1].

    >>> normalised_entropy(torch.tensor([[[0.5, 1.0]], [[0.5, 0.0]]])).tolist()
    [[1.0, 0.0]]
    """
    largest = math.log(max(len(probabilities), 2))
    entropy: Tensor = torch.special.entr(probabilities).sum(dim=0) / largest
    return entropy.clamp(0, 1)


def _leave_device(rows: Rows, *, probabilities: bool) -> dict[str, NDArray[Any]]:
    """The maps of ``Stitched`` for some rows, as arrays."""
    maps = {
        "mask": most_probable(rows.final),
        "confidence": rows.final.amax(dim=0).clamp(max=1),
        "entropy": normalised_entropy(rows.final),
    }
    if rows.initial is not None:
        maps["initial_mask"] = most_probable(rows.initial)
    if probabilities:
        maps["probabilities"] = rows.final
    return {name: tensor.cpu().numpy() for name, tensor in maps.items()}
