"""The section relation: window sums → nodes → graph → every pixel asks.

What a window adds to its section (``gather``), how tissues of a section relate (``relate``), and what the section tells
each pixel (``refine``). Attention is [receiver, sender] in here.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from research.section_networks.config import SectionConfig
from research.section_networks.sums import SectionSums, pair_tables, weighted_sum
from torch import Tensor, nn

from ntrm.core.errors import UsageError
from ntrm.models.base import TissueGraph

HIDDEN = 16
"""Width of the edge's own little network."""


def masked_softmax(scores: Tensor, presence: Tensor) -> Tensor:
    """Softmax over the last axis, nothing for what is absent; ``presence`` must leave something. Shapes broadcast."""
    return scores.masked_fill(~presence, torch.finfo(scores.dtype).min).softmax(dim=-1)


def by_heads(x: Tensor, heads: int) -> Tensor:
    """(B, M, d) → (B, heads, M, e)."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


class EdgeBias(nn.Module):
    """``b_ij = U·SiLU(V·edge_ij + v)``: what a head adds to the score of sender j for receiver i."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        # Without a bias at the end: what is added to all senders alike, a softmax takes away.
        self.mlp = (
            nn.Sequential(nn.Linear(features, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, heads, bias=False))
            if features
            else None
        )

    def forward(self, edges: Tensor) -> Tensor | None:
        """(B, M, M, F) → (B, heads, M, M), or None where no edge differs from another."""
        return None if self.mlp is None else self.mlp(edges).permute(0, 3, 1, 2)


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


CELL = 4
"""Cells of the 1/8 grid along a side of one of the 1/32 grid."""
BOUND = 8.0
"""Scores of tokens stay within ±8: their exponentials then add up without knowing the largest beforehand."""
CLOSED = -1e4
"""Added to the score of an edge that is cut."""
TOUCHING = 0.01
"""Share of a tissue's contacts that makes an edge in the reported graph; the network itself weighs them all."""


class Related(NamedTuple):
    """Nodes that have spoken with each other, and with what attention."""

    states: Tensor
    """(B, M, d)."""
    presence: Tensor
    """(B, M) bool."""
    attention: Tensor
    """(B, layers, M, M), the mean over heads, [receiver, sender]."""
    bias: Tensor | None
    """(B, M, M), the mean over heads and layers, [receiver, sender]."""


class Tokens(nn.Module):
    """``w_t(x) = exp(8·tanh(q_t·LN(f(x)) / 8))``: attention without its normaliser, which is summed like the rest."""

    def __init__(self, channels: int, count: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)
        self.query = nn.Parameter(torch.randn(count, channels) * channels**-0.5)

    def forward(self, cells: Tensor) -> Tensor:
        """(B, C, h, w) → (B, M, h, w)."""
        normed = self.norm(cells.flatten(2).transpose(1, 2))  # (B, N, C)
        scores = BOUND * torch.tanh(normed @ self.query.t() / BOUND)  # (B, N, M)
        return torch.exp(scores).transpose(1, 2).reshape(cells.shape[0], -1, *cells.shape[2:])


