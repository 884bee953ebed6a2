"""The operations the literal oracles are made of, each written out in loops and float64."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def pixels(image: Array) -> Iterator[tuple[int, int]]:
    """Every (y, x) of a grid, row by row."""
    return ((y, x) for y in range(image.shape[0]) for x in range(image.shape[1]))


def window(y: int, x: int, image: Array) -> Iterator[tuple[int, int]]:
    """The up to nine positions of the 3×3 window around (y, x) that lie on the grid."""
    for v in (y - 1, y, y + 1):
        for u in (x - 1, x, x + 1):
            if 0 <= v < image.shape[0] and 0 <= u < image.shape[1]:
                yield v, u


def total(image: Array) -> float:
    """Σ over the pixels."""
    return sum(float(image[y, x]) for y, x in pixels(image))


def max_pool(image: Array) -> Array:
    """Largest value of each 3×3 window, stride 1; windows at the border are smaller (padding never wins)."""
    pooled = np.zeros(image.shape)
    for y, x in pixels(image):
        pooled[y, x] = max(image[v, u] for v, u in window(y, x, image))
    return pooled


def convolve(image: Array, weight: Array) -> Array:
    """3×3 convolution, stride 1: out[y, x] = Σ weight[v − y + 1, u − x + 1] · image[v, u]; outside counts as zero."""
    out = np.zeros((weight.shape[0], *image.shape[1:]))
    for y, x in pixels(image[0]):
        for v, u in window(y, x, image[0]):
            out[:, y, x] += weight[:, :, v - y + 1, u - x + 1] @ image[:, v, u]
    return out


def batch_norm(image: Array, bn: dict[str, Array]) -> Array:
    """Inference form, per channel: (x − mean) / √(var + 1e-5) · weight + bias."""
    out = np.zeros(image.shape)
    for c in range(len(image)):
        scale = bn["bn_weight"][c] / math.sqrt(bn["bn_var"][c] + 1e-5)
        out[c] = (image[c] - bn["bn_mean"][c]) * scale + bn["bn_bias"][c]
    return out


def layer_norm(vector: Array, weight: Array, bias: Array) -> Array:
    """(x − mean) / √(variance + 1e-5) · weight + bias over the d numbers of one node."""
    mean = sum(vector) / len(vector)
    variance = sum((value - mean) ** 2 for value in vector) / len(vector)
    return (vector - mean) / math.sqrt(variance + 1e-5) * weight + bias


def softmax(scores: Sequence[float]) -> list[float]:
    """exp(a) / Σ exp(a), shifted by the largest a so that nothing overflows; nothing for no scores."""
    largest = max(scores, default=0.0)
    powers = [math.exp(score - largest) for score in scores]
    return [power / sum(powers) for power in powers]


def leaky_relu(value: float) -> float:
    """The value itself, a fifth of it when negative."""
    return value if value > 0 else 0.2 * value


def sigmoid(value: float) -> float:
    """1 / (1 + exp(−x)), in the form that does not overflow for the sign of x."""
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))
