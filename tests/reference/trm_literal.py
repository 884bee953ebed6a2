"""The Tissue Relation Module read literally: one image, one pixel, one class, one edge at a time.

A slow oracle in float64 to hold beside the paper line by line. It shares no code with the package; NumPy stores the
arrays and does the arithmetic of single vectors. Stages carry the specification's names (Reg, Node, Absent, Adj, Bnd,
Edge, Weight, Attn, Sum, Proj). Edges are directed: ``[j, i]`` of an edge array belongs to the message that j sends and
i receives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.reference.operations import (
    Array,
    batch_norm,
    convolve,
    layer_norm,
    leaky_relu,
    max_pool,
    pixels,
    sigmoid,
    softmax,
    total,
)

Flags = NDArray[np.bool_]

VARIANTS: dict[str, tuple[Any, ...]] = {
    "masks": ("hard", "plain", "soft"),
    "order": ("project-first", "mask-first"),
    "layer": ("attention", "sum"),
    "boundary": (True, False),
    "edge_weight": (False, True),
    "absent": ("isolated", "linked"),
    "graph": ("adjacency", "complete", "none"),
    "nodes": ("class", "region"),
    "gate": (False, True),
}
"""Every option with its choices, the paper's own first."""


@dataclass(frozen=True)
class LiteralResult:
    """What the module computes for one image, stage by stage (K tissues, node width d)."""

    features: Array  # D2' (C, H, W)
    presence: Flags  # Whether the hard mask of a tissue holds a pixel (K,)
    area: Array  # Pixels of the hard masks (K,)
    touching: Flags  # Adj as measured on the hard masks (K, K), whichever graph the messages run on
    adjacency: Flags  # The edges that carry messages, A[src, dst] (K, K); empty for ``graph="none"``
    boundary: Array
    """b[i, j] (K, K) for every pair by its formula, also where i = j (1 if present) and where there is no edge."""
    edges: Array  # e[j, i] (K, K, d), zero where there is no edge
    weights: Array  # w[j, i] (K, K), zero where there is no edge; filled whether or not the layers use it
    attention: list[Array]
    """Per layer α[i, j] (K, K), receiver first, zero where there is no edge; empty for the Sum layer and no graph."""
    nodes: list[Array]  # Node states (K, d): after Absent, then after each layer
    projected: Array  # S (d, H, W)


def tissue_relation(
    features: Array,
    probabilities: Array,
    params: dict[str, Any],
    *,
    masks: str = "hard",
    order: str = "project-first",
    layer: str = "attention",
    boundary: bool = True,
    edge_weight: bool = False,
    absent: str = "isolated",
    graph: str = "adjacency",
    nodes: str = "class",
    regions: int = 4,
    gate: bool = False,
    tau: float = 0.5,
) -> LiteralResult:
    """D2 (C, H, W) and p (K, H, W) → D2' and the graph, by the paper's two algorithms.

    ``probabilities`` are compared with ``tau`` as they come: draw them from float32 values where the other side
    thresholds in float32. ``tests.reference.draws.parameters`` shows what ``params`` holds.
    """
    _known_variant(masks=masks, order=order, layer=layer, graph=graph, absent=absent, nodes=nodes)
    hard = np.array([region(p_c, tau, grow=masks != "plain") for p_c in probabilities])
    embeddings, first = params["absent"], np.ones(len(hard), dtype=bool)
    if nodes == "region":
        divided = [divide(mask, regions) for mask in hard]
        probabilities = np.array(
            [p_c * own for p_c, masks_c in zip(probabilities, divided, strict=True) for own in masks_c]
        )
        embeddings = np.array([g_c for g_c in embeddings for _ in range(regions)])
        first = np.array([slot == 0 for _ in hard for slot in range(regions)])
        hard = np.array([own for masks_c in divided for own in masks_c])
    used = probabilities if masks == "soft" else hard
    area = np.array([total(mask) for mask in hard])
    presence = area > 0

    pooled = pool_nodes(features, used, params["psi"], order)
    states = [fill_absent(pooled, presence, embeddings)]

    touching = adjacent(hard)
    ratios = boundary_ratios(hard)
    links = edge_set(touching, presence, graph, absent, first)
    edges = edge_embeddings(states[0], links, ratios if boundary else None, params["edge"])
    weights = edge_weights(edges, links, params["W_e"])
    factors = weights if edge_weight else np.ones_like(weights)

    attention: list[Array] = []
    for at_layer in params["layers"] if graph != "none" else []:
        if layer == "attention":
            attention.append(attention_coefficients(states[-1], links, at_layer))
            states.append(attention_layer(states[-1], links, edges, factors, attention[-1], at_layer))
        else:
            states.append(sum_layer(states[-1], links, edges, factors, at_layer))

    projected = spread(states[-1], used)
    return LiteralResult(
        features=fuse(features, projected, params["proj"], params["gate"] if gate else 1.0),
        presence=presence,
        area=area,
        touching=touching,
        adjacency=links,
        boundary=ratios,
        edges=edges,
        weights=weights,
        attention=attention,
        nodes=states,
        projected=projected,
    )


