"""Nodes that speak with each other: attention with a bias for each edge. Attention is [receiver, sender] in here."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

HIDDEN = 16
"""Width of the edge's own little network."""


def masked_softmax(scores: Tensor, presence: Tensor) -> Tensor:
    """Softmax over the last axis, nothing for what is absent; ``presence`` must leave something. Shapes broadcast."""
    return scores.masked_fill(~presence, torch.finfo(scores.dtype).min).softmax(dim=-1)


def by_heads(x: Tensor, heads: int) -> Tensor:
    """(B, M, d) → (B, heads, M, e)."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


class EdgeBias(nn.Module):
    """``b_ij = U·SiLU(V·edge_ij + v) [+ prior_ij]``: what a head adds to the score of sender j for receiver i."""

    prior: nn.Parameter | None

    def __init__(self, features: int, nodes: int, heads: int, *, prior: bool) -> None:
        super().__init__()
        # Without a bias at the end: what is added to all senders alike, a softmax takes away.
        self.mlp = (
            nn.Sequential(nn.Linear(features, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, heads, bias=False))
            if features
            else None
        )
        self.prior = nn.Parameter(torch.zeros(heads, nodes, nodes)) if prior else None

    def forward(self, edges: Tensor) -> Tensor | None:
        """(B, M, M, F) → (B, heads, M, M), or None where no edge differs from another."""
        bias = None if self.mlp is None else self.mlp(edges).permute(0, 3, 1, 2)
        if self.prior is None:
            return bias
        return self.prior.expand(edges.shape[0], -1, -1, -1) if bias is None else bias + self.prior


class GraphLayer(nn.Module):
    """``h ← h + W_o·Σ_j α_ij W_v ĥ_j``, ``α_i = softmax_j(q_i·k_j/√e + b_ij)`` over present j; ``h ← h + FFN(ĥ)``.

    ĥ is the layer norm of h, e the width of a head.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.query = nn.Linear(dim, dim)
        self.key = nn.Linear(dim, dim, bias=False)  # a bias would add the same to all senders of a receiver
        self.value = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, states: Tensor, presence: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """(B, M, d), (B, M), (B, heads, M, M) → states (B, M, d), attention (B, heads, M, M)."""
        normed = self.norm1(states)
        query, key, value = (by_heads(part(normed), self.heads) for part in (self.query, self.key, self.value))
        scores = query @ key.transpose(2, 3) / math.sqrt(key.shape[-1])  # (B, heads, M, M)
        scores = scores if bias is None else scores + bias
        attention = masked_softmax(scores, presence[:, None, None, :])
        heard = (attention @ value).transpose(1, 2).flatten(2)  # (B, M, d)
        states = states + self.out(heard)
        return states + self.ffn(self.norm2(states)), attention
