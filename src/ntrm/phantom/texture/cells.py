"""Cells of a jittered lattice (Worley noise): the polygons of fat and the coils of glands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntrm.phantom.noise import derive, hash_uniform
from ntrm.phantom.texture.grid import Places

_JITTER = 0.75
"""Share of a lattice square over which its cell's centre may lie; below 1 keeps cells of comparable size."""


@dataclass(frozen=True)
class Cells:
    """For each asked point: how far it is from its cell's centre and wall, and where that centre is."""

    centre_um: NDArray[np.float32]
    wall_um: NDArray[np.float32]
    centre_y_um: NDArray[np.float32]
    centre_x_um: NDArray[np.float32]
    mark: NDArray[np.float32]
    """Uniform in [0, 1), one value per cell."""


def cells_at(seed: int, y_um: Places, x_um: Places, spacing_um: float) -> Cells:
    """The lattice cells around points (1-D, at least one)."""
    y, x = (y_um / spacing_um).astype(np.float32), (x_um / spacing_um).astype(np.float32)
    row, column = np.floor(y).astype(np.int64), np.floor(x).astype(np.int64)
    lattice = _Lattice.around(seed, row, column)
    nearest, second = np.full(y.shape, 9.0, np.float32), np.full(y.shape, 9.0, np.float32)
    owner = np.zeros(y.shape, dtype=np.int64)
    base = lattice.flat(row, column)
    for step in lattice.neighbours():
        index = base + step
        gap = (lattice.y[index] - y) ** 2 + (lattice.x[index] - x) ** 2
        closer = gap < nearest
        second = np.where(closer, nearest, np.minimum(second, gap))
        nearest = np.where(closer, gap, nearest)
        owner = np.where(closer, index, owner)
    to_centre, to_second = np.sqrt(nearest), np.sqrt(second)
    scale = np.float32(spacing_um)
    return Cells(
        centre_um=to_centre * scale,
        wall_um=(to_second - to_centre) * (scale / 2),
        centre_y_um=lattice.y[owner] * scale,
        centre_x_um=lattice.x[owner] * scale,
        mark=lattice.mark[owner],
    )


@dataclass(frozen=True)
class _Lattice:
    """Centres of the lattice squares that points may need, flattened."""

    first: tuple[int, int]
    width: int
    y: NDArray[np.float32]
    x: NDArray[np.float32]
    mark: NDArray[np.float32]

    @classmethod
    def around(cls, seed: int, row: NDArray[np.int64], column: NDArray[np.int64]) -> _Lattice:
        """The squares of these rows and columns, and one more on every side."""
        rows = np.arange(row.min() - 1, row.max() + 2)[:, None]
        columns = np.arange(column.min() - 1, column.max() + 2)[None, :]
        y = rows + 0.5 + _JITTER * (hash_uniform(derive(seed, "y"), rows, columns) - 0.5)
        x = columns + 0.5 + _JITTER * (hash_uniform(derive(seed, "x"), rows, columns) - 0.5)
        mark = hash_uniform(derive(seed, "mark"), rows, columns)
        flat = [values.astype(np.float32).ravel() for values in (y, x, mark)]
        return cls((int(rows[0, 0]), int(columns[0, 0])), columns.shape[1], *flat)

    def flat(self, row: NDArray[np.int64], column: NDArray[np.int64]) -> NDArray[np.int64]:
        """Flat index of a lattice square."""
        return (row - self.first[0]) * self.width + (column - self.first[1])

    def neighbours(self) -> list[int]:
        """Steps in the flat index to the 3 × 3 squares around."""
        return [dy * self.width + dx for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
