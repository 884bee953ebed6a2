"""The loss: cross-entropy weighted by class, of the final logits and, less, of the coarse ones.

Nothing here reads a value back from the device, so that a training step never waits for its own loss.

Under several processes the classes are counted over the joined batch of all of them, and the loss of each process is
scaled such that the *mean* over processes is the loss of the joined batch: the mean is what distributed data
parallelism takes of gradients. Every process must therefore compute as many losses as the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ntrm.core.errors import UsageError, check_number, choices_error
from ntrm.core.labels import IGNORE
from ntrm.models.base import Segmentation
from ntrm.training.ddp import summed, world_size

COARSE = 0.4
"""Weight λ of the coarse head's cross-entropy."""

RAREST = 1e-3
"""Share of pixels below which a class gains no more weight, where shares are not those of the very batch: a class
that is nearly never seen would otherwise outweigh all others in the one batch that has it."""


class Loss(NamedTuple):
    """The loss and its parts, all scalars."""

    total: Tensor
    """final + λ·coarse."""
    final: Tensor
    """Of the final prediction: cross-entropy, and Dice's where it has a weight."""
    coarse: Tensor | None = None
    """None for a network without a coarse head."""


def weighted_cross_entropy(
    logits: Tensor, target: Tensor, *, frequencies: Tensor | None = None, ignore: int = IGNORE
) -> Tensor:
    """Loss: ``(1/P) Σ_n w_{y_n} · −log softmax(logits_n)[y_n]`` over the P pixels that are not ignored.

    ``w_c = P / (K · count_c)``, 0 for a class without a pixel; with ``frequencies`` (K shares of pixels) instead
    ``w_c = 1 / (K · frequency_c)``. Logits (B, K, H, W) of any precision, target (B, H, W) of whole numbers. Where
    every pixel is ignored, loss and gradient are 0.

    >>> weighted_cross_entropy(torch.zeros(1, 4, 1, 2), torch.zeros(1, 1, 2, dtype=torch.uint8))
    tensor(0.3466)
    """
    counts = summed(class_counts(target, logits.shape[1], ignore))
    weights = batch_weights(counts) if frequencies is None else share_weights(frequencies)
    return cross_entropy_of(logits, target, weights, counts, ignore)


def class_counts(target: Tensor, classes: int, ignore: int = IGNORE) -> Tensor:
    """(K,) int64 pixels of each class in this process."""
    labels = torch.arange(classes, dtype=target.dtype, device=target.device)
    counts = (target.flatten() == labels.unsqueeze(1)).sum(dim=1)  # (K, B·H·W) → (K,)
    return torch.where(labels == ignore, 0, counts)


def batch_weights(counts: Tensor) -> Tensor:
    """``w_c = P / (K · count_c)``, 0 for a class without a pixel."""
    weights = counts.sum() / (len(counts) * counts.clamp(min=1))
    return torch.where(counts > 0, weights, 0.0)


def share_weights(shares: Tensor) -> Tensor:
    """``w_c = 1 / (K · share_c)``, no share taken as less than ``RAREST``."""
    return 1 / (len(shares) * shares.clamp(min=RAREST))


def cross_entropy_of(logits: Tensor, target: Tensor, weights: Tensor, counts: Tensor, ignore: int = IGNORE) -> Tensor:
    """``(1/P) Σ_n w_{y_n} · −log softmax(logits_n)[y_n]`` with given weights and (joined) class counts."""
    _check(logits, target)
    # Half precision loses small differences of large logits; what comes in better than float32 stays so.
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    # Summed outside, because torch's own sum over an image adds in no fixed order on a GPU.
    nll = F.cross_entropy(logits, target.long(), weights.to(logits), ignore_index=ignore, reduction="none")
    return nll.sum() * (world_size() / counts.sum().clamp(min=1))


