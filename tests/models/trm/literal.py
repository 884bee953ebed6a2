"""The same numbers for both sides: the module's parameters from the oracle's, and one comparison of everything."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tests.reference.trm_literal import LiteralResult, tissue_relation
from torch import Tensor

from ntrm.models.base import NetworkGraph
from ntrm.models.trm import RelationConfig, TissueRelation


def module_with(params: dict[str, Any], channels: int, classes: int, config: RelationConfig) -> TissueRelation:
    """The fast module in float64 and inference mode, holding the oracle's parameters."""
    module = TissueRelation(channels, classes, config).double().eval()
    module.load_state_dict({key: torch.as_tensor(value) for key, value in _state(params, config).items()})
    return module


def _state(params: dict[str, Any], config: RelationConfig) -> dict[str, Any]:
    state = {
        "psi.0.weight": params["psi"]["weight"],
        **_batch_norm("psi.1", params["psi"]),
        "absent": params["absent"],
        "projection.conv.weight": params["proj"]["weight"][:, :, None, None],
        "projection.conv.bias": params["proj"]["bias"],
        **_batch_norm("projection.norm", params["proj"]),
    }
    if config.gate:
        state |= {"projection.gate": params["gate"]}
    if config.graph == "none":
        return state
    state |= {"edge.first.weight": params["edge"]["w1"], "edge.first.bias": params["edge"]["b1"]}
    state |= {"edge.second.weight": params["edge"]["w2"], "edge.second.bias": params["edge"]["b2"]}
    # The module multiplies from the right, e @ form · e, which is eᵀ W_e e with the same matrix.
    state |= {"edge_weight.form": params["W_e"]}
    for k, layer in enumerate(params["layers"]):
        state |= {f"layers.{k}.{name}": value for name, value in _layer(layer).items()}
    return state


def _batch_norm(prefix: str, params: dict[str, Any]) -> dict[str, Any]:
    names = {"weight": "bn_weight", "bias": "bn_bias", "running_mean": "bn_mean", "running_var": "bn_var"}
    return {f"{prefix}.{ours}": params[theirs] for ours, theirs in names.items()} | {
        f"{prefix}.num_batches_tracked": np.array(0)
    }


def _layer(layer: dict[str, Any]) -> dict[str, Any]:
    if "q" not in layer:
        return {"transform.weight": layer["W"], "bias": layer["bias"]}
    return {
        "transform.weight": layer["W"],
        "query": layer["q"][None],
        "norm1.weight": layer["ln1_weight"],
        "norm1.bias": layer["ln1_bias"],
        "ffn.0.weight": layer["ffn_w1"],
        "ffn.0.bias": layer["ffn_b1"],
        "ffn.2.weight": layer["ffn_w2"],
        "ffn.2.bias": layer["ffn_b2"],
        "norm2.weight": layer["ln2_weight"],
        "norm2.bias": layer["ln2_bias"],
    }


def literal(features: np.ndarray, probabilities: np.ndarray, params: dict[str, Any], config: RelationConfig) -> Any:
    """The oracle, image by image."""
    options = {
        key: getattr(config, key)
        for key in ("masks", "order", "layer", "boundary", "edge_weight", "absent", "nodes", "regions", "gate")
    }
    return [
        tissue_relation(f, p, params, graph=config.graph, tau=config.tau, **options)
        for f, p in zip(features, probabilities, strict=True)
    ]


def assert_same(refined: Tensor, graph: NetworkGraph, expected: list[LiteralResult], tolerance: float = 1e-9) -> None:
    """Every output of the module equals the oracle's."""
    for b, result in enumerate(expected):
        assert np.array_equal(graph.presence[b].numpy(), result.presence)
        assert np.array_equal(graph.area[b].numpy(), result.area)
        assert np.array_equal(graph.adjacency[b].numpy(), result.adjacency)
        close = {
            "features": (refined[b], result.features),
            "boundary": (graph.boundary[b], result.boundary),
            "weights": (graph.edge_weights[b], result.weights),
            "nodes": (graph.nodes[b], result.nodes[-1]),
        }
        for k, alpha in enumerate(result.attention):
            # The oracle has the receiver first, the graph the sender.
            close[f"attention {k}"] = (graph.attention[b, k], alpha.T)
        for name, (ours, theirs) in close.items():
            np.testing.assert_allclose(ours.detach().numpy(), theirs, atol=tolerance, rtol=tolerance, err_msg=name)
        assert graph.attention.shape[1] == len(result.attention)
