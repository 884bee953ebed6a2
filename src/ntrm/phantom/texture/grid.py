"""A window of the section on a pixel grid, and maps that are known on a coarser grid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, sparse

from ntrm.phantom.noise import Field, Points, pixel_centres

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
