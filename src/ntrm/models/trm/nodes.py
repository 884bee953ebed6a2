"""Node and Absent: one vector per tissue, pooled from features or, where the tissue is absent, learned."""

from __future__ import annotations

import torch
from torch import Tensor

from ntrm.core.devices import full_precision_on_cpu

EPSILON = 1e-6
"""Keeps the average of an empty mask finite."""


def pool(features: Tensor, masks: Tensor) -> Tensor:
    """Node: ``h_c = Σ F·M_c / (Σ M_c + 1e-6)``. (B, d, H2, W2), (B, K, H2, W2) → (B, K, d)."""
    masks = masks.flatten(2)  # (B, K, N)
    with full_precision_on_cpu(features.device):
        sums = masks @ features.flatten(2).transpose(1, 2)  # (B, K, N) @ (B, N, d) → (B, K, d)
    return sums / (masks.sum(dim=2, keepdim=True) + EPSILON)


def replace_absent(nodes: Tensor, presence: Tensor, learned: Tensor) -> Tensor:
    """Absent: ``h_c = g_c`` where the hard mask is empty. (B, K, d), (B, K), (K, d) → (B, K, d)."""
    return torch.where(presence.unsqueeze(-1), nodes, learned.to(nodes.dtype))