# --- the stages, in the order of the paper ---


def region(p_c: Array, tau: float, *, grow: bool) -> Array:
    """Reg: M_c = 1[maxpool3(p_c) > τ]; without ``grow`` (variant plain) M_c = 1[p_c > τ]."""
    seen = max_pool(p_c) if grow else p_c
    mask = np.zeros(p_c.shape)
    for y, x in pixels(p_c):
        if seen[y, x] > tau:
            mask[y, x] = 1.0
    return mask


def divide(mask: Array, most: int) -> list[Array]:
    """The connected regions of a mask as ``most`` masks: the largest first, the last with all that are left over."""
    regions: list[set[tuple[int, int]]] = []
    for pixel in pixels(mask):
        if mask[pixel] > 0 and not any(pixel in known for known in regions):
            regions.append(flood(mask, pixel))
    regions.sort(key=len, reverse=True)  # stable: of equal ones the first that was met
    masks = [np.zeros(mask.shape) for _ in range(most)]
    for place, members in enumerate(regions):
        for pixel in members:
            masks[min(place, most - 1)][pixel] = 1.0
    return masks


def flood(mask: Array, start: tuple[int, int]) -> set[tuple[int, int]]:
    """All pixels that can be reached from ``start`` over pixels of the mask that share an edge."""
    reached, ahead = {start}, [start]
    while ahead:
        y, x = ahead.pop()
        for near in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
            inside = 0 <= near[0] < mask.shape[0] and 0 <= near[1] < mask.shape[1]
            if inside and mask[near] > 0 and near not in reached:
                reached.add(near)
                ahead.append(near)
    return reached


def pool_nodes(features: Array, masks: Array, psi: dict[str, Array], order: str) -> Array:
    """Node: h_c = Σ F·M_c / (Σ M_c + 1e-6), with F = ψ(D2), or with F = ψ(D2 ⊙ M_c) if masked first."""
    projected = project(features, psi)
    nodes = []
    for mask in masks:
        source = project(features * mask, psi) if order == "mask-first" else projected
        gathered = np.zeros(source.shape[0])
        for y, x in pixels(mask):
            gathered += source[:, y, x] * mask[y, x]
        nodes.append(gathered / (total(mask) + 1e-6))
    return np.array(nodes)


def project(features: Array, psi: dict[str, Array]) -> Array:
    """ψ: 3×3 convolution without bias, batch norm, ReLU; (C, H, W) → (d, H, W)."""
    return np.maximum(batch_norm(convolve(features, psi["weight"]), psi), 0.0)


def fill_absent(nodes: Array, presence: Flags, embeddings: Array) -> Array:
    """Absent: h_c = g_c where the hard mask of c is empty."""
    return np.array([nodes[c] if presence[c] else embeddings[c] for c in range(len(nodes))])


def adjacent(masks: Array) -> Flags:
    """Adj: (i, j) ∈ E ⇔ Σ dilate(M_i)·dilate(M_j) > 0, i ≠ j."""
    dilated = [max_pool(mask) for mask in masks]
    touching = np.zeros((len(masks), len(masks)), dtype=bool)
    for i, j in _pairs(len(masks)):
        touching[i, j] = i != j and _overlap(dilated[i], dilated[j]) > 0
    return touching


def boundary_ratios(masks: Array) -> Array:
    """Bnd: b_ij = Σ M_i·dilate(M_j) / Σ M_i, and 0 where M_i is empty."""
    dilated = [max_pool(mask) for mask in masks]
    ratios = np.zeros((len(masks), len(masks)))
    for i, mask in enumerate(masks):
        area = total(mask)
        for j in range(len(masks)):
            ratios[i, j] = _overlap(mask, dilated[j]) / area if area > 0 else 0.0
    return ratios


def edge_set(touching: Flags, presence: Flags, graph: str, absent: str, first: Flags) -> Flags:
    """The edges (src, dst) messages take: adjacent pairs, every present pair, or none.

    Linked adds absent → present, from the ``first`` node of each tissue.
    """
    links = np.zeros_like(touching)
    for src, dst in _pairs(len(presence)):
        if graph == "none" or src == dst:
            continue
        complete = graph == "complete" and presence[src] and presence[dst]
        adjacency = graph == "adjacency" and touching[src, dst]
        linked = absent == "linked" and first[src] and not presence[src] and presence[dst]
        links[src, dst] = complete or adjacency or linked
    return links


