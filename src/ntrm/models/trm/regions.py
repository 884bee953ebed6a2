"""Reg: where each tissue lies, from the coarse probabilities. Masks are 0/1 floats on the (H2, W2) grid."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def dilate(masks: Tensor) -> Tensor:
    """Grow every mask by one pixel in all eight directions: max-pool 3×3, stride 1, padding 1. Shape is kept."""
    return F.max_pool2d(masks, kernel_size=3, stride=1, padding=1)


def propose(probabilities: Tensor, tau: float, *, pooled: bool = True) -> Tensor:
    """Reg: ``M_c = 1[maxpool3(p_c) > τ]``, without the max-pool where ``pooled`` is off.

    Masks may overlap and may leave pixels uncovered. (B, K, H2, W2) → (B, K, H2, W2).
    """
    highest = dilate(probabilities) if pooled else probabilities
    return (highest > tau).to(probabilities.dtype)
