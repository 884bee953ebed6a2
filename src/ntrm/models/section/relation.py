"""The section relation as a whole: what a window adds to its section, and what the section tells each pixel."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ntrm.core.errors import UsageError
from ntrm.models.base import TissueGraph
from ntrm.models.section.config import SectionConfig
from ntrm.models.section.further import FurtherNodes, random_blobs
from ntrm.models.section.layers import EdgeBias, GraphLayer
from ntrm.models.section.nodes import NodeStates, contact_shares, stretched
from ntrm.models.section.readout import Ask, Paste, Shift
from ntrm.models.section.sums import SectionSums, pair_tables, weighted_sum

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
            self.biases = nn.ModuleList(
                EdgeBias(edges, count, config.heads, prior=config.prior) for _ in range(config.layers)
            )
            self.layers = nn.ModuleList(GraphLayer(config.dim, config.heads) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.dim)
        if config.further:
            self.further = FurtherNodes(channels, classes, config)
        self.readout = (
            Ask(channels, config.dim, config.heads) if config.readout == "ask" else Paste(channels, config.dim)
        )
        if config.shift:
            self.shift = Shift(classes, config.dim)
        if config.rounds > 1:
            self.revise = nn.Conv2d(channels, classes, kernel_size=1)
            nn.init.zeros_(self.revise.weight)
            nn.init.zeros_(self.revise.bias)  # type: ignore[arg-type]
        if any(index >= classes for index in config.cancer_indices):
            raise UsageError("no such tissue", got=f"cancers {config.cancers}", expected=f"indices below {classes}")
        self.told: Tensor | None = None
        """(B, K, H2, W2) true shares of the next windows, for ``masks="true"``."""
        self.cut: Tensor | None = None
        """(M, M) bool [receiver, sender]: edges along which nothing is heard; to see what they are good for."""

    def masks(self, coarse: Tensor) -> Tensor:
        """Coarse logits (B, K, H2, W2) → the weights under which tissues are pooled, summing to one at every cell."""
        if self.config.masks == "true":
            return self._true(coarse)
        if self.config.masks == "random":
            return random_blobs(precise(coarse), CELL)
        p = torch.softmax(precise(coarse) / self.config.temperature, dim=1)
        if self.config.masks == "detached":
            return p.detach()
        if self.config.masks == "straight-through":
            chosen = torch.zeros_like(p).scatter(1, p.argmax(dim=1, keepdim=True), 1.0)
            return chosen + p - p.detach()
        return p

    def _true(self, coarse: Tensor) -> Tensor:
        if self.told is None or self.told.shape != coarse.shape:
            raise UsageError(
                "a network with true masks must be told them",
                got="none" if self.told is None else f"masks for {tuple(self.told.shape)}",
                expected=f"masks for {tuple(coarse.shape)}",
                mend="call tell() with the masks of the windows before; it is for studies, not for use",
            )
        return self.told.to(precise(coarse).dtype)

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

    def round(self, d2: Tensor, masks: Tensor, sums: SectionSums) -> tuple[Tensor, Related]:
        """D2 (B, C, H2, W2) and what the nodes of its section have to say about it; and the nodes."""
        related = self.relate(sums)
        states, presence = related.states, related.presence
        if self.config.further:
            states, presence = self.further(precise(d2), masks, sums, states, presence)
        found: Tensor = self.readout(precise(d2), states, presence, masks)
        return d2 + found.to(d2.dtype), related

    def shifted(self, logits: Tensor, related: Related) -> Tensor:
        """Final logits (B, K, H, W), each tissue's moved by what its node says about the section."""
        if not self.config.shift:
            return logits
        shift: Tensor = self.shift(related.states)  # (B, K)
        return logits + shift[:, :, None, None].to(logits.dtype)

    def revised(self, coarse: Tensor, refined: Tensor) -> Tensor:
        """Coarse logits after a round: (B, K, H2, W2), (B, C, H2, W2) → (B, K, H2, W2)."""
        out: Tensor = precise(coarse) + self.revise(precise(refined))
        return out

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

    def set_prior(self, contacts: Tensor) -> None:
        """Start the bias of each pair of tissues at how often they touch: counts (K, K) of contacts."""
        shares = stretched(contact_shares(contacts.double()))
        for name, parameter in self.biases.named_parameters():
            if name.endswith("prior"):
                with torch.no_grad():
                    parameter.copy_(shares.expand_as(parameter))

    def without_gradient(self) -> dict[str, str]:
        """Parameters that never receive a gradient in this variant, with the reason."""
        return {}


def precise(x: Tensor) -> Tensor:
    """Sums and scores need more than the eight bits of bfloat16's mantissa."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