# --- soft Dice: how little predicted and true areas of each class overlap ---
# Unlike cross-entropy it does not grow with the number of a class's pixels, and it charges what is wrongly called by a
# class's name as much as what is missed.


def dice_totals(logits: Tensor, target: Tensor, ignore: int = IGNORE) -> Tensor:
    """(2, K): of each class, the probability on its own pixels and that on all pixels that are not ignored.

    Logits (B, K, H, W) of any precision, target (B, H, W). Totals add up over processes.
    """
    shares = logits.softmax(dim=1, dtype=torch.promote_types(logits.dtype, torch.float32))
    labels = torch.arange(logits.shape[1], dtype=target.dtype, device=target.device).view(1, -1, 1, 1)
    target = target.unsqueeze(1)
    # Chosen rather than multiplied: the backward pass then keeps masks of one byte, and `shares` once.
    overlap = torch.where(target == labels, shares, 0.0).sum(dim=(0, 2, 3))
    area = torch.where(target != ignore, shares, 0.0).sum(dim=(0, 2, 3))
    return torch.stack((overlap, area))


def dice_of(own: Tensor, joined: Tensor, counts: Tensor, processes: int = 1) -> Tensor:
    """``1 − 2·I_c / S_c``, mean over the classes that have a pixel; 0 where no class has one.

    ``I_c`` is the probability of c on its pixels, ``S_c`` that on all pixels and the pixels of c together. ``own`` are
    this process's ``dice_totals``, ``joined`` those of all processes together, without gradient, and ``counts`` (K,)
    the joined pixels of each class.

    The value is the joined batch's in every process. It is no sum over processes, so that the gradient cannot come
    from the value: it is that of the joined loss with respect to this process's pixels times ``processes``, such that
    the mean over processes is the gradient of the joined loss.

    >>> totals = dice_totals(torch.zeros(1, 2, 1, 4), torch.tensor([[[0, 0, 0, 1]]]))
    >>> dice_of(totals, totals.detach(), torch.tensor([3, 1]))
    tensor(0.5333)
    """
    there = counts > 0
    number = there.sum().clamp(min=1)
    overlap, area = joined
    whole = (area + counts).clamp(min=1)  # at least 1 for every class that is there
    value = torch.where(there, 1 - 2 * overlap / whole, 0.0).sum() / number
    # d(I/S) = dI/S − I·dS/S²; the counts in S are constant.
    change = own[0] / whole - own[1] * (overlap / whole**2)
    slope = torch.where(there, -2 * processes * change, 0.0).sum() / number
    return value + (slope - slope.detach())


# --- class weights ---


class BatchWeights(nn.Module):
    """Weights from the batch itself: the paper's letter."""

    def forward(self, counts: Tensor) -> Tensor:
        """(K,) joined counts of the batch → (K,) weights."""
        return batch_weights(counts)


class RunningWeights(nn.Module):
    """Weights from an exponential average of class counts over training batches, steadier than one batch's.

    The average starts at one pixel of each class: equal weights until something is seen, and next to nothing after.
    Only the ratio of its entries matters, so that a batch without a known pixel changes no weight.
    """

    average: Tensor

    def __init__(self, classes: int, momentum: float = 0.99) -> None:
        super().__init__()
        check_number("momentum of the class frequencies", momentum, 0, 0.9999)
        self.momentum = momentum
        self.register_buffer("average", torch.ones(classes))

    def forward(self, counts: Tensor) -> Tensor:
        """(K,) joined counts of the batch → (K,) weights; the batch is learned from in training only."""
        if self.training:
            self.average.lerp_(counts.to(self.average), 1 - self.momentum)
        return share_weights(self.average / self.average.sum())


class DatasetWeights(nn.Module):
    """Weights from the dataset's class frequencies, the same for every batch."""

    shares: Tensor

    def __init__(self, frequencies: Sequence[float]) -> None:
        super().__init__()
        shares = torch.as_tensor(frequencies, dtype=torch.float32)
        self.register_buffer("shares", shares / shares.sum())

    def forward(self, counts: Tensor) -> Tensor:
        """(K,) weights, whatever the batch holds."""
        return share_weights(self.shares)


