"""The relation module of the released code read literally: one image, one pixel, one class, one edge at a time.

It shares the operations with ``trm_literal``, and nothing else. A whole batch goes through it: in training every
tissue's masked map is normalised by itself, over the batch (``batch_statistics``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tests.reference.operations import Array, batch_norm, convolve, layer_norm, max_pool, pixels, total


def released_relation(
    features: Array, probabilities: Array, params: dict[str, Any], *, batch_statistics: bool = False, tau: float = 0.5
) -> tuple[Array, Array]:
    """D2 (B, C, H, W) and p (B, K, H, W) → D2' (B, C, H, W) and the nodes' states (B, K, d)."""
    norm = normalise if batch_statistics else lambda maps, bn: [batch_norm(image, bn) for image in maps]
    masks = [[1.0 * (max_pool(p_c) > tau) for p_c in p] for p in probabilities]
    seen = norm([convolve(image, params["psi"]["weight"]) for image in features], params["psi"])
    seen = [np.maximum(image, 0.0) for image in seen]

    pooled = np.zeros((len(features), len(masks[0]), len(seen[0])))
    for c in range(len(masks[0])):
        mixed = [pointwise(image * own[c], params["point"]["weight"]) for image, own in zip(seen, masks, strict=True)]
        for b, image in enumerate(norm(mixed, params["point"])):
            for y, x in pixels(image[0]):
                pooled[b, c] += np.maximum(image[:, y, x], 0.0) * masks[b][c][y, x]
            pooled[b, c] /= total(masks[b][c]) + 1e-6

    states = np.array([pass_messages(nodes, own, params) for nodes, own in zip(pooled, masks, strict=True)])
    spread = np.zeros((len(features), states.shape[2], *features.shape[2:]))
    for b, own in enumerate(masks):
        for c, mask in enumerate(own):
            for y, x in pixels(mask):
                spread[b, :, y, x] += states[b, c] * mask[y, x]
    proj = params["proj"]
    mixed = norm([pointwise(image, proj["weight"], proj["bias"]) for image in spread], proj)
    return features + np.maximum(mixed, 0.0), states


def pass_messages(nodes: Array, masks: list[Array], params: dict[str, Any]) -> Array:
    """Every present tissue hears every other present one; the embedding of the absent ones comes last."""
    present = [total(mask) > 0 for mask in masks]
    edge = params["edge"]
    edges = {}
    for j in range(len(nodes)):
        for i in range(len(nodes)):
            if i != j and present[i] and present[j]:
                hidden = np.maximum(edge["w1"] @ np.concatenate([nodes[j], nodes[i]]) + edge["b1"], 0.0)
                edges[j, i] = edge["w2"] @ hidden + edge["b2"]
    states = nodes
    for place, layer in enumerate(params["layers"]):
        sums = [layer["bias"] + np.zeros(len(nodes[0])) for _ in nodes]
        for (j, i), embedded in edges.items():
            sums[i] = sums[i] + (layer["W"] @ states[j]) * embedded
        normed = [layer_norm(np.maximum(each, 0.0), layer["ln_weight"], layer["ln_bias"]) for each in sums]
        states = np.array([new + (old if place else 0.0) for new, old in zip(normed, states, strict=True)])
    return np.array([states[c] if present[c] else params["absent"][c] for c in range(len(nodes))])


def pointwise(image: Array, weight: Array, bias: Array | float = 0.0) -> Array:
    """1×1 convolution."""
    out = np.zeros((len(weight), *image.shape[1:]))
    for y, x in pixels(image[0]):
        out[:, y, x] = weight @ image[:, y, x] + bias
    return out


def normalise(maps: list[Array], bn: dict[str, Array]) -> list[Array]:
    """Batch norm in training: by mean and variance of a channel over all pixels of all maps."""
    values = np.concatenate([image.reshape(len(image), -1) for image in maps], axis=1)
    own = {**bn, "bn_mean": values.mean(axis=1), "bn_var": values.var(axis=1)}
    return [batch_norm(image, own) for image in maps]


def upsample(image: Array, factor: int) -> Array:
    """Bilinear, the corners of the small grid on those of the large one: (C, H, W) → (C, fH, fW)."""
    height, width = image.shape[1:]
    out = np.zeros((len(image), factor * height, factor * width))
    for y, x in pixels(out[0]):
        v = y * (height - 1) / (factor * height - 1)
        u = x * (width - 1) / (factor * width - 1)
        top, left = int(v), int(u)
        bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
        upper = image[:, top, left] * (1 - (u - left)) + image[:, top, right] * (u - left)
        lower = image[:, bottom, left] * (1 - (u - left)) + image[:, bottom, right] * (u - left)
        out[:, y, x] = upper * (1 - (v - top)) + lower * (v - top)
    return out
