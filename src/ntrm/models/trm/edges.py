"""Adj, Bnd, Edge and Weight: which tissues touch, how much, and what an edge says. Index order is [src, dst]."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ntrm.models.trm.nodes import dilate


def contacts(masks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Adj and Bnd from hard masks (B, K, H2, W2).

    Returns area ``Σ M_i`` (B, K), touching ``Σ dilate(M_i)·dilate(M_j) > 0, i ≠ j`` (B, K, K) and
    ``b_ij = Σ M_i·dilate(M_j) / Σ M_i`` (B, K, K), which is 0 where M_i is empty.
    """
    own, grown = masks.flatten(2), dilate(masks).flatten(2)  # (B, K, N)
    area = own.sum(dim=2)
    # One product for both counts: grown with grown (B, K, K) and own with grown (B, K, K).
    common, shared = (torch.cat([grown, own], dim=1) @ grown.transpose(1, 2)).chunk(2, dim=1)
    touching = (common > 0) & ~torch.eye(masks.shape[1], dtype=torch.bool, device=masks.device)
    # A present tissue has at least one pixel, so clamping changes only the empty rows, which are 0 / 1.
    boundary = shared / area.clamp(min=1).unsqueeze(-1)
    return area, touching, boundary


def link(touching: Tensor, presence: Tensor, *, complete: bool, senders: Tensor | None) -> Tensor:
    """Edges of a variant: touching nodes, or every present pair; absent ``senders`` (B, V) reach every present node."""
    edges, present_dst = touching, presence.unsqueeze(1)  # (B, V, V), (B, 1, V)
    if complete:
        different = ~torch.eye(presence.shape[1], dtype=torch.bool, device=presence.device)
        edges = presence.unsqueeze(2) & present_dst & different
    return edges if senders is None else edges | (senders.unsqueeze(2) & present_dst)


class EdgeEmbedding(nn.Module):
    """Edge: ``e_ji = MLP([h_j ‖ h_i ‖ b_ji ‖ b_ij])`` for the message j → i, without b where ``boundary`` is off.

    The first linear layer acts on each member of the concatenation by itself, so no (K, K, 2d) tensor is made.
    """

    def __init__(self, dim: int, *, boundary: bool) -> None:
        super().__init__()
        self.dim = dim
        self.boundary = boundary
        self.first = nn.Linear(2 * dim + (2 if boundary else 0), dim)
        self.second = nn.Linear(dim, dim)
        for linear in (self.first, self.second):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, nodes: Tensor, ratios: Tensor) -> Tensor:
        """(B, K, d), (B, K, K) → (B, K, K, d) as [src, dst]."""
        weight = self.first.weight  # (d, 2d [+ 2])
        halves = weight[:, : 2 * self.dim].reshape(self.dim, 2, self.dim).transpose(0, 1).flatten(0, 1)  # (2d, d)
        sender, receiver = F.linear(nodes, halves).chunk(2, dim=-1)  # (B, K, d) each
        hidden = sender.unsqueeze(2) + receiver.unsqueeze(1) + self.first.bias  # (B, K, K, d)
        if self.boundary:
            toward, back = ratios.unsqueeze(-1), ratios.transpose(1, 2).unsqueeze(-1)  # b_ji and b_ij at [j, i]
            hidden = hidden + toward * weight[:, -2] + back * weight[:, -1]
        embedded: Tensor = self.second(torch.relu(hidden))
        return embedded


class EdgeWeight(nn.Module):
    """Weight: ``w_ji = sigmoid(e_jiᵀ W_e e_ji)``, 0 where there is no edge."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.form = nn.Parameter(torch.empty(dim, dim))
        nn.init.xavier_uniform_(self.form)

    def forward(self, embedded: Tensor, edges: Tensor) -> Tensor:
        """(B, K, K, d), (B, K, K) → (B, K, K)."""
        weight = torch.sigmoid((embedded @ self.form * embedded).sum(dim=-1))
        return torch.where(edges, weight, torch.zeros_like(weight))
