"""Distances between point sets: from each point to the nearest of others, and the largest of these."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ntrm.core.arrays import Floats, Ints, ranges
from ntrm.regions.runs import RunLengths

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

CELLS = (50.0, 10.0)
"""Sides of the squares of which one point each is looked up at first, in the unit of the points: coarse and fine."""


def nearest_of(targets: Floats, points: Floats, *, within: float = math.inf) -> tuple[Floats, Ints]:
    """For each point (n, 2) the distance to the nearest of ``targets`` (m, 2), and its index; inf beyond ``within``.

    >>> nearest_of(np.array([[0.0, 0.0], [9.0, 0.0]]), np.array([[3.0, 4.0]]))[0].tolist()
    [5.0]
    """
    # The library's bound is exclusive.
    distances, indices = _tree(targets).query(points, distance_upper_bound=np.nextafter(within, math.inf))
    return np.asarray(distances), np.asarray(indices)


def farthest(targets: Floats, inside: RunLengths, scale: Floats) -> tuple[float, Ints, int]:
    """The largest distance of any pixel that is True in ``inside`` to its nearest target, the pixel, and the target.

    ``scale`` (2,) is the size of a pixel along rows and columns, in the unit of ``targets``. All pixels count, not only
    those at the rim: where targets lie around them the farthest is within. The distances of two pixels of one square
    differ by its diagonal at most: squares whose first pixel is nearer than that to the largest are not looked up.
    """
    tree, own = _tree(targets), inside.value
    row, left, length = inside.row[own], inside.left[own], inside.length[own]
    for side in CELLS:
        tall, wide = (max(int(side / each), 1) for each in scale.tolist())
        # Cut where a run goes on in the next square.
        count = (left + length - 1) // wide - left // wide + 1
        cell = ranges(left // wide, count)
        begin, end = np.maximum(np.repeat(left, count), cell * wide), np.repeat(left + length, count)
        row, left, length = np.repeat(row, count), begin, np.minimum(end, (cell + 1) * wide) - begin
        _, first, member = np.unique(row // tall * (int(cell.max()) + 1) + cell, return_index=True, return_inverse=True)
        # Slightly more than the diagonal, for rounding.
        roughly = tree.query(np.stack([row[first], left[first]], axis=1) * scale)[0]
        diagonal = math.hypot(tall * float(scale[0]), wide * float(scale[1]))
        chosen = (roughly >= roughly.max() - 1.1 * diagonal)[member]
        row, left, length = row[chosen], left[chosen], length[chosen]
    pixels = np.stack([np.repeat(row, length), ranges(left, length)], axis=1)
    distances, indices = tree.query(pixels * scale)
    at = int(distances.argmax())
    return float(distances[at]), pixels[at], int(indices[at])


def _tree(points: Floats) -> cKDTree:
    from scipy.spatial import cKDTree

    # Pixels lie in rows: medians among so many equal coordinates cost more than a lopsided tree.
    return cKDTree(points, balanced_tree=False, compact_nodes=False)
