"""Distances between clouds of points: each point's to the nearest of others, and the largest or smallest of these."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

Points = NDArray[np.float64]
Ints = NDArray[np.int64]

CELL = 50.0
"""Side of the squares that one point each speaks for at first, in the unit of the points."""


def nearest_of(places: Points, asked: Points, *, within: float = math.inf) -> tuple[Points, Ints]:
    """For each point (n, 2) the distance to the nearest of ``places`` (m, 2), and its index; inf beyond ``within``.

    >>> nearest_of(np.array([[0.0, 0.0], [9.0, 0.0]]), np.array([[3.0, 4.0]]))[0].tolist()
    [5.0]
    """
    # The library's bound is exclusive.
    distances, indices = _tree(places).query(asked, distance_upper_bound=np.nextafter(within, math.inf))
    return np.asarray(distances), np.asarray(indices)


def extreme_of(places: Points, asked: Points, *, largest: bool) -> tuple[float, int, int]:
    """Of the distances of points (n, 2) to the nearest of ``places`` the largest or smallest: it, its point, its place.

    Two points of one square are no further apart than its diagonal, and so are their distances: squares whose first
    point is that far from the extreme need not be asked.
    """
    tree = _tree(places)
    square = np.floor(asked / CELL).astype(np.int64)
    square -= square.min(axis=0)
    _, first, member = np.unique(
        square[:, 0] * (int(square[:, 1].max()) + 1) + square[:, 1], return_index=True, return_inverse=True
    )
    sign = 1.0 if largest else -1.0
    roughly = sign * tree.query(asked[first])[0]
    # A little more than the diagonal, for rounding.
    chosen = np.flatnonzero((roughly >= roughly.max() - 1.5 * CELL)[member])
    distances, indices = tree.query(asked[chosen])
    at = int((sign * distances).argmax())
    return float(distances[at]), int(chosen[at]), int(indices[at])


def _tree(places: Points) -> cKDTree:
    from scipy.spatial import cKDTree

    # Pixels lie in rows: medians among so many equal coordinates cost more than a lopsided tree.
    return cKDTree(places, balanced_tree=False, compact_nodes=False)
