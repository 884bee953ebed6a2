"""Distances between point sets: from each point to the nearest of others, and the largest or smallest of these."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ntrm.analysis.runs import Floats, Ints

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

CELL = 50.0
"""Side of the squares of which one point each is looked up at first, in the unit of the points."""


def nearest_of(targets: Floats, points: Floats, *, within: float = math.inf) -> tuple[Floats, Ints]:
    """For each point (n, 2) the distance to the nearest of ``targets`` (m, 2), and its index; inf beyond ``within``.

    >>> nearest_of(np.array([[0.0, 0.0], [9.0, 0.0]]), np.array([[3.0, 4.0]]))[0].tolist()
    [5.0]
    """
    # The library's bound is exclusive.
    distances, indices = _tree(targets).query(points, distance_upper_bound=np.nextafter(within, math.inf))
    return np.asarray(distances), np.asarray(indices)


def extreme_of(targets: Floats, points: Floats, *, largest: bool) -> tuple[float, int, int]:
    """The largest or smallest distance of any point (n, 2) to its nearest target, and the indices of the two.

    The distances of two points of one square differ by its diagonal at most: squares whose first point is further
    than that from the extreme need not be looked up.
    """
    tree = _tree(targets)
    square = np.floor(points / CELL).astype(np.int64)
    square -= square.min(axis=0)
    code = square[:, 0] * (int(square[:, 1].max()) + 1) + square[:, 1]
    _, first, member = np.unique(code, return_index=True, return_inverse=True)
    sign = 1.0 if largest else -1.0
    roughly = sign * tree.query(points[first])[0]
    # A little more than the diagonal, for rounding.
    chosen = np.flatnonzero((roughly >= roughly.max() - 1.5 * CELL)[member])
    distances, indices = tree.query(points[chosen])
    at = int((sign * distances).argmax())
    return float(distances[at]), int(chosen[at]), int(indices[at])


def _tree(points: Floats) -> cKDTree:
    from scipy.spatial import cKDTree

    # Pixels lie in rows: medians among so many equal coordinates cost more than a lopsided tree.
    return cKDTree(points, balanced_tree=False, compact_nodes=False)
