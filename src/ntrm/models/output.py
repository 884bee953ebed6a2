"""What every network returns."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class TissueGraph(NamedTuple):
    """The graph of tissues of each image. Edges are directed: first index sends, second receives."""

    presence: Tensor
    """(B, K) bool: the tissue's hard mask is not empty."""
    area: Tensor
    """(B, K) pixels of the hard mask on the 1/8 grid. Masks may overlap, so areas need not sum to the grid."""
    adjacency: Tensor
    """(B, K, K) bool: an edge from src to dst."""
    boundary: Tensor
    """(B, K, K) ``b[i, j]``: share of tissue i's pixels that touch tissue j."""
    attention: Tensor
    """(B, L, K, K) ``alpha[src, dst]``; over the senders of a receiver it sums to one, or is zero without any.
    Without attention layers L is 0."""
    edge_weights: Tensor
    """(B, K, K) ``w[src, dst]`` in (0, 1), 0 where there is no edge."""
    nodes: Tensor
    """(B, K, d) node states after message passing."""


class Segmentation(NamedTuple):
    """Logits at input size, and the graph where it was asked for and the network has one."""

    final: Tensor
    """(B, K, H, W)."""
    initial: Tensor | None = None
    """(B, K, H, W) of the coarse head, upsampled; None for networks without one."""
    graph: TissueGraph | None = None
