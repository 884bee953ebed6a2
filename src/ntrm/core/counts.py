"""What a mask holds, pixel by pixel: how many of each class, and which classes lie beside each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
IndexMask = NDArray[np.integer[Any]]


def boundary_counts(mask: IndexMask, classes: int) -> Counts:
    """How often each pair of classes meets: all 4-neighbour pixel pairs with different labels, ignore left out.

    Returns a symmetric (K, K) array with an empty diagonal; a pair of pixels counts once in ``[a, b]`` and
    once in ``[b, a]``, so that a row holds everything its class borders on.

    >>> boundary_counts(np.array([[0, 0, 1], [0, 2, 255]]), classes=3).tolist()
    [[0, 1, 2], [1, 0, 0], [2, 0, 0]]
    """
    beside, below = neighbour_counts(mask, classes)
    counts = beside + below
    return counts + counts.T


def neighbour_counts(mask: IndexMask, classes: int) -> tuple[Counts, Counts]:
    """(K, K) each: pairs of pixels of different classes, left and right, then above and below; ignore left out."""
    counts = []
    for here, there in ((mask[:, :-1], mask[:, 1:]), (mask[:-1], mask[1:])):
        border = (here != there) & (here < classes) & (there < classes)
        code = here[border].astype(np.int64) * classes + there[border]
        counts.append(np.bincount(code, minlength=classes * classes).reshape(classes, classes))
    return counts[0], counts[1]


def boundary_share(pairs: Counts) -> NDArray[np.float64]:
    """Row-normalised boundary counts; the row of a class without any boundary is all 0.

    >>> boundary_share(np.array([[0, 1, 3], [1, 0, 0], [3, 0, 0]])).tolist()
    [[0.0, 0.25, 0.75], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    return np.asarray(pairs / np.maximum(pairs.sum(axis=1, keepdims=True), 1))