WEIGHTINGS: dict[str, Callable[[int, Sequence[float] | None], nn.Module]] = {
    "batch": lambda _classes, _frequencies: BatchWeights(),
    "running": lambda classes, _frequencies: RunningWeights(classes),
    "dataset": lambda classes, frequencies: DatasetWeights(_checked(frequencies, classes)),
}
"""Where class weights come from, by name."""


# --- the loss of a network's output ---


class SegmentationLoss(nn.Module):
    """Loss of a network's output: ``CE_w(final) + λ·CE_w(coarse)``, λ = 0.4; without a coarse head the first alone.

    ``weighting`` is ``batch`` (the paper), ``running`` or ``dataset``; the last needs the ``frequencies`` of the
    classes, as shares or as pixel counts. Weights are taken to the power ``balance``: 1 makes every class count alike,
    which finds rare ones at the price of calling too much by their name; 0 makes every pixel count alike. ``dice``
    weighs the soft Dice loss of the final logits. Its state belongs into checkpoints.
    """

    def __init__(
        self,
        classes: int,
        *,
        weighting: str = "batch",
        frequencies: Sequence[float] | None = None,
        balance: float = 1.0,
        coarse: float = COARSE,
        dice: float = 0.0,
        ignore: int = IGNORE,
    ) -> None:
        super().__init__()
        check_number("number of classes", classes, 1, IGNORE, whole=True)
        check_number("balance of the classes", balance, 0, 1)
        check_number("weight of the Dice loss", dice, 0, 100)
        check_number("weight of the coarse head", coarse, 0, 100)
        if weighting not in WEIGHTINGS:
            raise choices_error("unknown class weighting", weighting, WEIGHTINGS)
        self.classes = classes
        self.balance = balance
        self.coarse = coarse
        self.dice = dice
        self.ignore = ignore
        self.weights = WEIGHTINGS[weighting](classes, frequencies)

    def forward(self, output: Segmentation, target: Tensor) -> Loss:
        """Logits (B, K, H, W) and target (B, H, W) → the loss and its parts."""
        counts = summed(class_counts(target, self.classes, self.ignore))
        weights = self.weights(counts).pow(self.balance)
        final = cross_entropy_of(output.final, target, weights, counts, self.ignore)
        if self.dice:
            final = final + self._dice(output.final, target, counts)
        if output.coarse is None:
            return Loss(final, final)
        coarse = cross_entropy_of(output.coarse, target, weights, counts, self.ignore)
        return Loss(final + self.coarse * coarse, final, coarse)

    def _dice(self, logits: Tensor, target: Tensor, counts: Tensor) -> Tensor:
        own = dice_totals(logits, target, self.ignore)
        return self.dice * dice_of(own, summed(own.detach()), counts, world_size())


def _checked(frequencies: Sequence[float] | None, classes: int) -> Sequence[float]:
    given = [] if frequencies is None else [float(each) for each in frequencies]
    if len(given) != classes or not all(0 <= each < float("inf") for each in given) or sum(given) == 0:
        raise UsageError(
            "weighting by dataset needs the frequency of each class",
            got=frequencies,
            expected=f"{classes} numbers from 0, not all of them 0",
            hint="count the pixels of the training split, or weight by batch",
        )
    return given


def _check(logits: Tensor, target: Tensor) -> None:
    fits = logits.ndim == 4 and target.shape == (logits.shape[0], *logits.shape[2:])
    if not fits or target.is_floating_point() or not logits.is_floating_point():
        raise UsageError(
            "logits and target do not belong together",
            got=f"logits {logits.dtype} {tuple(logits.shape)}, target {target.dtype} {tuple(target.shape)}",
            expected="logits (B, K, H, W) and whole numbers (B, H, W)",
        )
