"""Random inputs and parameters for the literal oracle, so that a test can hand the same numbers to both sides."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.reference.operations import Array


def coarse_prediction(
    random: np.random.Generator,
    K: int,  # noqa: N803
    height: int,
    width: int,
) -> Array:
    """Softmaxed p (K, H, W): a patchwork of some of the K tissues, sure in some patches and undecided in others.

    It leaves some tissues absent, some pairs apart and some pixels uncovered. The values are float32 numbers, so that
    a threshold in float32 and one in float64 agree on every pixel.
    """
    seeds = int(random.integers(1, K + 3))
    tissue = random.integers(K, size=seeds)
    sureness = random.choice([0.0, 7.0], size=seeds)
    y, x = random.uniform(0, height, size=seeds), random.uniform(0, width, size=seeds)
    logits = random.normal(0.0, 0.7, size=(K, height, width))
    for row in range(height):
        for column in range(width):
            nearest = np.argmin((y - row) ** 2 + (x - column) ** 2)
            logits[tissue[nearest], row, column] += sureness[nearest]
    powers = np.exp(logits)
    single: NDArray[np.float32] = (powers / powers.sum(axis=0)).astype(np.float32)
    return single.astype(np.float64)


def parameters(
    random: np.random.Generator,
    C: int,  # noqa: N803
    d: int,
    K: int,  # noqa: N803
    L: int,  # noqa: N803
    layer: str = "attention",
    boundary: bool = True,
) -> dict[str, Any]:
    """All parameters of the module, none of them at a value (0 or 1) that would hide a term that was left out."""
    pair = 2 * d + 2 if boundary else 2 * d
    return {
        "psi": {"weight": _matrix(random, d, C, 3, 3), **_norm(random, d, "bn_"), **_statistics(random, d)},
        "absent": random.normal(size=(K, d)),
        "edge": {
            "w1": _matrix(random, d, pair),
            "b1": random.normal(size=d),
            "w2": _matrix(random, d, d),
            "b2": random.normal(size=d),
        },
        "W_e": _matrix(random, d, d),
        "layers": [_layer(random, d, layer) for _ in range(L)],
        "proj": {
            "weight": _matrix(random, C, d),
            "bias": random.normal(size=C),
            **_norm(random, C, "bn_"),
            **_statistics(random, C),
        },
        "gate": np.float64(0.7),
    }


def _layer(random: np.random.Generator, d: int, layer: str) -> dict[str, Array]:
    if layer == "sum":
        return {"W": _matrix(random, d, d), "bias": random.normal(size=d)}
    return {
        "W": _matrix(random, d, d),
        "q": random.normal(size=2 * d),
        "ffn_w1": _matrix(random, 2 * d, d),
        "ffn_b1": random.normal(size=2 * d),
        "ffn_w2": _matrix(random, d, 2 * d),
        "ffn_b2": random.normal(size=d),
        **_norm(random, d, "ln1_"),
        **_norm(random, d, "ln2_"),
    }


def _matrix(random: np.random.Generator, *shape: int) -> Array:
    """Normal numbers, scaled by the fan-in so that values neither vanish nor explode over the stages."""
    return random.normal(0.0, math.prod(shape[1:]) ** -0.5, size=shape)


def _norm(random: np.random.Generator, width: int, prefix: str) -> dict[str, Array]:
    return {f"{prefix}weight": random.uniform(0.5, 1.5, width), f"{prefix}bias": random.normal(size=width)}


def _statistics(random: np.random.Generator, width: int) -> dict[str, Array]:
    return {"bn_mean": random.normal(size=width), "bn_var": random.uniform(0.5, 2.0, width)}
