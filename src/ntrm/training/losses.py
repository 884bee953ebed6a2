"""The loss: cross-entropy weighted by class, of the final logits and, with a smaller weight, of the coarse ones.

Nothing here reads a value back from the device, so that a training step never waits for its own loss.

With several processes the classes are counted over the joined batch of all of them, and the loss of each process is
scaled such that the *mean* over processes is the loss of the joined batch: distributed data parallelism takes the mean
of the gradients. Every process must therefore compute as many losses as the others.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ntrm.core.labels import IGNORE
from ntrm.models.base import Segmentation
from ntrm.training.distributed import summed, world_size
from ntrm.training.recipe import Recipe

RAREST = 1e-3
"""Fraction of pixels below which a class gains no more weight, unless the batch itself is counted: a class that is
nearly never seen would otherwise outweigh all others in the one batch that has it."""

MOMENTUM = 0.99  # Of the running class counts


class Loss(NamedTuple):
    """The loss and its terms, all scalars."""

    total: Tensor  # final + λ·coarse
    final: Tensor  # Of the final prediction: cross-entropy, plus Dice where it has a weight
    coarse: Tensor | None = None  # None for a network without a coarse head


def class_counts(target: Tensor, classes: int) -> Tensor:
    """(K,) int64 pixels of each class in this process."""
    labels = torch.arange(classes, dtype=target.dtype, device=target.device)
    return (target.flatten() == labels.unsqueeze(1)).sum(dim=1)  # (K, B·H·W) → (K,)


def weighted_cross_entropy(logits: Tensor, target: Tensor, weights: Tensor, counts: Tensor) -> Tensor:
    """``(1/P) Σ_n w_{y_n} · −log softmax(logits_n)[y_n]`` over the P pixels that are not ignored; 0 where all are.

    Logits (B, K, H, W) of any precision, target (B, H, W) of whole numbers, weights (K,) and joined counts (K,).
    """
    logits = by_pixel(logits)
    # Summed outside, because torch's own sum adds in no fixed order on a GPU.
    nll = F.cross_entropy(logits, target.flatten().long(), weights.to(logits), ignore_index=IGNORE, reduction="none")
    return nll.sum() * (world_size() / counts.sum().clamp(min=1))


def by_pixel(logits: Tensor) -> Tensor:
    """(B, K, H, W) → (B·H·W, K), in single precision or better: half loses small differences of large logits.

    Logits lie channels last, so that this copies nothing, where softmax along the second axis would.
    """
    return logits.movedim(1, -1).flatten(0, 2).to(torch.promote_types(logits.dtype, torch.float32))


# --- soft Dice: how little predicted and true areas of each class overlap ---
# Unlike cross-entropy it does not grow with the number of a class's pixels, and false positives cost as much as misses.


def dice_totals(logits: Tensor, target: Tensor) -> Tensor:
    """(2, K): for each class its probability summed over its own pixels, and over all pixels that are not ignored.

    Logits (B, K, H, W) of any precision, target (B, H, W). Totals add up over processes.
    """
    probabilities = by_pixel(logits).softmax(dim=1)
    labels = torch.arange(logits.shape[1], dtype=target.dtype, device=target.device)
    target = target.flatten().unsqueeze(1)
    # Selected rather than multiplied: the backward pass then keeps masks of one byte, and the probabilities once.
    overlap = torch.where(target == labels, probabilities, 0.0).sum(dim=0)
    area = torch.where(target != IGNORE, probabilities, 0.0).sum(dim=0)
    return torch.stack((overlap, area))


def dice_of(own: Tensor, joined: Tensor, counts: Tensor, processes: int = 1) -> Tensor:
    """``1 − 2·I_c / S_c``, mean over the classes that have a pixel; 0 where no class has one.

    ``I_c`` is the probability of c on its own pixels, ``S_c`` that on all pixels plus the number of pixels of c.
    ``own`` are this process's ``dice_totals``, ``joined`` those of all processes together, without gradient, and
    ``counts`` (K,) the joined pixels of each class.

    The value is the joined batch's in every process. It is no sum over processes, so the gradient cannot come from the
    value: it is that of the joined loss with respect to this process's pixels times ``processes``, such that the mean
    over processes is the gradient of the joined loss.

    >>> totals = dice_totals(torch.zeros(1, 2, 1, 4), torch.tensor([[[0, 0, 0, 1]]]))
    >>> dice_of(totals, totals.detach(), torch.tensor([3, 1]))
    tensor(0.5333)
    """
    present = counts > 0
    number = present.sum().clamp(min=1)
    overlap, area = joined
    size = (area + counts).clamp(min=1)  # S_c is at least 1 for every class that is present
    value = torch.where(present, 1 - 2 * overlap / size, 0.0).sum() / number
    # d(I/S) = dI/S − I·dS/S²; the counts in S are constant.
    change = own[0] / size - own[1] * (overlap / size**2)
    slope = torch.where(present, -2 * processes * change, 0.0).sum() / number
    return value + (slope - slope.detach())


class ClassWeights(nn.Module):
    """(K,) joined counts of a batch → (K,) weights of the classes.

    ``batch`` (the paper's): ``w_c = P / (K · count_c)``, 0 for a class without a pixel. ``running``: from an
    exponential average of the counts over training batches, steadier than one batch's.
    """

    shares: Tensor

    def __init__(self, weighting: str, classes: int) -> None:
        super().__init__()
        self.weighting = weighting
        # The average starts at one pixel of each class: equal weights until something is seen, and next to nothing
        # after. Only the ratio of its entries matters, so that a batch without a known pixel changes no weight.
        self.register_buffer("shares", torch.ones(classes), persistent=weighting != "batch")

    def forward(self, counts: Tensor) -> Tensor:
        """Weights for a batch; the average changes in training only."""
        if self.weighting == "batch":
            weights = counts.sum() / (len(counts) * counts.clamp(min=1))
            return torch.where(counts > 0, weights, 0.0)
        if self.training:
            self.shares.lerp_(counts.to(self.shares), 1 - MOMENTUM)
        # w_c = 1 / (K · fraction_c)
        return 1 / (len(self.shares) * (self.shares / self.shares.sum()).clamp(min=RAREST))


class SegmentationLoss(nn.Module):
    """Loss of a network's output: ``CE_w(final) + λ·CE_w(coarse)``; without a coarse head the first alone.

    The recipe's ``weighting`` is ``batch`` (the paper) or ``running``. Weights are taken to the power ``balance``: 1
    makes every class count the same, which finds rare classes but predicts them too often; 0 makes every pixel count
    the same. ``coarse`` is λ, ``dice`` the weight of the soft Dice loss of the final logits. The state of this module
    belongs in checkpoints.
    """

    def __init__(self, classes: int, recipe: Recipe) -> None:
        super().__init__()
        self.recipe = recipe
        self.weights = ClassWeights(recipe.weighting, classes)

    def class_weights(self, counts: Tensor) -> Tensor:
        """(K,) joined counts → (K,) weights, balanced."""
        weights: Tensor = self.weights(counts).pow(self.recipe.balance)
        return weights

    def forward(self, output: Segmentation, target: Tensor) -> Loss:
        """Logits (B, K, H, W) and target (B, H, W) → the loss and its terms."""
        counts = summed(class_counts(target, output.final.shape[1]))
        weights = self.class_weights(counts)
        final = weighted_cross_entropy(output.final, target, weights, counts)
        if self.recipe.dice:
            own = dice_totals(output.final, target)
            final = final + self.recipe.dice * dice_of(own, summed(own.detach()), counts, world_size())
        if output.coarse is None:
            return Loss(final, final)
        coarse = weighted_cross_entropy(output.coarse, target, weights, counts)
        return Loss(final + self.recipe.coarse * coarse, final, coarse)
