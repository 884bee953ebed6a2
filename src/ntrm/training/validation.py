"""Validation: the loss of the whole validation part as one batch, and the scores of all its pixels together.

The loss of a set of batches is not the mean of their losses, since each batch weights its classes anew. So the
negative log-likelihoods (nll) of the pixels are summed by class, over batches and processes, and weighted
once at the end.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.metrics.confusion import confusion_tensor
from ntrm.metrics.overlap import overlap
from ntrm.models.base import Segmentation
from ntrm.training.ddp import summed
from ntrm.training.losses import SegmentationLoss, class_counts, dice_of, dice_totals


@dataclass(frozen=True)
class Scores:
    """What a validation found; a score that is not defined is None."""

    loss: float
    final: float
    coarse: float | None
    iou: float | None
    dice: float | None
    accuracy: float | None

    def as_dict(self) -> dict[str, Any]:
        """For logs and provenance."""
        return asdict(self)


class ScoreAccumulator:
    """Sums over validation batches; nothing is read back from the device before ``compute``."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self._nll: list[Tensor] = []
        self._totals: list[Tensor] = []
        self._counts: list[Tensor] = []
        self._confusion: list[Tensor] = []

    def update(self, output: Segmentation, target: Tensor) -> None:
        """Logits (B, K, H, W) and target (B, H, W) of one batch."""
        heads = [output.final] if output.coarse is None else [output.final, output.coarse]
        self._nll.append(torch.stack([self._by_class(logits, target) for logits in heads]))  # (heads, K)
        self._totals.append(dice_totals(output.final, target).detach())  # (2, K)
        self._counts.append(class_counts(target, self.classes))
        self._confusion.append(confusion_tensor(target, output.final.argmax(dim=1), self.classes))

    def _by_class(self, logits: Tensor, target: Tensor) -> Tensor:
        """(K,) −log softmax(logits)[y], summed over the pixels of each class."""
        nll = F.cross_entropy(logits.float(), target.long(), ignore_index=IGNORE, reduction="none")
        # Class by class: adding up at scattered places would go in no fixed order on a GPU.
        return torch.stack([torch.where(target == c, nll, 0.0).sum() for c in range(self.classes)])

    def compute(self, loss: SegmentationLoss, schema: LabelSchema) -> Scores:
        """Scores over all batches of all processes; ``loss`` gives the weights of classes, heads and Dice."""
        counts = summed(torch.stack(self._counts).sum(dim=0))  # (K,)
        nll = summed(_precise(torch.stack(self._nll)).sum(dim=0))  # (heads, K)
        confusion = summed(torch.stack(self._confusion).sum(dim=0))  # (K, K)
        pixels = int(counts.sum())
        if not pixels:
            raise DataError(
                "the validation part has no known pixel",
                got="only ignored pixels",
                hint="give sections with annotated tissue to the split val",
            )
        weights = loss.weights(counts).pow(loss.balance).to(nll)
        parts = (nll @ weights / pixels).tolist()
        final, coarse = parts[0], parts[1] if len(parts) > 1 else None
        if loss.dice:
            totals = summed(_precise(torch.stack(self._totals)).sum(dim=0))
            final += loss.dice * float(dice_of(totals, totals, counts))
        found = overlap(confusion.cpu().numpy(), schema)
        return Scores(
            loss=final + loss.coarse * (coarse or 0.0),
            final=final,
            coarse=coarse,
            iou=_plain(found.macro["iou"]),
            dice=_plain(found.macro["dice"]),
            accuracy=_plain(found.pixel_accuracy),
        )


def _precise(sums: Tensor) -> Tensor:
    return sums if sums.device.type == "mps" else sums.double()  # Apple's devices know no doubles


def _plain(score: float) -> float | None:
    return None if math.isnan(score) else float(score)