class SectionRelation(nn.Module):
    """Nodes pooled from windows, related in a graph, asked by every pixel.

    Args:
        channels: channels of D2, which is refined.
        deep: channels of E5.
        classes: number of tissues K.
        config: the variant.
    """

    def __init__(self, channels: int, deep: int, classes: int, config: SectionConfig) -> None:
        super().__init__()
        self.config, self.classes = config, classes
        pooled = {"d2": channels, "e5": deep, "both": channels + deep}[config.source]
        count = 1 if config.nodes == "vector" else classes
        self.nodes = NodeStates(pooled, count, config)
        if config.nodes == "tokens":
            self.tokens = Tokens(pooled, count)
        if config.graph != "none":
            edges = 2 * ((config.graph == "contact") + 2 * config.position)
            self.biases = nn.ModuleList(EdgeBias(edges, config.heads) for _ in range(config.layers))
            self.layers = nn.ModuleList(GraphLayer(config.dim, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.dim)
        self.readout = (
            Ask(channels, config.dim, config.heads) if config.readout == "ask" else Paste(channels, config.dim)
        )
        if config.shift:
            self.shift = Shift(classes, config.dim)
        self.cut: Tensor | None = None
        """(M, M) bool [receiver, sender]: edges along which nothing is heard; to see what they are good for."""

    def masks(self, coarse: Tensor, truth: Tensor | None) -> Tensor:
        """Coarse logits (B, K, H2, W2) → the weights under which tissues are pooled, summing to one at every cell.

        ``truth`` (B, H, W) are the true masks of the windows, for ``masks="true"`` alone.
        """
        if self.config.masks == "true":
            return self._true(coarse, truth)
        if self.config.masks == "random":
            return random_blobs(precise(coarse), CELL)
        p = torch.softmax(precise(coarse) / self.config.temperature, dim=1)
        if self.config.masks == "detached":
            return p.detach()
        if self.config.masks == "straight-through":
            chosen = torch.zeros_like(p).scatter(1, p.argmax(dim=1, keepdim=True), 1.0)
            return chosen + p - p.detach()
        return p

    def _true(self, coarse: Tensor, truth: Tensor | None) -> Tensor:
        if truth is None:
            raise UsageError("a network with true masks must be given them", got="none", expected="masks (B, H, W)")
        return shares_on_grid(truth, self.classes, truth.shape[-1] // coarse.shape[-1]).to(precise(coarse).dtype)

    def gather(self, masks: Tensor, d2: Tensor | None, e5: Tensor) -> SectionSums:
        """What each window adds to its section: (B, K, H2, W2), (B, C, H2, W2), (B, C5, H5, W5) → sums of B rows."""
        config = self.config
        pairs = pair_tables(masks, config.maps)
        if config.nodes == "tissue":
            parts = [] if config.looks else [masks.new_zeros(*masks.shape[:2], 0)]
            if d2 is not None and config.source != "e5":
                parts.append(weighted_sum(masks, precise(d2)))
            if config.looks and config.source != "d2":
                # Cells of a block share its features: the sum over the fine grid, without making the features fine.
                parts.append(weighted_sum(F.avg_pool2d(masks, CELL) * CELL**2, precise(e5)))
            return SectionSums(torch.cat(parts, dim=2), masks.sum(dim=(2, 3)), pairs)
        cells = self._cells(d2, e5)
        weights = torch.ones_like(cells[:, :1]) if config.nodes == "vector" else self.tokens(cells)
        return SectionSums(weighted_sum(weights, cells), weights.sum(dim=(2, 3)), pairs)

    def _cells(self, d2: Tensor | None, e5: Tensor) -> Tensor:
        """Features on the 1/32 grid: (B, pooled channels, H5, W5)."""
        parts = [] if d2 is None or self.config.source == "e5" else [F.avg_pool2d(precise(d2), CELL)]
        return torch.cat(parts + ([] if self.config.source == "d2" else [precise(e5)]), dim=1)

    def relate(self, sums: SectionSums) -> Related:
        """Sums of B sections → their nodes after the graph."""
        states, presence, edges = self.nodes(sums)
        attentions, biases = [], []
        if self.config.graph != "none":
            for bias_of, layer in zip(self.biases, self.layers, strict=True):
                bias = bias_of(edges)
                if self.cut is not None:
                    closed = states.new_zeros(self.cut.shape).masked_fill(self.cut, CLOSED)
                    bias = closed.expand(states.shape[0], self.config.heads, -1, -1) if bias is None else bias + closed
                states, attention = layer(states, presence, bias)
                attentions.append(attention.mean(dim=1))
                biases += [] if bias is None else [bias.mean(dim=1)]
        count = states.shape[1]
        stacked = torch.stack(attentions, dim=1) if attentions else states.new_zeros(states.shape[0], 0, count, count)
        mean_bias = torch.stack(biases).mean(dim=0) if biases else None
        return Related(self.norm(states), presence, stacked, mean_bias)

    def refine(self, d2: Tensor, masks: Tensor, sums: SectionSums) -> tuple[Tensor, Related]:
        """D2 (B, C, H2, W2) and what the nodes of its section have to say about it; and the nodes."""
        related = self.relate(sums)
        found: Tensor = self.readout(precise(d2), related.states, related.presence, masks)
        return d2 + found.to(d2.dtype), related

    def shifted(self, logits: Tensor, related: Related) -> Tensor:
        """Final logits (B, K, H, W), each tissue's moved by what its node says about the section."""
        if not self.config.shift:
            return logits
        shift: Tensor = self.shift(related.states)  # (B, K)
        return logits + shift[:, :, None, None].to(logits.dtype)

    def graph(self, sums: SectionSums, related: Related) -> TissueGraph | None:
        """The section's graph of tissues as every network reports it, [sender, receiver]; None without tissues.

        ``area`` is soft and of the whole section. ``boundary`` is the share of a tissue's contacts, where the graph
        knows them.
        """
        if self.config.nodes != "tissue":
            return None
        presence = related.presence
        batch, count = presence.shape
        shares = contact_shares(sums.pairs[:, 0]) if self.config.maps else sums.weight.new_zeros(batch, count, count)
        different = ~torch.eye(count, dtype=torch.bool, device=presence.device)
        pairs = presence.unsqueeze(2) & presence.unsqueeze(1) & different
        if self.config.graph == "contact":
            pairs = pairs & ((shares > TOUCHING) | (shares.mT > TOUCHING))
        elif self.config.graph == "none":
            pairs = torch.zeros_like(pairs)
        weight = torch.zeros_like(shares) if related.bias is None else torch.sigmoid(related.bias.mT)
        weight = torch.where(pairs, weight, torch.zeros_like(weight))
        return TissueGraph(
            presence, sums.weight, pairs, shares, related.attention.transpose(2, 3), weight, related.states
        )


def precise(x: Tensor) -> Tensor:
    """Sums and scores need more than the eight bits of bfloat16's mantissa."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


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
