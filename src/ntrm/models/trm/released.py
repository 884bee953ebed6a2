"""The relation module of the code that the paper's authors released (github.com/shravan-18/NTRM).

It differs from the paper. Every pair of present tissues has an edge, and edges know no boundary. Masked features go
through one more 1×1 convolution before they are pooled. Layers sum, then norm; the embedding of an absent tissue comes
after them; what is projected is positive.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ntrm.models.base import NetworkGraph
from ntrm.models.blocks import conv_bn_relu, initialise
from ntrm.models.trm.message_passing import SumLayer
from ntrm.models.trm.module import RelationConfig, TissueRelation, precise
from ntrm.models.trm.nodes import Projection, pool, replace_absent


class ReleasedRelation(TissueRelation):
    """``config`` is expected to have a complete graph, no boundary, and the layer ``sum``."""

    def __init__(self, channels: int, classes: int, config: RelationConfig) -> None:
        super().__init__(channels, classes, config)
        self.point = conv_bn_relu(config.dim, config.dim, kernel=1)
        initialise(self.point)
        self.layers = nn.ModuleList(NormedLayer(config.dim, residual=place > 0) for place in range(config.layers))
        self.projection = PositiveProjection(config.dim, channels)

    def _nodes(self, features: Tensor, masks: Tensor) -> Tensor:
        """ψ once, then tissue by tissue: batch norm sees each masked map by itself, with the zeros around the mask."""
        features = self.psi(features)
        masked = ((features * mask.to(features.dtype), mask) for mask in torch.split(masks, 1, dim=1))
        return torch.cat([pool(precise(self.point(own)), mask) for own, mask in masked], dim=1)

    def _relate(self, nodes: Tensor, area: Tensor, touching: Tensor, ratios: Tensor) -> tuple[Tensor, NetworkGraph]:
        """An absent tissue has no edge, so that its state before the layers does not matter."""
        nodes, graph = super()._relate(nodes, area, touching, ratios)
        nodes = replace_absent(nodes, graph.presence, self.absent)
        return nodes, graph._replace(nodes=nodes)


class NormedLayer(SumLayer):
    """``h_i ← h_i + LN(ReLU(Σ_j W h_j ⊙ e_ji + bias))``; the first layer is without the residual."""

    def __init__(self, dim: int, *, residual: bool) -> None:
        super().__init__(dim)
        self.norm = nn.LayerNorm(dim)
        self.residual = residual

    def forward(self, nodes: Tensor, edges: Tensor, embedded: Tensor, weights: Tensor | None) -> tuple[Tensor, None]:
        """(B, K, d), (B, K, K), (B, K, K, d), (B, K, K) → nodes (B, K, d), no attention."""
        summed, _ = super().forward(nodes, edges, embedded, weights)
        normed: Tensor = self.norm(summed)
        return nodes + normed if self.residual else normed, None


class PositiveProjection(Projection):
    """``S' = ReLU(BN(Conv1×1(S)))``."""

    def forward(self, nodes: Tensor, masks: Tensor) -> Tensor:
        """(B, K, d), (B, K, H2, W2) → (B, C, H2, W2)."""
        return torch.relu(super().forward(nodes, masks))
