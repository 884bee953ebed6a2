"""A section's sums for callers that know windows alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from ntrm.errors import UsageError
from ntrm.models.base import SegmentationModel
from ntrm.models.output import Segmentation
from ntrm.models.section.sums import SectionSums


@torch.no_grad()
def gather_section(network: SegmentationModel, windows: Callable[[], Iterable[Tensor]]) -> list[SectionSums]:
    """The sums of one section, a single row for each pass.

    ``windows()`` gives the section's windows, normalised and in batches (B, 3, H, W) of any size, anew for each pass.
    They should cover the section once. Sums are added up in float64: a slide has a hundred thousand windows.
    """
    context: list[SectionSums] = []
    for _ in range(network.passes):
        total: SectionSums | None = None
        for x in windows():
            rows = network.gather(x, context=context)
            real = torch.float32 if x.device.type == "mps" else torch.float64  # Apple's devices know no doubles
            found = SectionSums(*(part.to(real).sum(dim=0, keepdim=True) for part in rows))
            total = found if total is None else total + found
        if total is None:
            raise UsageError("a section without windows", got="none", expected="at least one")
        context.append(total.cast(next(network.parameters()).dtype))
    return context


class InContext(SegmentationModel):
    """A network that predicts windows of one section at a time: set ``context``, then use it like any other."""

    def __init__(self, network: SegmentationModel) -> None:
        super().__init__()
        self.network = network
        self.config = network.config
        self.multiple = network.multiple
        self.context: Sequence[SectionSums] | None = None
        """What ``gather_section`` found; None lets every window stand alone."""

    def segment(self, x: Tensor, *, initial: bool, graph: bool) -> Segmentation:
        """The network itself, in the context of the section."""
        output: Segmentation = self.network(x, initial=initial, graph=graph, context=self.context)
        return output
