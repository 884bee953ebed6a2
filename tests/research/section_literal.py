"""The section relation read literally: one cell, one node, one edge, one pixel at a time, in float64.

It shares no code with the package. ``params`` are a module's own tensors by name, as NumPy arrays.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tests.reference.operations import Array, layer_norm, pixels, sigmoid, softmax

Params = Mapping[str, Array]
RADII = (2, 8)


@dataclass(frozen=True)
class LiteralSums:
    """Sums of one window or of one section."""

    features: Array
    """(M, C)."""
    weight: Array
    """(M,)."""
    pairs: Array
    """(R, K, K)."""


def masks_of(logits: Array, kind: str, temperature: float) -> Array:
    """Weights (K, H, W) of the tissues: probabilities, or one for the most probable."""
    out = np.zeros(logits.shape)
    for y, x in pixels(logits[0]):
        shares = softmax([value / temperature for value in logits[:, y, x]])
        if kind == "straight-through":
            shares = [float(c == int(np.argmax(shares))) for c in range(len(shares))]
        out[:, y, x] = shares
    return out


def gather(masks: Array, d2: Array, e5: Array, source: str, maps: int, looks: bool = True) -> LiteralSums:
    """Σ p·f, Σ p, and the pairs, of one window: masks (K, H, W), D2 (C, H, W), E5 (C5, H/4, W/4)."""
    count = len(masks)
    rows: list[Array] = []
    for mask in masks:
        row = []
        if not looks:
            rows.append(np.zeros(0))
            continue
        if source != "e5":
            row.append(sum(mask[y, x] * d2[:, y, x] for y, x in pixels(mask)))
        if source != "d2":
            row.append(sum(mask[y, x] * e5[:, y // 4, x // 4] for y, x in pixels(mask)))
        rows.append(np.concatenate(row))
    tables = [contact(masks), *(nearness(masks, radius) for radius in RADII)][:maps]
    weight = np.array([sum(mask[y, x] for y, x in pixels(mask)) for mask in masks])
    return LiteralSums(np.array(rows), weight, np.array(tables).reshape(maps, count, count))


def gather_cells(d2: Array, e5: Array, source: str, query: Array | None, norm: Params | None) -> LiteralSums:
    """Nodes without classes: cells of the 1/32 grid weighted alike, or by exp(8·tanh(q·LN(f)/8))."""
    height, width = e5.shape[1:]
    sums, weight = 0.0, 0.0
    for y in range(height):
        for x in range(width):
            block = d2[:, 4 * y : 4 * y + 4, 4 * x : 4 * x + 4].mean(axis=(1, 2))
            cell = np.concatenate({"d2": [block], "e5": [e5[:, y, x]], "both": [block, e5[:, y, x]]}[source])
            if query is None or norm is None:
                weights = np.ones(1)
            else:
                normed = layer_norm(cell, norm["weight"], norm["bias"])
                weights = np.array([math.exp(8 * math.tanh(float(q @ normed) / 8)) for q in query])
            sums, weight = sums + np.outer(weights, cell), weight + weights
    return LiteralSums(np.asarray(sums), np.asarray(weight), np.zeros((0, 0, 0)))


def contact(masks: Array) -> Array:
    """C_ij = Σ p_i(x)·p_j(y) over every cell x and each of its four neighbours y."""
    count, height, width = masks.shape
    out = np.zeros((count, count))
    for y in range(height):
        for x in range(width):
            for v, u in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
                if 0 <= v < height and 0 <= u < width:
                    for i in range(count):
                        for j in range(count):
                            out[i, j] += masks[i, y, x] * masks[j, v, u]
    return out


def nearness(masks: Array, radius: int) -> Array:
    """Q_ij = Σ_x p_i(x) · mean of p_j over the square around x, as far as it lies in the window."""
    count, height, width = masks.shape
    out = np.zeros((count, count))
    for y in range(height):
        for x in range(width):
            around = masks[:, max(0, y - radius) : y + radius + 1, max(0, x - radius) : x + radius + 1]
            out += np.outer(masks[:, y, x], around.mean(axis=(1, 2)))
    return out


def add(parts: Sequence[LiteralSums]) -> LiteralSums:
    """Windows of one section."""
    return LiteralSums(
        sum(part.features for part in parts), sum(part.weight for part in parts), sum(part.pairs for part in parts)
    )


def stretched(share: float) -> float:
    """log(1 + 100 s) / log 101."""
    return math.log(1 + 100 * share) / math.log(101)


def linear(x: Array, params: Params, name: str) -> Array:
    """W x + b, without b where there is none."""
    out: Array = params[f"{name}.weight"] @ x
    return out + params[f"{name}.bias"] if f"{name}.bias" in params else out


def norm(x: Array, params: Params, name: str) -> Array:
    """Layer norm by its name."""
    return layer_norm(x, params[f"{name}.weight"], params[f"{name}.bias"])


def shares_of_contact(table: Array) -> Array:
    """Share of i's contacts with others that go to j."""
    out = np.zeros(table.shape)
    for i in range(len(table)):
        whole = sum(table[i, j] for j in range(len(table)) if j != i)
        for j in range(len(table)):
            out[i, j] = table[i, j] / (whole + 1e-6) if i != j else 0.0
    return out


