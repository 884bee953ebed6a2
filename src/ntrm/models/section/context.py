"""A section's sums for callers that know windows alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from ntrm.core.errors import UsageError
from ntrm.models.base import SegmentationModel
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
            found = network.gather(x, context=context).total()
            total = found if total is None else total + found
        if total is None:
            raise UsageError("a section without windows", got="none", expected="at least one")
        context.append(total.cast(next(network.parameters()).dtype))
    return context
