"""The relations that a network used on a slide, as a small table: how strongly, in how many windows, and where most."""

from __future__ import annotations

from typing import Any

from ntrm.report.graph_layout import Relation, strongest
from ntrm.report.html import NONE
from ntrm.results.documents import EdgeWindow, Network

MOST_LAYERS = 6
"""Layers that have a column of their own; of a deeper network the mean is told."""

Column = tuple[str, str]
"""Its head, and its class."""


def relations_used(network: Network, count: int) -> dict[str, Any]:
    """Head and rows of the table, and what the page says about what is missing from it."""
    layers = len(network.attention) if 1 < len(network.attention) <= MOST_LAYERS else 0
    where = {(edge.source, edge.target): edge.windows[0] for edge in network.strongest_windows if edge.windows}
    columns: list[Column] = [("Relation", ""), ("attention", "n")]
    columns += [(f"layer {number}", "n") for number in range(1, layers + 1)]
    if network.edge_windows is not None:
        columns += [("windows", "n"), ("most, and where", "n")]
    if network.edge_weight is not None:
        columns.append(("edge weight", "n"))
    rows = [
        _cells(relation, layers, where.get((relation.sender, relation.receiver)))
        for relation in strongest(network, count)
    ]
    return {"columns": columns, "rows": rows, "notes": _notes(network)}


def _cells(relation: Relation, layers: int, window: EdgeWindow | None) -> tuple[str, ...]:
    cells = [f"{relation.sender} → {relation.receiver}", f"{relation.attention:.3f}"]
    cells += [f"{value:.3f}" for value in relation.layers[:layers]]
    if relation.windows is not None:
        cells += [f"{relation.windows:,}", NONE if window is None else _place(window)]
    return (*cells, *([] if relation.weight is None else [f"{relation.weight:.3f}"]))


def _place(window: EdgeWindow) -> str:
    """Its attention and its middle."""
    row, column = window.top + window.height // 2, window.left + window.width // 2
    return f"{window.attention:.3f} at ({row}, {column})"


def _notes(network: Network) -> list[str]:
    if network.edge_windows is None:
        return ["These results are of an earlier version; segment the slide again to see layers and windows."]
    notes = [] if network.attention else ["Attention: not used by this model."]
    return notes if network.edge_weight is not None else [*notes, "Edge weights: not used by this model."]
