"""From sums to nodes and edges: what a tissue is like in this section, how much there is of it, what it touches."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ntrm.models.section.config import SectionConfig
from ntrm.models.section.sums import SectionSums

EPSILON = 1e-6
"""Keeps the mean of nothing finite."""
LEAST_SHARE = 1e-4
"""Shares below this look alike."""
STEEPNESS = 100.0
"""How much finer small shares are told apart than large ones."""


class Nodes(NamedTuple):
    """The nodes of each section before they speak with each other."""

    states: Tensor
    """(B, M, d)."""
    presence: Tensor
    """(B, M) bool: there is enough of it to be listened to."""
    edges: Tensor
    """(B, M, M, F) of receiver and sender; F is 0 for a graph that knows nothing of them."""


def stretched(share: Tensor) -> Tensor:
    """Shares from 0 to 1, small ones pulled apart: ``log(1 + 100 s) / log 101``.

    >>> [round(float(stretched(torch.tensor(s))), 2) for s in (0.0, 0.01, 0.1, 1.0)]
    [0.0, 0.15, 0.52, 1.0]
    """
    return torch.log1p(STEEPNESS * share) / math.log1p(STEEPNESS)


def contact_shares(pairs: Tensor) -> Tensor:
    """Of the contacts of tissue i with others, the share with j: (…, K, K) → (…, K, K), an empty diagonal."""
    others = pairs * (1 - torch.eye(pairs.shape[-1], dtype=pairs.dtype, device=pairs.device))
    return others / (others.sum(dim=-1, keepdim=True) + EPSILON)


def area_shares(weight: Tensor) -> Tensor:
    """Of the section's cells, the share of each tissue: (B, K) → (B, K)."""
    return weight / (weight.sum(dim=-1, keepdim=True) + EPSILON)


class NodeStates(nn.Module):
    """``h_c = e_c [+ W·LN(Σ w_c f / Σ w_c)] [+ a·(1 + log share_c / 9.2)] [+ V·surroundings_c]``."""

    def __init__(self, channels: int, nodes: int, config: SectionConfig) -> None:
        super().__init__()
        self.config = config
        if config.looks:
            self.norm = nn.LayerNorm(channels)
            self.project = nn.Linear(channels, config.dim)
            self.forget = nn.Dropout(config.dropout)
        self.embedding = nn.Parameter(torch.randn(nodes, config.dim) * 0.5)
        if config.nodes == "tissue":
            self.area = nn.Parameter(torch.randn(config.dim) * 0.5)
        if config.position:
            self.surroundings = nn.Linear(nodes, config.dim, bias=False)

    def forward(self, sums: SectionSums) -> Nodes:
        """Sums of B sections → their nodes."""
        states = self.embedding.expand(sums.weight.shape[0], -1, -1)  # (B, M, d)
        if self.config.looks:
            means = sums.features / (sums.weight + EPSILON).unsqueeze(-1)  # (B, M, C)
            states = self.project(self.forget(self.norm(means))) + states
        if self.config.nodes != "tissue":
            empty = states.new_zeros(*states.shape[:2], states.shape[1], 0)
            return Nodes(states, torch.ones_like(sums.weight, dtype=torch.bool), empty)
        shares = area_shares(sums.weight)  # (B, K)
        amount = 1 - torch.log(shares + LEAST_SHARE) / math.log(LEAST_SHARE)
        states = states + amount.unsqueeze(-1) * self.area
        if self.config.position:
            states = states + self.surroundings(stretched(_near(sums)[:, -1]))
        return Nodes(states, shares >= self.config.floor, self._edges(sums))

    def _edges(self, sums: SectionSums) -> Tensor:
        """(B, K, K, F) of receiver i and sender j: what i has of j, and j of i."""
        tables = []
        if self.config.graph == "contact":
            tables.append(contact_shares(sums.pairs[:, 0]))
        if self.config.position:
            tables += list(_near(sums).unbind(dim=1))
        both = [table for one in tables for table in (one, one.transpose(1, 2))]
        batch, count = sums.weight.shape
        return stretched(torch.stack(both, dim=-1)) if both else sums.weight.new_zeros(batch, count, count, 0)


def _near(sums: SectionSums) -> Tensor:
    """(B, radii, K, K): of what lies around a cell of tissue i, the share that is j."""
    return sums.pairs[:, 1:] / (sums.weight + EPSILON)[:, None, :, None]
