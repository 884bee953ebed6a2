"""A window of the section on a pixel grid, maps of a coarser grid, and cells of a jittered lattice on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, sparse

from ntrm.phantom.noise import Field, Points, derive, hash_uniform, pixel_centres

Places = Points | Field
"""µm positions along one axis, precise for points, single precision for every pixel of a window."""


@dataclass(frozen=True)
class Window:
    """Pixels ``shape`` at ``mpp``, the first one starting at ``origin_um`` (y, x)."""

    origin_um: tuple[float, float]
    shape: tuple[int, int]
    mpp: float

    @property
    def y_um(self) -> Points:
        """µm of the rows' centres."""
        return pixel_centres(self.shape[0], self.mpp, self.origin_um[0])

    @property
    def x_um(self) -> Points:
        """µm of the columns' centres."""
        return pixel_centres(self.shape[1], self.mpp, self.origin_um[1])


@dataclass(frozen=True)
class CoarseMap:
    """Smooth values on a grid that starts at the section's corner; read bilinearly, constant beyond the edge."""

    values: Field
    mpp: float

    def over(self, window: Window) -> Field:
        """Values at the window's pixel centres."""
        (y_um, x_um), (height, width), size = window.origin_um, window.shape, self.values.shape
        rows, across_y = _linear_matrix(y_um, height, window.mpp, self.mpp, size[0])
        columns, across_x = _linear_matrix(x_um, width, window.mpp, self.mpp, size[1])
        # Columns first: the large product then comes out row by row in memory.
        narrow = np.ascontiguousarray((across_x @ self.values[rows, columns].T).T)
        return np.asarray(across_y @ narrow)

    def at(self, y_um: Places, x_um: Places) -> Field:
        """Values at arbitrary points."""
        where = np.stack([y_um / self.mpp - 0.5, x_um / self.mpp - 0.5])
        return np.asarray(ndimage.map_coordinates(self.values, where, order=1, mode="nearest"))

    def uphill_at(self, y_um: Places, x_um: Places) -> Points:
        """Direction (radians, from x towards y) in which the values grow at points."""
        here = [(y_um, x_um + s) for s in (-self.mpp, self.mpp)] + [(y_um + s, x_um) for s in (-self.mpp, self.mpp)]
        left, right, above, below = (self.at(y, x).astype(np.float64) for y, x in here)
        return np.arctan2(below - above, right - left)


@lru_cache(maxsize=64)
def _linear_matrix(
    origin_um: float, count: int, mpp: float, map_mpp: float, map_size: int
) -> tuple[slice, sparse.csr_matrix]:
    """The stretch of a map's axis that ``count`` pixels need, and the sparse matrix that interpolates along it."""
    place = np.clip(pixel_centres(count, mpp, origin_um) / map_mpp - 0.5, 0, map_size - 1)
    low = np.minimum(place.astype(np.int64), max(map_size - 2, 0))
    high = np.minimum(low + 1, map_size - 1)
    stretch = slice(int(low[0]), int(high[-1]) + 1)
    weights = np.stack([1.0 - (place - low), place - low], axis=1).astype(np.float32)
    columns = np.stack([low, high], axis=1) - stretch.start
    ends = np.arange(0, 2 * count + 1, 2)
    shape = (count, stretch.stop - stretch.start)
    return stretch, sparse.csr_matrix((weights.ravel(), columns.ravel(), ends), shape=shape)


def block_mean(values: NDArray[np.float32], factor: int) -> NDArray[np.float32]:
    """Means over ``factor`` × ``factor`` pixels of (H, W, …); an incomplete last block repeats the edge.

    >>> block_mean(np.array([[0.0, 2.0, 4.0]], dtype=np.float32), 2).tolist()
    [[1.0, 4.0]]
    """
    if factor == 1:
        return values
    height, width, *rest = values.shape
    padding = (0, -height % factor), (0, -width % factor)
    if any(sum(side) for side in padding):
        values = np.pad(values, [*padding, *((0, 0) for _ in rest)], mode="edge")
    total = np.zeros((values.shape[0] // factor, values.shape[1] // factor, *rest), dtype=np.float32)
    for row in range(factor):
        for column in range(factor):
            total += values[row::factor, column::factor]
    total /= np.float32(factor * factor)
    return total


# Cells of a jittered lattice (Worley noise): the polygons of fat and the coils of glands.


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
