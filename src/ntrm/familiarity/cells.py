"""What a section looks like in small squares, given the tissue that the network sees there.

A *cell* is a square of ``CELL`` pixels of the model's grid. It has nine statistics: the mean optical density of red,
green and blue light (its colour), and the logarithms of six standard deviations (its texture): of the three densities,
of two differences between them, and of what an average over 2 × 2 pixels removes from the grey density. A cell
counts if it is not glass and its most probable class is not the background.

Statistics are compared with those of training cells of the *same class*, since tissues differ more from each other
than one section does from the next: z = (x − μ_class) · W_class, with W_class such that training cells have unit
covariance. Of a window, the sums over blocks of cells are kept; memory and time are small beside the network's.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ntrm.familiarity.reference import COLOURS, STATISTICS

CELL = 8  # Side of a cell in pixels
BLOCK = 8  # Side of a block in cells
LEAST_DENSITY = 0.04  # Mean optical density below which a cell is glass
LEAST_DEVIATION = 0.004  # Added to deviations before the logarithm: about one grey level in pale tissue


class CellStatistics(NamedTuple):
    """The cells of a batch of windows; n = S / ``CELL`` along each side."""

    values: Tensor  # (B, n, n, STATISTICS)
    classes: Tensor  # (B, n, n) most probable class
    counts: Tensor  # (B, n, n) whether a cell counts


def cell_statistics(pixels: Tensor, probabilities: Tensor, background: int | None) -> CellStatistics:
    """(B, S, S, 3) uint8 and probabilities (B, K, S, S) on one device → statistics; S is a multiple of ``CELL``."""
    # The optical density of a byte, −log₁₀ of the light that comes through. Indexing by whole planes of 32-bit numbers
    # takes a quarter of the time of ``table[pixels.long()]``.
    table = -torch.log10((torch.arange(256, device=pixels.device, dtype=torch.float32) + 1) / 256)
    planes = pixels.permute(0, 3, 1, 2)
    density = table.index_select(0, planes.reshape(-1).int()).view(planes.shape)  # (B, 3, S, S)
    hues = density[:, 0::2] - density[:, 1:2]  # (B, 2, S, S) red − green, blue − green
    grey = density.sum(dim=1)  # three times the grey density
    pairs = grey[:, 0::2] + grey[:, 1::2]
    coarse = (pairs[..., 0::2] + pairs[..., 1::2]) / 4  # (B, S / 2, S / 2)
    means = _averages(density, CELL)
    fine = (_averages(grey.square(), CELL) - _averages(coarse.square(), CELL // 2)) / COLOURS**2
    squares = torch.cat([_averages(density.square(), CELL), _averages(hues.square(), CELL)], dim=1)
    variances = squares - torch.cat([means, means[:, 0::2] - means[:, 1:2]], dim=1).square()
    deviations = torch.cat([variances, fine.unsqueeze(1)], dim=1).clamp(min=0).sqrt()  # (B, 6, n, n)
    values = torch.cat([means, (deviations + LEAST_DEVIATION).log()], dim=1).permute(0, 2, 3, 1)
    classes = _averages(probabilities.float(), CELL).max(dim=1).indices
    counts = means.mean(dim=1) > LEAST_DENSITY
    if background is not None:
        counts &= classes != background
    return CellStatistics(values.contiguous(), classes, counts)


def _averages(values: Tensor, side: int) -> Tensor:
    """(…, S, S) → (…, S / side, S / side) means over squares of pixels; on CPUs in half the time of ``avg_pool2d``."""
    *leading, rows, columns = values.shape
    sums = values.reshape(*leading, rows // side, side, columns).sum(dim=-2)
    return sums.view(*leading, rows // side, columns // side, side).sum(dim=-1) / side**2


class ClassStatistics(NamedTuple):
    """Cells of each class in training; on the device."""

    means: Tensor  # (K, STATISTICS)
    whitening: Tensor  # (K, STATISTICS, STATISTICS) block-diagonal: colours and texture apart


SUMS = 1 + 2 * STATISTICS  # Numbers kept of a block: cells that count, the sum of their z, and of x − μ


def block_sums(cells: CellStatistics, known: ClassStatistics) -> Tensor:
    """(B, m, m, ``SUMS``) sums over the blocks of each window; m blocks along a side, or 1 where they do not divide."""
    batch, rows, columns, _ = cells.values.shape
    high, wide = (BLOCK if side % BLOCK == 0 else side for side in (rows, columns))

    def blocks(values: Tensor) -> Tensor:
        """(B, n, n, …) → (B, m, m, cells of a block, …)."""
        parted = values.view(batch, rows // high, high, columns // wide, wide, -1)
        return parted.transpose(2, 3).flatten(3, 4)

    every_class = torch.arange(len(known.means), device=cells.classes.device)
    members = (cells.classes.unsqueeze(-1) == every_class) & cells.counts.unsqueeze(-1)  # (B, n, n, K)
    of_class = blocks(members.to(cells.values.dtype)).transpose(-1, -2)  # (B, m, m, K, cells)
    # z is linear: the sums of each class say as much as its cells.
    cell_counts = of_class.sum(dim=-1, keepdim=True)
    deviations = of_class @ blocks(cells.values) - cell_counts * known.means  # (B, m, m, K, D)
    z = torch.einsum("bijkd,kde->bije", deviations, known.whitening)
    return torch.cat([cell_counts.sum(dim=-2), z, deviations.sum(dim=-2)], dim=-1)
