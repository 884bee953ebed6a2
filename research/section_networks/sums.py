"""What a section's windows add up to: all that its nodes and edges are made from.

Every number is a sum over the cells of a window, so that the sums of a section are those of its windows added up, in
any order, in any batches, on any number of machines. Contacts across the rims of windows are not seen.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ntrm.core.errors import UsageError

RADII = (2, 8)
"""Cells of 8 pixels within which tissues are near each other: at 6.7 µm/px about 0.1 and 0.4 mm."""


class SectionSums(NamedTuple):
    """Sums of B windows or sections over M nodes with C channels, and of R tables of K × K pairs."""

    features: Tensor
    """(B, M, C) ``Σ w·f``."""
    weight: Tensor
    """(B, M) ``Σ w``; for tissues, cells of the 1/8 grid."""
    pairs: Tensor
    """(B, R, K, K) contact, then nearness."""

    def __add__(self, other: object) -> SectionSums:
        """Windows of the same sections, added up row by row."""
        if not isinstance(other, SectionSums):
            return NotImplemented
        return SectionSums(*(one + two for one, two in zip(self, other, strict=True)))

    def within(self, groups: Tensor) -> SectionSums:
        """For each row the sum of all rows of its group; nothing is read back, and shapes do not depend on groups."""
        return self._summed(groups.unsqueeze(1) == groups)

    def chosen(self, rows: Tensor, other: SectionSums) -> SectionSums:
        """These where ``rows`` (B,) says so, elsewhere the other's."""
        pairs = zip(self, other, strict=True)
        return SectionSums(*(torch.where(rows.view(-1, *[1] * (one.ndim - 1)), one, two) for one, two in pairs))

    def rows(self, groups: Tensor) -> SectionSums:
        """The row of each group (B,)."""
        return SectionSums(*(part.index_select(0, groups) for part in self))

    def expanded(self, batch: int) -> SectionSums:
        """One row for each of ``batch`` windows: as it is, or the single row for all."""
        have = self.weight.shape[0]
        if have not in (1, batch):
            raise UsageError(
                "the context does not fit the windows",
                got=f"{have} rows for {batch} windows",
                expected="a row for each window, or one for all",
            )
        return self if have == batch else SectionSums(*(part.expand(batch, *part.shape[1:]) for part in self))

    def total(self) -> SectionSums:
        """All rows as one, in double precision: a slide has a hundred thousand windows."""
        real = torch.float32 if self.weight.device.type == "mps" else torch.float64  # Apple's devices know no doubles
        return SectionSums(*(part.to(real).sum(dim=0, keepdim=True) for part in self))

    def cast(self, dtype: torch.dtype, device: torch.device | None = None) -> SectionSums:
        """As numbers of another kind or elsewhere: slides add up in float64."""
        return SectionSums(*(part.to(device=device, dtype=dtype) for part in self))

    def _summed(self, belongs: Tensor) -> SectionSums:
        # Not a product of matrices: a GPU may round its factors to eleven bits, and sums shall be sums.
        return SectionSums(*(_masked_sum(belongs, part) for part in self))


def _masked_sum(belongs: Tensor, part: Tensor) -> Tensor:
    """(G, B), (B, …) → (G, …)."""
    flat = part.flatten(1)  # (B, …)
    summed = (belongs.to(flat.dtype).unsqueeze(-1) * flat).sum(dim=1)
    return summed.view(belongs.shape[0], *part.shape[1:])


def weighted_sum(weights: Tensor, features: Tensor) -> Tensor:
    """``Σ_x w_m(x)·f(x)``: (B, M, H, W), (B, C, H, W) → (B, M, C)."""
    return weights.flatten(2) @ features.flatten(2).transpose(1, 2)


def contact(p: Tensor) -> Tensor:
    """``C_ij = Σ p_i(x)·p_j(y)`` over ordered pairs of 4-neighbours (x, y). (B, K, H, W) → (B, K, K), symmetric."""
    across = p[..., :-1].flatten(2) @ p[..., 1:].flatten(2).transpose(1, 2)
    down = p[..., :-1, :].flatten(2) @ p[..., 1:, :].flatten(2).transpose(1, 2)
    once = across + down
    return once + once.transpose(1, 2)


def nearness(p: Tensor, radius: int) -> Tensor:
    """``Q_ij = Σ_x p_i(x) · mean of p_j over the square of ``radius`` around x``. (B, K, H, W) → (B, K, K).

    What lies outside the window is left out of the mean.
    """
    around = F.avg_pool2d(p, 2 * radius + 1, stride=1, padding=radius, count_include_pad=False)
    return p.flatten(2) @ around.flatten(2).transpose(1, 2)


def pair_tables(p: Tensor, maps: int) -> Tensor:
    """(B, K, H, W) → (B, R, K, K): no table, contact, or contact and nearness at both radii."""
    if not maps:
        return p.new_zeros(p.shape[0], 0, p.shape[1], p.shape[1])
    tables = [contact(p), *(nearness(p, radius) for radius in RADII)][:maps]
    return torch.stack(tables, dim=1)
