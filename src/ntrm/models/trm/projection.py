"""Proj: the refined nodes back onto the pixels of their tissues."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from ntrm.core.devices import full_precision_on_cpu


class Projection(nn.Module):
    """Proj: ``S = Σ_c h_c ⊗ M_c``, ``S' = BN(Conv1×1(S))``.

    The 1×1 convolution is linear, so it is applied to the K nodes instead of the N pixels of S: the same sum for
    K·d·C + K·N·C instead of K·N·d + N·d·C operations, and S itself is never made.
    """

    def __init__(self, dim: int, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(dim, channels, kernel_size=1)
        self.norm = nn.BatchNorm2d(channels)
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_in", nonlinearity="relu")
        nn.init.zeros_(self.conv.bias)  # type: ignore[arg-type]

    def forward(self, nodes: Tensor, masks: Tensor) -> Tensor:
        """(B, K, d), (B, K, H2, W2) → (B, C, H2, W2)."""
        with full_precision_on_cpu(nodes.device):
            per_tissue = F.linear(nodes, self.conv.weight.flatten(1))  # (B, K, C)
            spread = per_tissue.transpose(1, 2) @ masks.flatten(2)  # (B, C, K) @ (B, K, N) → (B, C, N)
        bias = self.conv.bias.view(-1, 1, 1)  # type: ignore[union-attr]
        out: Tensor = self.norm(spread.view(*spread.shape[:2], *masks.shape[2:]) + bias)
        return out