def relate(
    sums: LiteralSums, params: Params, *, nodes: str, graph: str, position: bool, layers: int, heads: int,
    floor: float,
) -> tuple[Array, list[bool], list[Array]]:  # fmt: skip
    """States (M, d) after the graph and the last norm, who is present, and attention (heads, M, M) by layer."""
    count = len(sums.weight)
    area = [weight / (sum(sums.weight) + 1e-6) for weight in sums.weight]
    present = [nodes != "tissue" or share >= floor for share in area]
    near = [table / (sums.weight[:, None] + 1e-6) for table in sums.pairs[1:]]
    states = []
    for c in range(count):
        mean = sums.features[c] / (sums.weight[c] + 1e-6)
        state = params["nodes.embedding"][c]
        if len(mean):
            state = state + linear(norm(mean, params, "nodes.norm"), params, "nodes.project")
        if nodes == "tissue":
            state = state + (1 - math.log(area[c] + 1e-4) / math.log(1e-4)) * params["nodes.area"]
        if position:
            state = state + params["nodes.surroundings.weight"] @ np.array([stretched(s) for s in near[-1][c]])
        states.append(state)
    tables = ([shares_of_contact(sums.pairs[0])] if graph == "contact" else []) + (near if position else [])
    attentions = []
    for number in range(layers if graph != "none" else 0):
        states, attention = _layer(states, present, tables, params, number, heads)
        attentions.append(attention)
    return np.array([norm(state, params, "norm") for state in states]), present, attentions


def _layer(
    states: list[Array],
    present: list[bool],
    tables: list[Array],
    params: Params,
    number: int,
    heads: int,
) -> tuple[list[Array], Array]:
    count, width = len(states), len(states[0]) // heads
    layer, biases = f"layers.{number}", f"biases.{number}"
    normed = [norm(state, params, f"{layer}.norm1") for state in states]
    query, key, value = ([linear(h, params, f"{layer}.{part}") for h in normed] for part in ("query", "key", "value"))
    alpha = np.zeros((heads, count, count))
    updated = []
    for i in range(count):
        heard = np.zeros(len(states[0]))
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            senders = [j for j in range(count) if present[j]]
            scores = []
            for j in senders:
                score = float(query[i][part] @ key[j][part]) / math.sqrt(width)
                if tables:
                    edge = np.array([stretched(t[pair]) for t in tables for pair in ((i, j), (j, i))])
                    hidden = np.array([h * sigmoid(h) for h in linear(edge, params, f"{biases}.mlp.0")])
                    score += float(params[f"{biases}.mlp.2.weight"][head] @ hidden)
                scores.append(score)
            for j, share in zip(senders, softmax(scores), strict=True):
                alpha[head, i, j] = share
                heard[part] += share * value[j][part]
        state = states[i] + linear(heard, params, f"{layer}.out")
        inner = np.maximum(linear(norm(state, params, f"{layer}.norm2"), params, f"{layer}.ffn.0"), 0)
        updated.append(state + linear(inner, params, f"{layer}.ffn.2"))
    return updated, alpha


def ask(features: Array, states: Array, present: Sequence[bool], params: Params, heads: int) -> Array:
    """Every pixel attends to the present nodes and to silence: (C, H, W) → (C, H, W)."""
    out = np.zeros(features.shape)
    width = states.shape[1] // heads
    keys = [linear(h, params, "readout.key") for h, there in zip(states, present, strict=True) if there]
    values = [linear(h, params, "readout.value") for h, there in zip(states, present, strict=True) if there]
    keys.append(params["readout.silence"])
    values.append(np.zeros(states.shape[1]))
    for y, x in pixels(features[0]):
        query = linear(features[:, y, x], params, "readout.query")
        heard = np.zeros(states.shape[1])
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            shares = softmax([float(query[part] @ key[part]) / math.sqrt(width) for key in keys])
            heard[part] = sum(share * value[part] for share, value in zip(shares, values, strict=True))
        out[:, y, x] = linear(heard, params, "readout.out")
    return out


def paste(masks: Array, states: Array, present: Sequence[bool], params: Params) -> Array:
    """Nodes of present tissues where their masks are: (K, H, W) → (C, H, W)."""
    out = np.zeros((len(params["readout.out.bias"]), *masks.shape[1:]))
    for y, x in pixels(masks[0]):
        there = sum(
            (states[c] * masks[c, y, x] for c in range(len(states)) if present[c]), start=np.zeros(states.shape[1])
        )
        out[:, y, x] = linear(there, params, "readout.out")
    return out
