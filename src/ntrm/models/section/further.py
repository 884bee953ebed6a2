"""Nodes beside those of the section's tissues: regions of the window below them, and which cancers the section holds.

Regions are the pieces of a tissue in the cells of a fixed grid over the window. Connected components would follow the
tissue more closely, but their number differs from window to window, which neither a recorded training step nor sums
over windows can bear; in a grid of 2 × 2 a tissue's two sides of a window are told apart, which is what matters here.
They are made from the window at hand, so that they need no further pass.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ntrm.models.section.config import SectionConfig
from ntrm.models.section.layers import GraphLayer
from ntrm.models.section.nodes import EPSILON, LEAST_SHARE, area_shares
from ntrm.models.section.sums import SectionSums, weighted_sum

LEAST_CELL = 0.01
"""Share of a cell of the grid below which a tissue counts as absent from it."""


class FurtherNodes(nn.Module):
    """Adds nodes to those of the tissues, and lets all of them speak with each other once more.

    ``r_cq = W·LN(mean of f under tissue c in cell q) + h_c``; ``z = V·[shares among cancers, amount of all] + e``.
    """

    def __init__(self, channels: int, classes: int, config: SectionConfig) -> None:
        super().__init__()
        self.config = config
        if config.regions:
            self.features = nn.LayerNorm(channels)
            self.project = nn.Linear(channels, config.dim)
        if config.cancer_indices:
            self.cancers = nn.Linear(len(config.cancer_indices) + 1, config.dim)
        self.layer = GraphLayer(config.dim, config.heads)
        self.norm = nn.LayerNorm(config.dim)

    def forward(
        self, d2: Tensor, masks: Tensor, sums: SectionSums, states: Tensor, presence: Tensor
    ) -> tuple[Tensor, Tensor]:
        """D2 (B, C, H2, W2), masks (B, K, H2, W2), nodes (B, K, d), (B, K) → all nodes (B, M, d), (B, M)."""
        every, there = [states], [presence]
        if self.config.regions:
            regions, seen = self._regions(d2, masks, states)
            every.append(regions)
            there.append(seen & presence.repeat_interleave(self.config.regions**2, dim=1))
        if self.config.cancer_indices:
            cancer, seen = self._cancers(sums)
            every.append(cancer)
            there.append(seen)
        joined, heard = torch.cat(every, dim=1), torch.cat(there, dim=1)
        joined, _ = self.layer(joined, heard, None)
        return self.norm(joined), heard

    def _regions(self, d2: Tensor, masks: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """(B, K·q, d) and (B, K·q) bool, tissue by tissue."""
        side, classes = self.config.regions, masks.shape[1]
        features, weights = by_cells(d2, side), by_cells(masks, side)  # (B·q, C or K, h, w)
        amount = weights.sum(dim=(2, 3))  # (B·q, K)
        means = weighted_sum(weights, features) / (amount + EPSILON).unsqueeze(-1)  # (B·q, K, C)
        own = self.project(self.features(means)).view(-1, side**2, classes, states.shape[2])
        own = own + states.unsqueeze(1)  # (B, q, K, d)
        seen = (amount >= LEAST_CELL * weights.shape[2] * weights.shape[3]).view(-1, side**2, classes)
        return own.transpose(1, 2).flatten(1, 2), seen.transpose(1, 2).flatten(1)

    def _cancers(self, sums: SectionSums) -> tuple[Tensor, Tensor]:
        """(B, 1, d) and (B, 1) bool."""
        # Columns one by one: an index made here would be copied to the device in every step.
        shares = area_shares(sums.weight)
        chosen = torch.stack([shares[:, index] for index in self.config.cancer_indices], dim=1)
        whole = chosen.sum(dim=1, keepdim=True)
        amount = 1 - torch.log(whole + LEAST_SHARE) / math.log(LEAST_SHARE)
        state = self.cancers(torch.cat([chosen / (whole + EPSILON), amount], dim=1))
        return state.unsqueeze(1), whole >= self.config.floor


def by_cells(x: Tensor, side: int) -> Tensor:
    """Cut (B, C, H, W) into ``side`` × ``side`` cells: (B·side², C, H/side, W/side), row by row.

    >>> by_cells(torch.arange(4.0).view(1, 1, 2, 2), 2).flatten().tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    batch, channels, height, width = x.shape
    cells = x.view(batch, channels, side, height // side, side, width // side)
    return cells.permute(0, 2, 4, 1, 3, 5).reshape(-1, channels, height // side, width // side)


def shares_on_grid(mask: Tensor, classes: int, factor: int) -> Tensor:
    """Share of each tissue in the cells of a coarser grid: (B, H, W) → (B, K, H/factor, W/factor); ignored is none."""
    chosen = mask.unsqueeze(1) == torch.arange(classes, device=mask.device).view(1, -1, 1, 1)
    return F.avg_pool2d(chosen.float(), factor)


def random_blobs(like: Tensor, block: int, strength: float = 3.0) -> Tensor:
    """Masks that know nothing: (B, K, H, W) probabilities, alike within blocks of ``block`` cells."""
    batch, classes, height, width = like.shape
    noise = torch.randn(batch, classes, -(-height // block), -(-width // block), dtype=like.dtype, device=like.device)
    spread = F.interpolate(strength * noise, scale_factor=float(block), mode="nearest")
    return spread[..., :height, :width].softmax(dim=1)
