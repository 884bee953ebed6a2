"""Costs: parameters and operations of networks, and the stages of the relation module, counted and timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from ntrm.core.labels import LabelSchema
from ntrm.models.config import Option
from ntrm.models.ntrm import NTRM
from ntrm.models.predictor import Predictor
from ntrm.models.registry import create
from ntrm.models.trm import TissueRelation, edges, nodes
from ntrm.paper.plan import Variant
from ntrm.paper.result_tables import Cell, ResultTable, Row


def network_cost(arch: str, classes: int | LabelSchema, window: int, options: Mapping[str, Option]) -> tuple[int, int]:
    """Parameters of a network, and floating-point operations of one forward pass on one window.

    A multiplication and an addition are two operations. Nothing is computed: the tensors have shapes but no values.
    """
    with FakeTensorMode(), torch.no_grad():
        keywords: dict[str, Any] = dict(options)
        network = create(arch, classes, **keywords).eval()
        # The counter does not know the fused attention of CPUs; written out, its products are counted.
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            network(torch.empty(1, 3, window, window))
    return sum(p.numel() for p in network.parameters()), counter.get_total_flops()


def networks_table(variants: Sequence[Variant], schema: LabelSchema, window: int) -> ResultTable:
    """Parameters and operations of every system."""
    rows: list[Row] = []
    for variant in variants:
        parameters, operations = network_cost(variant.arch, schema, window, dict(variant.options))
        sizes: Row = {"parameters (million)": f"{parameters / 1e6:.2f}", "GFLOP per window": f"{operations / 1e9:.2f}"}
        rows.append({"system": variant.title, "network": variant.arch, **sizes})
    note = (
        f"One window of {window} × {window} pixels. Convolutions and products of matrices are counted; thresholds, "
        "max-pools and norms are not."
    )
    return ResultTable("complexity_networks", "Size of the networks", rows, note)


def stages_table(predictor: Predictor, windows: Sequence[NDArray[np.uint8]]) -> ResultTable | None:
    """The paper's complexity of the relation module, and the time that each stage takes on what really reaches it.

    None for a network without a relation module that has a graph.
    """
    network = predictor.network
    relation = network.relation if isinstance(network, NTRM) else None
    if relation is None or relation.config.graph == "none":
        return None
    caught: list[tuple[Tensor, Tensor]] = []
    hook = relation.register_forward_pre_hook(lambda _, inputs: caught.append(inputs))
    pixels = np.stack(windows[: predictor.batch])
    try:
        out = predictor.probabilities(pixels, graph=True)
    finally:
        hook.remove()
    features, probabilities = (tensor.float() for tensor in caught[0])
    edge_count = 0.0 if out.graph is None else float(out.graph.adjacency.float().sum(dim=(1, 2)).mean())
    (count, c, height, width), k = features.shape, probabilities.shape[1]
    n, d, layers = height * width, relation.config.dim, relation.config.layers
    sizes = {"K": k, "N": n, "d": d, "L": layers, "E": edge_count, "C": c}
    with torch.inference_mode():
        planned = _plan_stages(relation, features, probabilities, sizes)
        calls = [*(call for *_, call in planned), lambda: predictor.probabilities(pixels)]
        *micros, whole = (1e6 * seconds / count for seconds in _in_turns(calls, predictor.device))
    space, total = n * d + k * n + k * d + edge_count * d, sum(micros)
    header = ("stage", "the paper's formula", "operations by it", "µs per window", "share, %", "remark")
    rows: list[tuple[Cell, ...]] = [
        (name, formula, round(operations), f"{took:.1f}", f"{100 * took / total:.0f}", remark)
        for (name, formula, remark, operations, _), took in zip(planned, micros, strict=True)
    ]
    memory = f"numbers, {4 * space / 1e6:.2f} MB as float32"
    rows += [
        ("a plain 3×3 convolution", "N·C²·k²", round(9 * n * c * c), None, None, "at this grid, to compare"),
        ("space", "N·d + K·N + K·d + |E|·d", round(space), None, None, memory),
        ("all stages", None, None, f"{total:.1f}", "100", f"the whole network takes {whole:.1f} µs"),
    ]
    longest, *_ = planned[int(np.argmax(micros))]
    note = (
        f"K = {k} tissues, N = {n} places, d = {d}, L = {layers}, C = {c}, |E| = {edge_count:.1f} edges on "
        f"average; real test windows, uncompiled, on {predictor.device}. "
        f"The paper says that K·N·d dominates; measured, {longest} takes longest."
    )
    title, by_column = "Complexity of the relation module", [dict(zip(header, row, strict=True)) for row in rows]
    return ResultTable("complexity_stages", title, by_column, note)


def _plan_stages(
    relation: TissueRelation, features: Tensor, probabilities: Tensor, sizes: Mapping[str, float]
) -> list[tuple[str, str, str, float, Callable[[], Any]]]:
    """Name, formula, remark, operations by the formula, and the stage itself as a call that depends on no other."""
    config = relation.config
    k, n, d, layers, e, c = (sizes[name] for name in ("K", "N", "d", "L", "E", "C"))
    hard = nodes.propose(probabilities, config.tau, pooled=config.masks != "plain")
    masks = probabilities if config.masks == "soft" else hard
    _, touching, ratios = edges.contacts(hard)
    refined = relation.psi(features)
    states = nodes.pool(refined, masks)
    embedded = relation.edge(states, ratios)

    def pass_messages() -> Tensor:
        state = states
        for layer in relation.layers:
            state, _ = layer(state, touching, embedded, None)
        return state

    convolution = "a 3×3 convolution, more than K·N·d where 9·C > K"
    stated, all_pairs = "stated, but left out of the paper's total", "computed for all K² pairs here, |E| of them count"
    return [
        ("Reg", "K·N", "", k * n, lambda: nodes.propose(probabilities, config.tau, pooled=config.masks != "plain")),
        ("ψ", "not in the paper's sum: 9·C·d·N", convolution, 9 * c * d * n, lambda: relation.psi(features)),
        ("Node", "K·N·d", "", k * n * d, lambda: nodes.pool(refined, masks)),
        ("Adj, Bnd", "K²·N", stated, k * k * n, lambda: edges.contacts(hard)),
        ("Edge", "K²·d²", "", k * k * d * d, lambda: relation.edge(states, ratios)),
        ("layers", "L·|E|·d²", all_pairs, layers * e * d * d, pass_messages),
        ("Proj", "K·N·d", "", k * n * d, lambda: relation.projection(states, masks)),
    ]


def _in_turns(calls: Sequence[Callable[[], Any]], device: torch.device) -> list[float]:
    """Median seconds of each call, timed in turns so that a drift of the machine hits all of them."""
    wait: Callable[[], object] = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    rounds: list[list[float]] = [[] for _ in calls]
    for _ in range(6):  # the first round warms up
        for seconds, call in zip(rounds, calls, strict=True):
            wait()
            begin = time.perf_counter()
            call()
            wait()
            seconds.append(time.perf_counter() - begin)
    return [statistics.median(seconds[1:]) for seconds in rounds]
