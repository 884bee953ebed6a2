"""How what the nodes know comes back to the pixels. Every form starts at zero: the module begins as identity."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ntrm.models.section.layers import by_heads, masked_softmax


def _closed(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer that gives zero until it has learned otherwise."""
    linear = nn.Linear(inputs, outputs)
    nn.init.zeros_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear


class Ask(nn.Module):
    """``x' = W_o·[Σ_m α_m(x)·v_m]_heads + b``, ``α(x) = softmax_m(q(x)·k_m/√e)`` over present nodes and silence.

    Silence is a key of its own whose value is nothing, so that a pixel need not listen. W_q and W_o act on the few
    keys and values instead of on the pixels: the same sums, for heads·(M+1)·N·C operations each in place of N·d·C.
    """

    def __init__(self, channels: int, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(channels, dim)
        self.key = nn.Linear(dim, dim, bias=False)
        self.value = nn.Linear(dim, dim)
        self.silence = nn.Parameter(torch.randn(dim) * dim**-0.5)
        self.out = _closed(dim, channels)

    def forward(self, features: Tensor, states: Tensor, presence: Tensor, masks: Tensor) -> Tensor:
        """(B, C, H2, W2), (B, M, d), (B, M) → (B, C, H2, W2)."""
        batch, _, height, width = features.shape
        keys, values = self._keys(states), self._values(states)  # (B, heads, M+1, C + 1), (B, C, heads·(M+1))
        pixels = features.flatten(2)  # (B, C, N)
        scores = keys[..., :-1].flatten(1, 2) @ pixels + keys[..., -1].flatten(1).unsqueeze(-1)
        scores = scores.view(batch, self.heads, -1, height * width).transpose(2, 3)  # (B, heads, N, M+1)
        heard = torch.cat([presence, torch.ones_like(presence[:, :1])], dim=1)  # (B, M+1)
        attention = masked_softmax(scores, heard[:, None, None, :])
        attention = attention.transpose(2, 3).flatten(1, 2)  # (B, heads·(M+1), N)
        found = values @ attention + self.out.bias.unsqueeze(-1)  # (B, C, N)
        return found.view(batch, -1, height, width)

    def _keys(self, states: Tensor) -> Tensor:
        """Keys as pixels see them, W_qᵀk and b_q·k: (B, M, d) → (B, heads, M+1, C+1)."""
        keys = torch.cat([self.key(states), self.silence.expand(states.shape[0], 1, -1)], dim=1)  # (B, M+1, d)
        keys = by_heads(keys, self.heads)  # (B, heads, M+1, e)
        weight = torch.cat([self.query.weight, self.query.bias.unsqueeze(1)], dim=1)  # (d, C+1)
        return keys @ weight.view(self.heads, -1, weight.shape[1]) / math.sqrt(keys.shape[-1])

    def _values(self, states: Tensor) -> Tensor:
        """Values as pixels take them, W_o·v: (B, M, d) → (B, C, heads·(M+1)), silence last in each head."""
        values = by_heads(self.value(states), self.heads)  # (B, heads, M, e)
        weight = self.out.weight.t().view(self.heads, -1, self.out.weight.shape[0])  # (heads, e, C)
        given = nn.functional.pad(values @ weight, (0, 0, 0, 1))  # (B, heads, M+1, C)
        return given.flatten(1, 2).transpose(1, 2)


class Paste(nn.Module):
    """``x' = W_o·Σ_c h_c·p_c(x) + b`` over present tissues: nodes go where their masks are, as in the paper."""

    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()
        self.out = _closed(dim, channels)

    def forward(self, features: Tensor, states: Tensor, presence: Tensor, masks: Tensor) -> Tensor:
        """(B, C, H2, W2), (B, K, d), (B, K), (B, K, H2, W2) → (B, C, H2, W2)."""
        given = nn.functional.linear(states, self.out.weight) * presence.unsqueeze(-1)  # (B, K, C)
        spread = given.transpose(1, 2) @ masks.flatten(2) + self.out.bias.unsqueeze(-1)  # (B, C, N)
        return spread.view(features.shape)


class Shift(nn.Module):
    """``b_c = a_c·h_c + β_c``: how much likelier tissue c is in this section than its pixels alone would say."""

    def __init__(self, classes: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(classes, dim))
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, states: Tensor) -> Tensor:
        """(B, K, d), or (B, 1, d) for one node that speaks for all → (B, K)."""
        return (states * self.weight).sum(dim=2) + self.bias
