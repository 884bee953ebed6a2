"""The tissue relation module: features and coarse probabilities in, refined features and the tissue graph out."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from ntrm.core.errors import UsageError, check_number, choices_error
from ntrm.models.base import NetworkGraph
from ntrm.models.blocks import conv_bn_relu, initialise
from ntrm.models.trm.components import by_class, split_into_regions
from ntrm.models.trm.edges import EdgeEmbedding, EdgeWeight, contacts, link
from ntrm.models.trm.message_passing import LAYERS
from ntrm.models.trm.nodes import Projection, pool, propose, replace_absent

CHOICES = {
    "masks": ("hard", "plain", "soft"),
    "order": ("project-first", "mask-first"),
    "layer": tuple(LAYERS),
    "absent": ("isolated", "linked"),
    "graph": ("adjacency", "complete", "none"),
    "nodes": ("class", "region"),
}

MOST_DIM, MOST_LAYERS, MOST_REGIONS, MOST_NODES = 4096, 64, 64, 1024
"""A config from outside must not be able to ask for all the memory there is."""


@dataclass(frozen=True)
class RelationConfig:
    """The variants of the module, by name; the defaults are the paper's letter (``ntrm-paper``)."""

    masks: str = "hard"
    """``hard``: max-pool, then threshold · ``plain``: threshold alone · ``soft``: probabilities pool and project."""
    order: str = "project-first"
    """``project-first``: ψ once, then masks · ``mask-first``: features masked, then ψ for each tissue."""
    layer: str = "attention"  # ``attention`` (supplement) · ``sum`` (main text)
    boundary: bool = True  # Whether edges know the boundary ratios
    edge_weight: bool = False  # Whether messages are multiplied by the edge weight
    absent: str = "isolated"  # ``isolated``: absent tissues have no edge · ``linked``: they send to every present one
    graph: str = "adjacency"
    """``adjacency`` · ``complete``: every present pair · ``none``: pooled nodes are projected unchanged."""
    nodes: str = "class"  # ``class``: a node is a tissue · ``region``: a connected region of a tissue
    regions: int = 4
    """Most regions of a tissue that are nodes of their own, the largest first; the others join the last."""
    gate: bool = False  # Whether what the module adds is multiplied by a learned number that starts at 0
    dim: int = 128
    layers: int = 3
    tau: float = 0.5

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise choices_error(f"unknown value of {name}", getattr(self, name), choices)
        for field in fields(self):
            if isinstance(field.default, bool) and not isinstance(getattr(self, field.name), bool):
                raise UsageError(f"{field.name} is a switch", got=getattr(self, field.name), expected="true or false")
        check_number("dim", self.dim, 1, MOST_DIM, whole=True)
        check_number("layers", self.layers, 1, MOST_LAYERS, whole=True)
        check_number("regions", self.regions, 1, MOST_REGIONS, whole=True)
        check_number("tau", self.tau, 0.001, 0.999)

    @property
    def nodes_per_class(self) -> int:
        """R where nodes are regions, else 1."""
        return self.regions if self.nodes == "region" else 1


