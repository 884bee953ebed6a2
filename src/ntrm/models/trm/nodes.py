"""Reg, Node, Absent and Proj: from probabilities to a mask and a vector per node, and from the vectors back to pixels.

A node is a tissue: K masks (B, K, H2, W2) and K vectors (B, K, d). All after ``propose`` takes masks as they are.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ntrm.core.devices import full_precision_on_cpu

EPSILON = 1e-6  # Keeps the average of an empty mask finite


def dilate(masks: Tensor) -> Tensor:
    """Grow every mask by one pixel in all eight directions: max-pool 3×3, stride 1, padding 1. Shape is kept."""
    return F.max_pool2d(masks, kernel_size=3, stride=1, padding=1)


def propose(probabilities: Tensor, tau: float, *, pooled: bool = True) -> Tensor:
    """Reg: 0/1 masks ``M_c = 1[maxpool3(p_c) > τ]``, without the max-pool where ``pooled`` is off.

    Masks may overlap and may leave pixels uncovered. (B, K, H2, W2) → (B, K, H2, W2).
    """
    highest = dilate(probabilities) if pooled else probabilities
    return (highest > tau).to(probabilities.dtype)


def pool(features: Tensor, masks: Tensor) -> Tensor:
    """Node: ``h_c = Σ F·M_c / (Σ M_c + 1e-6)``. (B, d, H2, W2), (B, K, H2, W2) → (B, K, d)."""
    masks = masks.flatten(2)  # (B, K, N)
    with full_precision_on_cpu(features.device):
        sums = masks @ features.flatten(2).transpose(1, 2)  # (B, K, N) @ (B, N, d) → (B, K, d)
    return sums / (masks.sum(dim=2, keepdim=True) + EPSILON)


def replace_absent(nodes: Tensor, presence: Tensor, learned: Tensor) -> Tensor:
    """Absent: ``h_c = g_c`` where the hard mask is empty. (B, K, d), (B, K), (K, d) → (B, K, d)."""
    return torch.where(presence.unsqueeze(-1), nodes, learned.to(nodes.dtype))


class Projection(nn.Module):
    """Proj: ``S = Σ_c h_c ⊗ M_c``, ``S' = BN(Conv1×1(S))``.

    The 1×1 convolution is linear, so it is applied to the K nodes instead of the N pixels of S: the same sum for
    K·d·C + K·N·C instead of K·N·d + N·d·C operations, and S itself is never made. ``gated``, S' is multiplied by a
    learned number that starts at 0: an untrained module then adds nothing.
    """

    def __init__(self, dim: int, channels: int, *, gated: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(dim, channels, kernel_size=1)
        self.norm = nn.BatchNorm2d(channels)
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_in", nonlinearity="relu")
        nn.init.zeros_(self.conv.bias)  # type: ignore[arg-type]
        self.gate = nn.Parameter(torch.zeros(())) if gated else None

    def forward(self, nodes: Tensor, masks: Tensor) -> Tensor:
        """(B, K, d), (B, K, H2, W2) → (B, C, H2, W2)."""
        with full_precision_on_cpu(nodes.device):
            per_node = F.linear(nodes, self.conv.weight.flatten(1))  # (B, K, C)
            spread = per_node.transpose(1, 2) @ masks.flatten(2).to(nodes.dtype)  # (B, C, K) @ (B, K, N) → (B, C, N)
        bias = self.conv.bias.view(-1, 1, 1)  # type: ignore[union-attr]
        out: Tensor = self.norm(spread.view(*spread.shape[:2], *masks.shape[2:]) + bias)
        return out if self.gate is None else self.gate * out
