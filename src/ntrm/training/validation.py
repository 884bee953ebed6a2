"""Validation: the loss of the validation split as if it were one batch, and the scores of all its pixels together.

The loss of several batches is not the mean of their losses, since each batch has its own class weights. So the negative
log-likelihoods (nll) of the pixels are summed by class, over batches and processes, and weighted once at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.metrics.confusion import confusion_tensor
from ntrm.metrics.overlap import none_if_nan, overlap
from ntrm.models.base import Segmentation
from ntrm.training.distributed import summed
from ntrm.training.losses import SegmentationLoss, by_pixel, class_counts, dice_of, dice_totals


@dataclass(frozen=True)
class Scores:
    """Scores of a validation; one that is not defined is None."""

    loss: float | None = None
    final: float | None = None
    coarse: float | None = None
    iou: float | None = None
    dice: float | None = None
    accuracy: float | None = None


class ScoreAccumulator:
    """Sums over validation batches; nothing is read back from the device before ``compute``.

    They are added up at once: where small tensors of every batch were kept, the memory of a process on a CPU grew by
    tens of megabytes with each, probably since they lay between large ones that were freed.
    """

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self._sums: tuple[Tensor, ...] = ()

    def update(self, output: Segmentation, target: Tensor) -> None:
        """Logits (B, K, H, W) and target (B, H, W) of one batch."""
        names, sums = target.flatten(), list[Tensor]()
        for logits in [output.final] if output.coarse is None else [output.final, output.coarse]:
            each = F.cross_entropy(by_pixel(logits), names.long(), ignore_index=IGNORE, reduction="none")
            # Class by class: scattered sums have no fixed order on a GPU.
            sums.append(torch.stack([torch.where(names == c, each, 0.0).sum() for c in range(self.classes)]))
        nll = torch.stack(sums).detach()  # (heads, K)
        dice = dice_totals(output.final, target).detach()  # (2, K)
        confusion = confusion_tensor(target, output.final.argmax(dim=1), self.classes)  # (K, K)
        batch = (_precise(nll), _precise(dice), class_counts(target, self.classes), confusion)
        if self._sums:
            for total, more in zip(self._sums, batch, strict=True):
                total.add_(more)
        else:
            self._sums = batch

    def compute(self, loss: SegmentationLoss, schema: LabelSchema) -> Scores:
        """Scores over all batches of all processes; ``loss`` gives the weights of classes, heads and Dice."""
        nll, dice, counts, confusion = map(summed, self._sums)
        pixels = int(counts.sum())
        if not pixels:
            raise DataError(
                "the validation split has no known pixel",
                got="only ignored pixels",
                hint="give sections with annotated tissue to the split val",
            )
        weights, recipe = loss.class_weights(counts).to(nll), loss.recipe
        final, coarse = [*(nll @ weights / pixels).tolist(), None][:2]
        if recipe.dice:
            final += recipe.dice * float(dice_of(dice, dice, counts))
        scores = overlap(confusion.cpu().numpy(), schema)
        return Scores(
            loss=final + recipe.coarse * (coarse or 0.0),
            final=final,
            coarse=coarse,
            iou=none_if_nan(scores.macro["iou"]),
            dice=none_if_nan(scores.macro["dice"]),
            accuracy=none_if_nan(scores.pixel_accuracy),
        )


def _precise(sums: Tensor) -> Tensor:
    return sums if sums.device.type == "mps" else sums.double()  # Apple's devices have no float64