class TissueRelation(nn.Module):
    """``TissueRelation(channels, classes)(features, probabilities) → features, graph``.

    Usable in any network that has a feature map and class probabilities on the same grid.

    Args:
        channels: channels C of the feature map (D2 in NTRM), before and after.
        classes: number of tissues K.
        config: the variant.
    """

    def __init__(self, channels: int, classes: int, config: RelationConfig | None = None) -> None:
        super().__init__()
        self.config = config = config or RelationConfig()
        check_number("nodes of the graph", classes * config.nodes_per_class, 1, MOST_NODES, whole=True)
        self.psi = conv_bn_relu(channels, config.dim)
        initialise(self.psi)
        self.absent = nn.Parameter(torch.randn(classes, config.dim) * 0.02)
        self.projection = Projection(config.dim, channels, gated=config.gate)
        if config.graph != "none":
            self.edge = EdgeEmbedding(config.dim, boundary=config.boundary)
            self.edge_weight = EdgeWeight(config.dim)
            self.layers = nn.ModuleList(LAYERS[config.layer](config.dim) for _ in range(config.layers))

    def forward(self, features: Tensor, probabilities: Tensor) -> tuple[Tensor, NetworkGraph]:
        """D2 (B, C, H2, W2) and p (B, K, H2, W2) → D2' (B, C, H2, W2) and the graph of tissues of each image."""
        probabilities, hard = self._propose(probabilities)
        refined, graph = self._refine(features, probabilities, hard)
        if self.config.nodes == "region":
            with torch.autocast(device_type=features.device.type, enabled=False):
                graph = by_class(graph, contacts(hard), self.config.regions)
        return refined, graph

    def relate_regions(self, features: Tensor, probabilities: Tensor) -> tuple[Tensor, NetworkGraph]:
        """As ``forward``, with the graph that messages pass over: K·R nodes, where nodes are regions."""
        return self._refine(features, *self._propose(probabilities))

    def without_gradient(self) -> dict[str, str]:
        """Parameters that never receive a gradient in this variant, with the reason."""
        config, reasons, passes = self.config, {}, self.config.graph != "none"
        if passes and not config.edge_weight:
            reasons["edge_weight.form"] = "no message is multiplied by the edge weights"
        sends = passes and config.absent == "linked"
        # Sum keeps nothing of a node's own state, so an isolated one forgets its embedding in the first layer.
        projected = config.masks == "soft" and config.nodes == "class" and not (passes and config.layer == "sum")
        if not (sends or projected):
            reasons["absent"] = "an absent tissue has no edge, and its state reaches no pixel"
        return reasons

    def _propose(self, probabilities: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities and hard masks of the tissues, precise enough to count: (B, K, H2, W2) both."""
        # Counts and ratios need more than the eight bits of bfloat16's mantissa, whatever the network runs in.
        probabilities = precise(probabilities)
        return probabilities, propose(probabilities, self.config.tau, pooled=self.config.masks != "plain")

    def _refine(self, features: Tensor, probabilities: Tensor, hard: Tensor) -> tuple[Tensor, NetworkGraph]:
        """D2' and the graph of the nodes, V in number: tissues, or regions of tissues."""
        learned = self.absent.repeat_interleave(self.config.nodes_per_class, 0)
        if self.config.nodes == "region":
            hard = split_into_regions(hard, self.config.regions)
            probabilities = probabilities.repeat_interleave(self.config.regions, 1) * hard
        masks = probabilities if self.config.masks == "soft" else hard
        with torch.autocast(device_type=features.device.type, enabled=False):
            area, touching, ratios = contacts(hard)
        nodes = self._nodes(features, masks).to(learned.dtype)  # of a network in half precision, after the sums
        with torch.autocast(device_type=features.device.type, enabled=False):
            nodes = replace_absent(nodes, area > 0, learned)
            nodes, graph = self._relate(nodes, area, touching, ratios)
        return features + self.projection(nodes, masks).to(features.dtype), graph

    def _nodes(self, features: Tensor, masks: Tensor) -> Tensor:
        """Node, in the order of the variant. (B, C, H2, W2), (B, K, H2, W2) → (B, K, d)."""
        if self.config.order == "project-first":
            return pool(precise(self.psi(features)), masks)
        # Tissue by tissue, so that no (B, K, d, H2, W2) tensor is ever held.
        masked = ((features * mask.to(features.dtype), mask) for mask in torch.split(masks, 1, dim=1))
        return torch.cat([pool(precise(self.psi(own)), mask) for own, mask in masked], dim=1)

    def _relate(self, nodes: Tensor, area: Tensor, touching: Tensor, ratios: Tensor) -> tuple[Tensor, NetworkGraph]:
        """Edge, Weight and the layers: (B, K, d) → (B, K, d) and the graph."""
        config, presence, senders = self.config, area > 0, None
        if config.absent == "linked":
            # Of a tissue's regions the first sends, which is empty only if all are.
            senders = ~presence & (torch.arange(area.shape[1], device=area.device) % config.nodes_per_class == 0)
        edges = link(touching, presence, complete=config.graph == "complete", senders=senders)
        attention = nodes.new_zeros(area.shape[0], 0, *edges.shape[1:])
        if config.graph == "none":
            none = torch.zeros_like(edges)
            return nodes, NetworkGraph(presence, area, none, ratios, attention, none.to(nodes.dtype), nodes)
        embedded = self.edge(nodes, ratios.to(nodes.dtype))
        weights = self.edge_weight(embedded, edges)
        attentions = []
        for layer in self.layers:
            nodes, alpha = layer(nodes, edges, embedded, weights if config.edge_weight else None)
            attentions.append(alpha)
        if config.layer == "attention":
            attention = torch.stack(attentions, dim=1)
        return nodes, NetworkGraph(presence, area, edges, ratios, attention, weights, nodes)


def trains_edge_weights(network: nn.Module) -> bool:
    """Whether a network multiplies messages by its edge weights: else they get no gradient, and mean nothing."""
    configs = (module.config for module in network.modules() if isinstance(module, TissueRelation))
    return any(config.edge_weight and config.graph != "none" for config in configs)


def class_probabilities(logits: Tensor) -> Tensor:
    """Softmax (B, K, H2, W2), in float32 whatever the network runs in: thresholds decide presence and edges."""
    return torch.softmax(logits, dim=1, dtype=torch.promote_types(logits.dtype, torch.float32))


def precise(x: Tensor) -> Tensor:
    """Half precision as float32; anything else as it is."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
