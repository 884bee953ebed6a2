"""Scores on images made worse on purpose: other stains, blur, compression, brightness. Nothing here is random.

Stains, blur and compression also go beyond what training varies (``Augment.full``: stains by a quarter, blur up to 1.5
pixels, JPEG down to quality 40); brightness stays within it (by a fifth).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ntrm.core.labels import Counts, LabelSchema
from ntrm.data.transforms import compress, gaussian_blur, jitter_stains
from ntrm.metrics.overlap import pooled
from ntrm.models.windows import Image, check_image

BLOCK = 1024
"""Side in pixels of the pieces that are degraded at a time, so that memory is bounded; a multiple of ``HALO``."""

HALO = 16
"""What is seen around a piece: a multiple of JPEG's 16-pixel blocks, and more than the widest blur reaches (8)."""

Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Degradation:
    """One way to make an image worse, at one strength."""

    name: str
    kind: str
    change: Change = field(repr=False, compare=False)
    """(1, 3, h, w) in [0, 1] → the same, depending on no pixel farther than ``HALO`` away."""

    def __call__(self, image: Image, device: torch.device | str = "cpu") -> Image:
        """The degraded section, (H, W, 3) uint8; piece by piece, and the same as in one piece."""
        check_image(image)
        worse = np.empty(image.shape, dtype=np.uint8)
        for top in range(0, image.shape[0], BLOCK):
            for left in range(0, image.shape[1], BLOCK):
                worse[top : top + BLOCK, left : left + BLOCK] = self._piece(image, top, left, device)
        return worse

    def _piece(self, image: Image, top: int, left: int, device: torch.device | str) -> Image:
        above, before = min(top, HALO), min(left, HALO)
        seen = image[top - above : top + BLOCK + HALO, left - before : left + BLOCK + HALO]
        x = torch.from_numpy(np.array(seen)).to(device).permute(2, 0, 1)[None].float() / 255
        changed = (self.change(x)[0].clamp(0, 1) * 255).round().to(torch.uint8)
        inner = changed[:, above : above + BLOCK, before : before + BLOCK]
        piece: Image = inner.permute(1, 2, 0).cpu().numpy()
        return piece


def _stain(haematoxylin: float, eosin: float) -> Change:
    return lambda x: jitter_stains(x, torch.tensor([[haematoxylin, eosin]]), torch.zeros(1, 2))


DEGRADATIONS = (
    Degradation("stain: H +40 %, E −40 %", "stain", _stain(1.4, 0.6)),
    Degradation("stain: H −40 %, E +60 %", "stain", _stain(0.6, 1.6)),
    Degradation("blur: σ 1 px", "blur", lambda x: gaussian_blur(x, torch.tensor([1.0]))),
    Degradation("blur: σ 2 px", "blur", lambda x: gaussian_blur(x, torch.tensor([2.0]))),
    Degradation("JPEG: quality 30", "jpeg", lambda x: compress(x, torch.tensor([30.0]))),
    Degradation("JPEG: quality 10", "jpeg", lambda x: compress(x, torch.tensor([10.0]))),
    Degradation("brightness: −15 %", "brightness", lambda x: (x * 0.85).clamp(0, 1)),
    Degradation("brightness: +15 %", "brightness", lambda x: (x * 1.15).clamp(0, 1)),
)
"""What the table shows; H is haematoxylin, E eosin."""


@dataclass(frozen=True)
class RobustnessRow:
    """Pooled scores under one degradation."""

    name: str
    kind: str
    pixel_accuracy: float | None
    iou: float | None
    dice: float | None
    iou_change: float | None  # Against the images as they are


def robustness_rows(sections: Sequence[Sequence[Counts]], schema: LabelSchema) -> tuple[RobustnessRow, ...]:
    """The table, from the confusion counts of each section: as it is, then under each of ``DEGRADATIONS`` in order."""
    scores = [pooled(counts, schema).as_dict() for counts in zip(*sections, strict=True)]
    kinds = [("as it is", "none"), *((degradation.name, degradation.kind) for degradation in DEGRADATIONS)]
    best = scores[0]["macro"]["iou"]
    rows = []
    for (name, kind), score in zip(kinds, scores, strict=True):
        iou = score["macro"]["iou"]
        change = None if iou is None or best is None else iou - best
        rows.append(RobustnessRow(name, kind, score["pixel_accuracy"], iou, score["macro"]["dice"], change))
    return tuple(rows)
