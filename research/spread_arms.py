"""Ways to carry names on over a region graph, to compare the product's (``ntrm.correction.spread``) with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ntrm.core.arrays import Ints
from ntrm.correction.graph import RegionGraph
from ntrm.correction.spread import DEFAULT, Settings, looks_alike, renamed, spread, walks

ARMS = ("part", "region", "looks", "relations", DEFAULT)
"""Nothing follows; the connected region, of two clicks the nearer one; what looks alike; what touches; the product's,
which without edges is ``looks``, its matched control."""


def names_after(graph: RegionGraph, clicks: Mapping[int, int], how: str, settings: Settings | None = None) -> Ints:
    """(N,) names of all nodes after ``clicks``, the class given to each clicked node."""
    if how not in ARMS:
        raise SystemExit(f"unknown arm {how}: one of {', '.join(ARMS)}")
    settings, nodes = settings or Settings(), np.array(sorted(clicks), dtype=np.int64)
    given = np.array([clicks[node] for node in nodes.tolist()], dtype=np.int64)
    if how == DEFAULT:
        return spread(graph, clicks, settings).tissue
    if how == "part" or not len(nodes):
        tissue = graph.tissue.copy()
    elif how == "region":
        tissue = _of_regions(graph, nodes, given)
    else:
        affinity = looks_alike(graph, nodes, settings) if how == "looks" else walks(graph, nodes, settings.steps)
        tissue = renamed(graph, nodes, given, affinity, settings)
    tissue[nodes] = given
    return tissue


def _of_regions(graph: RegionGraph, nodes: Ints, given: Ints) -> Ints:
    """(N,) the name of the nearest click in a node's region, or its own."""
    step = np.array([graph.resolution.y, graph.resolution.x])
    away = np.linalg.norm((graph.centroid[:, None] - graph.centroid[nodes][None]) * step, axis=2)
    away[graph.region[:, None] != graph.region[nodes][None]] = np.inf
    return np.where(np.isfinite(away.min(axis=1)), given[away.argmin(axis=1)], graph.tissue)
