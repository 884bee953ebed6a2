"""Attn and Sum: the two layers of message passing. Index order is [src, dst]."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SLOPE = 0.2  # Negative slope of the attention's LeakyReLU


def attention_over_senders(scores: Tensor, edges: Tensor) -> Tensor:
    """Softmax over the senders of each receiver; a receiver without any gets zeros. (B, K, K) → (B, K, K)."""
    masked = scores.masked_fill(~edges, torch.finfo(scores.dtype).min)
    # Without a sender the softmax is uniform over nothing; the product with the edges makes it zero, never NaN.
    return masked.softmax(dim=1) * edges


class AttentionLayer(nn.Module):
    """Attn, the supplement's layer.

    ``a_ij = LeakyReLU(qᵀ[W h_i ‖ W h_j])``, ``α_ij = softmax over j ∈ N(i)``,
    ``h̃_i = LN(h_i + Σ_j α_ij · w_ji · (W h_j ⊙ e_ji))``, ``h_i ← LN(h̃_i + FFN(h̃_i))``.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.transform = nn.Linear(dim, dim, bias=False)
        self.query = nn.Parameter(torch.empty(1, 2 * dim))
        self.norm1 = nn.LayerNorm(dim, eps=1e-5)
        self.ffn = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        self.norm2 = nn.LayerNorm(dim, eps=1e-5)
        nn.init.xavier_uniform_(self.transform.weight)
        nn.init.xavier_uniform_(self.query)

    def forward(self, nodes: Tensor, edges: Tensor, embedded: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """(B, K, d), (B, K, K), (B, K, K, d), (B, K, K) → nodes (B, K, d), attention (B, K, K)."""
        sent = self.transform(nodes)  # (B, K, d)
        receiver, sender = F.linear(sent, self.query.view(2, self.dim)).unbind(dim=-1)  # (B, K) each
        scores = F.leaky_relu(sender.unsqueeze(2) + receiver.unsqueeze(1), SLOPE)  # (B, src, dst)
        attention = attention_over_senders(scores, edges)
        strength = attention if weights is None else attention * weights
        messages = strength.unsqueeze(-1) * sent.unsqueeze(2) * embedded  # (B, src, dst, d)
        nodes = self.norm1(nodes + messages.sum(dim=1))
        return self.norm2(nodes + self.ffn(nodes)), attention


class SumLayer(nn.Module):
    """Sum, the main text's layer: ``h_i ← ReLU(Σ_j w_ji · (W h_j ⊙ e_ji) + bias)``."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.transform = nn.Linear(dim, dim, bias=False)
        self.bias = nn.Parameter(torch.zeros(dim))
        nn.init.xavier_uniform_(self.transform.weight)

    def forward(self, nodes: Tensor, edges: Tensor, embedded: Tensor, weights: Tensor | None) -> tuple[Tensor, None]:
        """(B, K, d), (B, K, K), (B, K, K, d), (B, K, K) → nodes (B, K, d), no attention."""
        strength = edges.to(nodes.dtype) if weights is None else weights
        messages = strength.unsqueeze(-1) * self.transform(nodes).unsqueeze(2) * embedded  # (B, src, dst, d)
        return torch.relu(messages.sum(dim=1) + self.bias), None


LAYERS: dict[str, type[AttentionLayer | SumLayer]] = {"attention": AttentionLayer, "sum": SumLayer}
