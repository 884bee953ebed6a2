"""Carry the names that a person gave to some nodes on to others.

The network's word on node i is z_i = log max(p_i, ε), of which the node's own name always leads. A click c names node c
the class y_c: it has to add r_c to that class there, so that the name leads by a margin. What it adds elsewhere falls
with the *affinity* k of a node to the clicked one, 1 for itself; together the clicks are a ridge regression in k:

    z'_i = z_i + Σ_c k(i, c) · a_c,      (k(C, C) + λ·I) a = r

A node is renamed if another class leads in z'_i and a click gave it. So a click carries on a *correction*: a node that
the network is sure to be a third tissue keeps its name. The margin grows with the network's doubt over the whole
section: the less its word is worth, the farther a click carries, up to a limit. Clicked nodes have the name that they
were given, whatever follows for others.

The affinity has two sources, k = 1 − (1 − k_looks) · (1 − g):

- *looks*: k_looks = exp(−d²/2h²), d the distance of the features;
- *relations*: the chance g that a walk of some steps meets the clicked node, if each step goes over a border with the
  boundary ratio as its chance: messages passed over the edges of the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Floats, Ints
from ntrm.correct.engine.graph import RegionGraph

PROBABILITIES = "probabilities"


KEPT, NAMED, LOOKS, TOUCHES = range(4)
REASONS = (
    "as the network named it",
    "you named it {tissue}",
    "looks like the region you named {tissue}",
    "touches the region you named {tissue}, or what follows it",
)
"""Why a node has its name."""


@dataclass(frozen=True)
class Settings:
    """How far names are carried: weights learned, the rest chosen on simulated clicks (docs/results/correction.md)."""

    reach: float = 1.0  # Factor for h: smaller keeps to what looks more alike
    width: float = 1.15
    """h, in the unit of the features: each group has variance ``weights``² over the section's tissue."""
    weights: Mapping[str, float] = field(
        default_factory=lambda: MappingProxyType(
            {"related": 1.1, "last": 0.4, "colour": 0.95, "depth": 0.25, PROBABILITIES: 1.0}
        )
    )
    """Of the groups of features; those that are not named, or that a network does not have, do not count."""
    ridge: float = 0.3  # λ: how far a single click may be overruled by others that look alike
    least: float = 0.005  # ε: probability below which all are alike
    margin: float = 40.0
    """By what a name given leads, over the network's mean doubt (1 − confidence) in the section's tissue."""
    most_margin: float = 6.0  # By what it leads at most: a network that was taught to doubt is not the worse for it
    steps: int = 4  # Of a walk over borders


@dataclass(frozen=True, eq=False)
class Spread:
    """What follows from clicks."""

    graph: RegionGraph
    tissue: Ints  # (N,) class of each node now
    reason: NDArray[np.uint8]  # (N,) index of ``REASONS``

    def why(self, node: int) -> str:
        """The reason, as a sentence."""
        tissue = self.graph.schema.tissues[self.tissue[node]]
        return REASONS[self.reason[node]].format(tissue=tissue.title or tissue.name)


def spread(graph: RegionGraph, clicks: Mapping[int, int], settings: Settings | None = None) -> Spread:
    """Names of all nodes after ``clicks``, the class given to each clicked node; their order does not matter."""
    settings = settings or Settings()
    reason = np.zeros(len(graph), dtype=np.uint8)
    if not clicks:
        return Spread(graph, graph.tissue, reason)
    nodes = np.array(sorted(clicks), dtype=np.int64)
    given = np.array([clicks[node] for node in nodes.tolist()], dtype=np.int64)
    met = walks(graph, nodes, settings.steps)
    affinity = 1 - (1 - looks_alike(graph, nodes, settings)) * (1 - met)
    tissue = renamed(graph, nodes, given, affinity, settings)
    changed = np.flatnonzero(tissue != graph.tissue)
    # For each renamed node the click of that name to which its affinity is largest.
    own = np.where(given[None] == tissue[changed, None], affinity[changed], -1.0)
    reason[changed] = np.where(met[changed, own.argmax(axis=1)] >= own.max(axis=1), TOUCHES, LOOKS)
    tissue[nodes], reason[nodes] = given, NAMED
    return Spread(graph, tissue, reason)


