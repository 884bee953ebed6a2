"""Nodes of regions: every tissue's hard mask divided into its connected components.

Two pixels belong to one region where they share an edge (4 neighbours, as in every file of results). Nothing here loops
over images, tissues or regions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ntrm.models.base import NetworkGraph


def split_into_regions(masks: Tensor, most: int) -> Tensor:
    """Masks of at most ``most`` regions of every tissue: (B, K, H2, W2) → (B, K·most, H2, W2).

    Regions of one tissue follow each other, the largest first, and of equal ones the one whose first pixel comes first.
    What is left over joins the tissue's last region: together the regions are the tissue's mask.
    """
    batch, classes, height, width = masks.shape
    inside = masks.reshape(batch * classes, height, width) > 0
    labels = label_components(inside).flatten(1)  # (B·K, N)
    inside = inside.flatten(1)
    area = torch.zeros_like(labels).scatter_add(1, labels, inside.long())  # of each label
    slot = _slots(area, most).gather(1, labels)  # (B·K, N)
    regions = (slot.unsqueeze(1) == torch.arange(most, device=masks.device).view(1, most, 1)) & inside.unsqueeze(1)
    return regions.view(batch, classes * most, height, width).to(masks.dtype)


def label_components(inside: Tensor) -> Tensor:
    """A number for every connected component of each mask; (M, H2, W2) bool → (M, H2, W2), 0 where nothing is.

    Runs of pixels in a row start as trees. In every round each tree is hung onto the lowest-numbered tree that it
    touches, unless it is lower itself, and all trees are flattened. A tree that lasts for two rounds has taken in
    another one, so two rounds at least halve the trees of an unfinished component, and the rounds below always do.
    """
    count, height, width = inside.shape
    starts = inside & ~F.pad(inside, (1, 0))[..., :-1]
    run = (starts.flatten(1).long().cumsum(1) - 1).clamp(min=0)  # (M, N): the run that a pixel belongs to
    upper, lower = run[:, :-width], run[:, width:]  # of two pixels above each other
    touching = (inside[:, :-1] & inside[:, 1:]).flatten(1)
    tree = torch.arange(height * width, device=inside.device).expand(count, -1)  # run → tree
    doublings = (height * ((width + 1) // 2)).bit_length()  # no mask has more runs than fit into 2 ** doublings
    for _ in range(2 * doublings):
        one, other = tree.gather(1, upper), tree.gather(1, lower)
        if _may_look() and not (touching & (one != other)).any():
            break
        low, high = torch.minimum(one, other), torch.maximum(one, other)
        # Pixels that do not touch hang a tree onto itself, which changes nothing.
        tree = tree.scatter_reduce(1, high, torch.where(touching, low, high), "amin")
        for _ in range(doublings):
            tree = tree.gather(1, tree)
    return tree.gather(1, run).view(count, height, width)


def _may_look() -> bool:
    """Whether a value may be waited for: a network that is being compiled, exported or recorded does every round."""
    if torch.compiler.is_compiling():  # asked first: the compiler cannot trace the other question
        return False
    return not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing())


def _slots(area: Tensor, most: int) -> Tensor:
    """Areas by label (M, N) → 0 for the largest, 1 for the next, and ``most - 1`` for all that are left over."""
    slots = torch.full_like(area, most - 1)
    if most == 1:
        return slots
    count = area.shape[1]
    earlier = torch.arange(count, 0, -1, device=area.device)  # of equal areas the lower label
    largest = (area * (count + 1) + earlier).topk(min(most - 1, count), dim=1).indices
    return slots.scatter(1, largest, torch.arange(largest.shape[1], device=area.device).expand_as(largest))


def by_class(regions: NetworkGraph, contacts: tuple[Tensor, Tensor, Tensor], most: int) -> NetworkGraph:
    """The graph of tissues (K nodes) that a graph of regions (K·most nodes) adds up to.

    ``contacts`` are area, touching and boundary of the tissues' own masks. A tissue whose regions send to each other
    has an edge to itself. Attention is the mean over the receiver's regions that receive anything, by area, and edge
    weights are the mean over the edges, by the area that receives; node states are means by area.
    """
    area, _, boundary = contacts
    batch, classes = area.shape
    share = regions.area.view(batch, classes, most)
    edges = _fold(regions.adjacency, most)  # (B, K, most, K, most)
    weight = edges * share[:, None, None]  # by the area that receives
    received = regions.adjacency.any(dim=1).view(batch, classes, most) * share
    attention = (_fold(regions.attention, most) * received[:, None, None, None]).sum(dim=(-3, -1))
    nodes = regions.nodes.view(batch, classes, most, -1)
    states = _ratio((nodes * share[..., None]).sum(dim=2), area[..., None])
    return NetworkGraph(
        presence=area > 0,
        area=area,
        adjacency=edges.any(dim=4).any(dim=2),
        boundary=boundary,
        attention=_ratio(attention, received.sum(dim=2)[:, None, None]),
        edge_weights=_ratio((_fold(regions.edge_weights, most) * weight).sum(dim=(2, 4)), weight.sum(dim=(2, 4))),
        nodes=torch.where(area[..., None] > 0, states, nodes[:, :, 0]),  # a tissue that is nowhere has a learned state
    )


def _fold(pairs: Tensor, most: int) -> Tensor:
    """(…, K·most, K·most) → (…, K, most, K, most)."""
    classes = pairs.shape[-1] // most
    return pairs.reshape(*pairs.shape[:-2], classes, most, classes, most)


def _ratio(sums: Tensor, weights: Tensor) -> Tensor:
    return sums / torch.where(weights > 0, weights, 1)
