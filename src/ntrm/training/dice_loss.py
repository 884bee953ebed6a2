"""Soft Dice loss: how little predicted and true areas of each class overlap, over the joined batch of all processes.

Unlike cross-entropy it does not grow with the number of a class's pixels, and it charges what is wrongly called by a
class's name as much as what is missed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ntrm.core.labels import IGNORE


def dice_totals(logits: Tensor, target: Tensor, ignore: int = IGNORE) -> Tensor:
    """(2, K): of each class, the probability on its own pixels and that on all pixels that are not ignored.

    Logits (B, K, H, W) of any precision, target (B, H, W). Totals add up over processes.
    """
    shares = logits.softmax(dim=1, dtype=torch.promote_types(logits.dtype, torch.float32))
    labels = torch.arange(logits.shape[1], dtype=target.dtype, device=target.device).view(1, -1, 1, 1)
    target = target.unsqueeze(1)
    # Chosen rather than multiplied: the backward pass then keeps masks of one byte, and `shares` once.
    overlap = torch.where(target == labels, shares, 0.0).sum(dim=(0, 2, 3))
    area = torch.where(target != ignore, shares, 0.0).sum(dim=(0, 2, 3))
    return torch.stack((overlap, area))


def dice_of(own: Tensor, joined: Tensor, counts: Tensor, processes: int = 1) -> Tensor:
    """``1 − 2·I_c / S_c``, mean over the classes that have a pixel; 0 where no class has one.

    ``I_c`` is the probability of c on its pixels, ``S_c`` that on all pixels and the pixels of c together. ``own`` are
    this process's ``dice_totals``, ``joined`` those of all processes together, without gradient, and ``counts`` (K,)
    the joined pixels of each class.

    The value is the joined batch's in every process. It is no sum over processes, so that the gradient cannot come
    from the value: it is that of the joined loss with respect to this process's pixels times ``processes``, such that
    the mean over processes is the gradient of the joined loss.

    >>> totals = dice_totals(torch.zeros(1, 2, 1, 4), torch.tensor([[[0, 0, 0, 1]]]))
    >>> dice_of(totals, totals.detach(), torch.tensor([3, 1]))
    tensor(0.5333)
    """
    there = counts > 0
    number = there.sum().clamp(min=1)
    overlap, area = joined
    whole = (area + counts).clamp(min=1)  # at least 1 for every class that is there
    value = torch.where(there, 1 - 2 * overlap / whole, 0.0).sum() / number
    # d(I/S) = dI/S − I·dS/S²; the counts in S are constant.
    change = own[0] / whole - own[1] * (overlap / whole**2)
    slope = torch.where(there, -2 * processes * change, 0.0).sum() / number
    return value + (slope - slope.detach())
