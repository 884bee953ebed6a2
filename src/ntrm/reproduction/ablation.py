"""The factors of the relation module, each changed alone from the paper's letter."""

from __future__ import annotations

from dataclasses import dataclass

from ntrm.models.config import Option


@dataclass(frozen=True)
class Factor:
    """One change, and what it means."""

    name: str
    options: tuple[tuple[str, Option], ...]
    meaning: str


FACTORS = (
    Factor("masks plain", (("masks", "plain"),), "regions by the threshold alone, without the max-pool"),
    Factor("masks soft", (("masks", "soft"),), "probabilities instead of 0/1 masks pool and project"),
    Factor("order mask-first", (("order", "mask-first"),), "features masked, then convolved (main text)"),
    Factor("layer sum", (("layer", "sum"),), "the main text's layer instead of the supplement's attention"),
    Factor("boundary off", (("boundary", False),), "edges do not know the boundary ratios"),
    Factor("edge weight on", (("edge_weight", True),), "the edge weight, defined and unused in the paper, is used"),
    Factor("absent linked", (("absent", "linked"),), "absent tissues send their learned embedding"),
    Factor("coarse d2", (("coarse", "d2"),), "the initial prediction is read from D2 instead of E5"),
    Factor("graph complete", (("graph", "complete"),), "every pair of present tissues is joined"),
    Factor("graph none", (("graph", "none"),), "nodes are pooled and projected without any message"),
)
"""One factor at a time from ``ntrm-paper``; the last two ask whether adjacency, and the graph at all, matter."""
