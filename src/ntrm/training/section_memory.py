"""What a section's windows have lately added to it, so that a batch may hold windows of many sections.

A network that sees whole sections wants all windows of one at once. Steps of a few whole sections are poor steps: their
windows are alike. Here each step has windows of sections at random; for each section the running mean of what its
windows have added is kept, and stands for the windows that are not in the batch. It is made of earlier weights and
carries no gradient, but it is of the whole section, as it is when the network is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ntrm.models.base import SegmentationModel
from ntrm.models.section.sums import SectionSums

LONGEST = 16
"""Visits that the running mean goes back: what was gathered with much older weights says little."""


class SectionMemory(nn.Module):
    """A row of mean sums for each training section and each pass of the network.

    The nodes of a section are made from ratios of sums, so that a mean over windows, times the number of the section's
    other windows, stands for their sum.
    """

    numbers: Tensor
    """(windows,) the section of each training window."""
    others: Tensor
    """(sections,) windows beside one."""
    visits: Tensor
    """(sections,) how often the section was updated."""

    def __init__(self, network: SegmentationModel, numbers: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("numbers", torch.tensor(numbers), persistent=False)
        self.register_buffer("others", torch.bincount(self.numbers) - 1.0, persistent=False)
        self.register_buffer("visits", torch.zeros(len(self.others)))
        self.passes = network.passes
        for number, sums in enumerate(_shapes(network)):
            for name, part in sums._asdict().items():
                self.register_buffer(f"{name}_{number}", part.new_zeros(len(self.others), *part.shape[1:]))

    def sections(self, windows: Sequence[int]) -> Tensor:
        """The section of each of some training windows, on the device; nothing waits for it."""
        device = self.numbers.device
        places = torch.tensor(windows)
        places = places.pin_memory() if device.type == "cuda" else places
        return self.numbers.index_select(0, places.to(device, non_blocking=True))

    def recalled(self, sections: Tensor) -> list[SectionSums]:
        """For each window what the other windows of its section add, for every pass: nothing before the first visit."""
        others = self.others.index_select(0, sections)
        return [_scaled(rows.rows(sections), others) for rows in self._rows()]

    @torch.no_grad()
    def update(self, sections: Tensor, added: Sequence[SectionSums]) -> None:
        """Learn what windows of these sections have added, for every pass; those of one section count as one visit."""
        alike = (sections.unsqueeze(1) == sections).sum(dim=1)  # windows of the batch that share a row's section
        before = self.visits.index_select(0, sections)
        step = 1 / (before + 1).clamp(max=LONGEST)
        for rows, found in zip(self._rows(), added, strict=True):
            means = _scaled(found.within(sections), 1 / alike)
            for kept, mean in zip(rows, means, strict=True):
                old = kept.index_select(0, sections)
                # Windows of one section write the same row: the order in which they do is of no matter.
                kept.index_copy_(0, sections, torch.lerp(old, mean.to(old.dtype), _broadcast(step, old)))
        self.visits.index_copy_(0, sections, before + 1)

    def _rows(self) -> list[SectionSums]:
        return [
            SectionSums(*(self.get_buffer(f"{name}_{number}") for name in SectionSums._fields))
            for number in range(self.passes)
        ]


@torch.no_grad()
def _shapes(network: SegmentationModel) -> list[SectionSums]:
    """Sums of an empty window for every pass."""
    modes = {layer: layer.training for layer in network.modules()}
    network.eval()
    x = next(network.parameters()).new_zeros(1, 3, 2 * network.multiple, 2 * network.multiple)
    network.tell(torch.zeros(1, *x.shape[2:], dtype=torch.uint8, device=x.device))
    found: list[SectionSums] = []
    for _ in range(network.passes):
        found.append(network.gather(x, context=found))
    for layer, mode in modes.items():
        layer.training = mode
    return found


def _scaled(sums: SectionSums, factors: Tensor) -> SectionSums:
    """Each row times its factor."""
    return SectionSums(*(part * _broadcast(factors, part) for part in sums))


def _broadcast(values: Tensor, like: Tensor) -> Tensor:
    """(B,) → (B, 1, …)."""
    return values.to(like.dtype).view(-1, *[1] * (like.ndim - 1))
