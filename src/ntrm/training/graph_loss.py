"""A loss on the graph itself: whether predicted tissues border on those that they truly border on."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ntrm.core.labels import IGNORE
from ntrm.models.section.nodes import contact_shares
from ntrm.models.section.sums import contact

CELL = 8
"""Pixels along a side of a cell: borders are compared on the grid on which the network makes its graph."""
LEAST = 1.0
"""Contacts of a tissue, in cells, below which its shares say nothing."""


def graph_loss(logits: Tensor, target: Tensor, ignore: int = IGNORE) -> tuple[Tensor, Tensor]:
    """``½ Σ_j |ŝ_ij − s_ij|`` summed over the tissues i of each window that truly border on others, and their number.

    ``s_ij`` is the share of tissue j in the contacts of i with other tissues, of softened masks on the 1/8 grid; ŝ of
    the predicted probabilities, s of the truth. 0 where all borders are right, 1 for a tissue among strangers only.
    Logits (B, K, H, W), target (B, H, W); ignored pixels are of no tissue in both.
    """
    real = torch.promote_types(logits.dtype, torch.float32)
    classes = torch.arange(logits.shape[1], device=target.device).view(1, -1, 1, 1)
    truth = F.avg_pool2d((target.unsqueeze(1) == classes).to(real), CELL)  # (B, K, H/8, W/8)
    known = (target != ignore).unsqueeze(1)
    predicted = F.avg_pool2d(logits.to(real).softmax(dim=1) * known, CELL)
    true_pairs = contact(truth)  # (B, K, K)
    different = 1 - torch.eye(logits.shape[1], dtype=real, device=logits.device)
    there = (true_pairs * different).sum(dim=2) >= LEAST  # (B, K)
    distance = (contact_shares(contact(predicted)) - contact_shares(true_pairs)).abs().sum(dim=2) / 2
    return torch.where(there, distance, 0.0).sum(), there.sum()