def looks_alike(graph: RegionGraph, nodes: Ints, settings: Settings) -> Floats:
    """(N, C) exp(−d²/2h²)."""
    features = standardised(graph, settings.weights)
    square = (features**2).sum(axis=1)
    distance = square[:, None] + square[nodes][None] - 2 * features @ features[nodes].T
    affinity = np.exp(-np.maximum(distance, 0.0) / (2 * (settings.width * settings.reach) ** 2))
    affinity[nodes, np.arange(len(nodes))] = 1.0  # exactly, whatever was rounded
    return np.asarray(affinity)


def standardised(graph: RegionGraph, weights: Mapping[str, float]) -> Floats:
    """(N, D) features of which each group has variance ``weights``² over the section's tissue, D numbers together.

    Of probabilities the square roots are taken, whose distance is that of Hellinger, and not scaled.
    """
    tissue = _tissue_pixels(graph)
    columns = [np.zeros((len(graph), 0))]
    for name, weight in weights.items():
        if name == PROBABILITIES:
            columns.append(weight * np.sqrt(np.maximum(graph.probabilities.astype(np.float64), 0.0)))
        elif name in graph.features and graph.features[name].shape[1]:
            values = graph.features[name].astype(np.float64)
            values = values - np.average(values, axis=0, weights=tissue)
            deviation = np.sqrt(np.average(values**2, axis=0, weights=tissue))
            columns.append(values * (weight / np.sqrt(values.shape[1])) / np.where(deviation > 1e-6, deviation, 1.0))
    return np.concatenate(columns, axis=1)


def _tissue_pixels(graph: RegionGraph) -> Floats:
    """(N,) pixels, without those of glass unless there is nothing else: a slide's glass must not set the scale."""
    tissue = np.where(graph.tissue == graph.schema.background_index, 0, graph.pixels).astype(np.float64)
    return tissue if tissue.any() else graph.pixels.astype(np.float64)


def walks(graph: RegionGraph, nodes: Ints, steps: int) -> Floats:
    """(N, C) chance that a walk from a node over borders meets the clicked one within ``steps``."""
    from scipy.sparse import csr_array

    one, other = graph.edges.T.reshape(2, -1)
    chance = np.concatenate([graph.ratios[:, 0], graph.ratios[:, 1]])
    ends = (np.concatenate([one, other]), np.concatenate([other, one]))
    border = csr_array((chance, ends), shape=(len(graph), len(graph)))
    met = np.zeros((len(graph), len(nodes)))
    met[nodes, np.arange(len(nodes))] = 1.0
    for _ in range(steps):
        met = border @ met
        met[nodes, np.arange(len(nodes))] = 1.0
    return np.asarray(met)


def renamed(graph: RegionGraph, nodes: Ints, given: Ints, affinity: Floats, settings: Settings) -> Ints:
    """(N,) the class that leads in z', with (N, C) affinities to the clicked nodes; of equals the node's own.

    Clicks of one name may take from another where they disagree: a class that nobody gave must not lead by that.
    """
    every = np.arange(len(graph))
    said = np.log(np.maximum(graph.probabilities.astype(np.float64), settings.least))
    said[every, graph.tissue] = said.max(axis=1)
    doubt = 1.0 - np.average(graph.probabilities.max(axis=1), weights=_tissue_pixels(graph))
    missing = np.zeros((len(nodes), len(graph.schema)))
    margin = min(settings.margin * doubt, settings.most_margin)
    missing[np.arange(len(nodes)), given] = said[nodes].max(axis=1) - said[nodes, given] + margin
    among = affinity[nodes] + settings.ridge * np.eye(len(nodes))
    # Walks are not symmetric, so that equations may depend on each other.
    said += affinity @ np.linalg.lstsq(among, missing)[0]
    best = said.argmax(axis=1)
    leads = np.isin(best, given) & (said[every, best] > said[every, graph.tissue])
    return np.where(leads, best, graph.tissue)