def edge_embeddings(nodes: Array, links: Flags, ratios: Array | None, mlp: dict[str, Array]) -> Array:
    """Edge: e_ji = W_2 ReLU(W_1 [h_j ‖ h_i ‖ b_ji ‖ b_ij] + b_1) + b_2; [h_j ‖ h_i] alone without ``ratios``."""
    count, width = nodes.shape
    edges = np.zeros((count, count, width))
    for j, i in _edges(links):
        pair = [nodes[j], nodes[i]]
        if ratios is not None:
            pair.append(np.array([ratios[j, i], ratios[i, j]]))
        hidden = np.maximum(mlp["w1"] @ np.concatenate(pair) + mlp["b1"], 0.0)
        edges[j, i] = mlp["w2"] @ hidden + mlp["b2"]
    return edges


def edge_weights(edges: Array, links: Flags, matrix: Array) -> Array:
    """Weight: w_ji = sigmoid(e_jiᵀ W_e e_ji)."""
    weights = np.zeros(links.shape)
    for j, i in _edges(links):
        weights[j, i] = sigmoid(edges[j, i] @ matrix @ edges[j, i])
    return weights


def attention_coefficients(nodes: Array, links: Flags, layer: dict[str, Array]) -> Array:
    """Attn: a_ij = LeakyReLU(qᵀ[W h_i ‖ W h_j]); α_ij = exp(a_ij) / Σ_k exp(a_ik) over the senders k of i."""
    alpha = np.zeros(links.shape)
    for i in range(len(nodes)):
        senders = _senders(links, i)
        scores = []
        for j in senders:
            both = np.concatenate([layer["W"] @ nodes[i], layer["W"] @ nodes[j]])
            scores.append(leaky_relu(layer["q"] @ both))
        for j, coefficient in zip(senders, softmax(scores), strict=True):
            alpha[i, j] = coefficient
    return alpha


def attention_layer(
    nodes: Array, links: Flags, edges: Array, factors: Array, alpha: Array, layer: dict[str, Array]
) -> Array:
    """Attn: h̃_i = LN(h_i + Σ_j α_ij · w_ji · (W h_j ⊙ e_ji)); h_i ← LN(h̃_i + FFN(h̃_i))."""
    updated = np.zeros_like(nodes)
    for i in range(len(nodes)):
        received = np.zeros(nodes.shape[1])
        for j in _senders(links, i):
            received += alpha[i, j] * factors[j, i] * ((layer["W"] @ nodes[j]) * edges[j, i])
        middle = layer_norm(nodes[i] + received, layer["ln1_weight"], layer["ln1_bias"])
        inner = np.maximum(layer["ffn_w1"] @ middle + layer["ffn_b1"], 0.0)
        feed_forward = layer["ffn_w2"] @ inner + layer["ffn_b2"]
        updated[i] = layer_norm(middle + feed_forward, layer["ln2_weight"], layer["ln2_bias"])
    return updated


def sum_layer(nodes: Array, links: Flags, edges: Array, factors: Array, layer: dict[str, Array]) -> Array:
    """Sum: h_i ← ReLU(Σ_j w_ji · (W h_j ⊙ e_ji) + bias)."""
    updated = np.zeros_like(nodes)
    for i in range(len(nodes)):
        received = np.zeros(nodes.shape[1])
        for j in _senders(links, i):
            received += factors[j, i] * ((layer["W"] @ nodes[j]) * edges[j, i])
        updated[i] = np.maximum(received + layer["bias"], 0.0)
    return updated


def spread(nodes: Array, masks: Array) -> Array:
    """Proj, first half: S = Σ_c h_c ⊗ M_c."""
    spatial = np.zeros((nodes.shape[1], *masks.shape[1:]))
    for h_c, mask in zip(nodes, masks, strict=True):
        for y, x in pixels(mask):
            spatial[:, y, x] += h_c * mask[y, x]
    return spatial


def fuse(features: Array, spatial: Array, proj: dict[str, Array], gate: float) -> Array:
    """Proj, second half: S' = g·BN(Conv1×1(S)), g = 1 in the paper; D2' = D2 + S'."""
    mixed = np.zeros_like(features)
    for y, x in pixels(features[0]):
        mixed[:, y, x] = proj["weight"] @ spatial[:, y, x] + proj["bias"]
    return features + gate * batch_norm(mixed, proj)


# --- walking the graph ---


def _overlap(a: Array, b: Array) -> float:
    """Σ a·b over the pixels."""
    return float(a.ravel() @ b.ravel())


def _pairs(count: int) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(count) for j in range(count))


def _edges(links: Flags) -> Iterator[tuple[int, int]]:
    return ((j, i) for j, i in _pairs(len(links)) if links[j, i])


def _senders(links: Flags, i: int) -> list[int]:
    """N(i) = { j : (j, i) ∈ E }."""
    return [j for j in range(len(links)) if links[j, i]]


def _known_variant(**chosen: str) -> None:
    """Refuse an unknown name: read as "the other choice", it would make a comparison pass for the wrong variant."""
    for option, value in chosen.items():
        if value not in VARIANTS[option]:
            raise ValueError(f"{option}: got {value!r}, expected one of {', '.join(VARIANTS[option])}")
