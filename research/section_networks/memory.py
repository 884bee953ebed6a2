"""What a section's windows have lately added to it, so that a training step may hold windows of many sections.

A network that sees whole sections wants all windows of one at once. Steps of a few whole sections are poor steps: their
windows are alike. Here each step has windows of sections at random; for each section the running mean of what its
windows have added is kept, and stands for the windows that are not in the batch. It is made of earlier weights and
carries no gradient, but it is of the whole section, as it is when the network is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from research.section_networks.sums import SectionSums
from torch import Tensor

LONGEST = 16
"""Visits that the running mean goes back: what was gathered with much older weights says little."""


class SectionMemory:
    """A row of mean sums for each training section.

    The nodes of a section are made from ratios of sums, so that a mean over windows, times the number of the section's
    other windows, stands for their sum.
    """

    def __init__(self, numbers: Sequence[int], device: torch.device) -> None:
        self.numbers = torch.tensor(numbers, device=device)
        """(windows,) the section of each training window."""
        self.others = torch.bincount(self.numbers) - 1.0
        """(sections,) windows beside one."""
        self.visits = torch.zeros_like(self.others)
        """(sections,) how often the section was updated."""
        self._rows: SectionSums | None = None

    def sections(self, windows: Sequence[int]) -> Tensor:
        """The section of each of some training windows."""
        return self.numbers[torch.tensor(windows, device=self.numbers.device)]

    def recalled(self, sections: Tensor) -> SectionSums | None:
        """For each window what the other windows of its section add; None before the first update."""
        return None if self._rows is None else _scaled(self._rows.rows(sections), self.others[sections])

    @torch.no_grad()
    def update(self, sections: Tensor, added: SectionSums) -> None:
        """Learn what windows of these sections have added; those of one section count as one visit."""
        if self._rows is None:
            self._rows = SectionSums(*(part.new_zeros(len(self.others), *part.shape[1:]) for part in added))
        alike = (sections.unsqueeze(1) == sections).sum(dim=1)  # windows of the batch that share a row's section
        before = self.visits[sections]
        step = 1 / (before + 1).clamp(max=LONGEST)
        means = _scaled(added.within(sections), 1 / alike)
        for kept, mean in zip(self._rows, means, strict=True):
            old = kept[sections]
            # Windows of one section write the same row: the order in which they do is of no matter.
            kept.index_copy_(0, sections, torch.lerp(old, mean.to(old.dtype), _broadcast(step, old)))
        self.visits[sections] = before + 1


def _scaled(sums: SectionSums, factors: Tensor) -> SectionSums:
    """Each row times its factor."""
    return SectionSums(*(part * _broadcast(factors, part) for part in sums))


def _broadcast(values: Tensor, like: Tensor) -> Tensor:
    """(B,) → (B, 1, …)."""
    return values.to(like.dtype).view(-1, *[1] * (like.ndim - 1))
