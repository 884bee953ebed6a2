"""The paper's weighted cross-entropy, and the soft Dice loss, read literally, pixel by pixel, in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from tests.reference.operations import Array


def weighted_cross_entropy(logits: Array, target: NDArray[np.integer], ignore: int = 255) -> float:
    """Loss: −(1/P) Σ_n w_{y_n} · log softmax(logits_n)[y_n] over the P pixels that are not ignored; 0 if P = 0.

    The weight of a class is w_c = P / (K · count_c), counted over the whole batch. Logits are (B, K, H, W), targets
    (B, H, W).
    """
    classes = logits.shape[1]
    known = [pixel for pixel in _batch_pixels(target) if target[pixel] != ignore]
    counts = [sum(1 for pixel in known if target[pixel] == c) for c in range(classes)]
    total = 0.0
    for b, y, x in known:
        label = target[b, y, x]
        weight = len(known) / (classes * counts[label])
        total += weight * _nll(logits[b, :, y, x], label)
    return total / len(known) if known else 0.0


def soft_dice(logits: Array, target: NDArray[np.integer], ignore: int = 255) -> float:
    """Loss: mean of 1 − 2·I_c / S_c over classes that have a pixel among those that are not ignored; 0 if none has.

    I_c = Σ p_c over the pixels of c, S_c = Σ p_c over all pixels plus the number of those of c, p = softmax(logits).
    """
    known = [pixel for pixel in _batch_pixels(target) if target[pixel] != ignore]
    losses = []
    for c in range(logits.shape[1]):
        shared, size = 0.0, 0.0
        for b, y, x in known:
            probability = math.exp(-_nll(logits[b, :, y, x], c))
            same = target[b, y, x] == c
            shared += probability if same else 0.0
            size += probability + (1.0 if same else 0.0)
        if any(target[pixel] == c for pixel in known):
            losses.append(1 - 2 * shared / size)
    return sum(losses) / len(losses) if losses else 0.0


def _nll(scores: Array, label: int) -> float:
    """−log softmax(z)[y] = log Σ_c exp(z_c − m) − (z_y − m), with m = max z so that no logit is too far off."""
    largest = max(scores)
    return math.log(sum(math.exp(score - largest) for score in scores)) - float(scores[label] - largest)


def _batch_pixels(target: NDArray[np.integer]) -> Iterator[tuple[int, int, int]]:
    batch, height, width = target.shape
    return ((b, y, x) for b in range(batch) for y in range(height) for x in range(width))
