"""What a mask holds, pixel by pixel: how many of each class, and which classes lie beside each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
IndexMask = NDArray[np.integer[Any]]


def boundary_counts(mask: IndexMask, classes: int, x: float = 1, y: float = 1) -> NDArray[Any]:
    """How often each pair of classes meets: all 4-neighbour pixel pairs with different labels, ignore left out.

    Returns a symmetric (K, K) array with an empty diagonal; a pair of pixels counts once in ``[a, b]`` and
    once in ``[b, a]``, so that a row holds everything its class borders on. With the sides of a pixel along ``x`` and
    ``y``, it is the length of the boundary.

    >>> boundary_counts(np.array([[0, 0, 1], [0, 2, 255]]), classes=3).tolist()
    [[0, 1, 2], [1, 0, 0], [2, 0, 0]]
    >>> boundary_counts(np.array([[0, 0, 1], [0, 1, 255]]), 2, x=2.0, y=5.0).tolist()
    [[0.0, 12.0], [12.0, 0.0]]
    """
    counts: Any = 0
    for here, there, side in ((mask[:, :-1], mask[:, 1:], y), (mask[:-1], mask[1:], x)):
        border = (here != there) & (here < classes) & (there < classes)
        code = here[border].astype(np.int64) * classes + there[border]
        counts = counts + np.bincount(code, minlength=classes * classes).reshape(classes, classes) * side
    return np.asarray(counts + counts.T)


def boundary_share(pairs: Counts) -> NDArray[np.float64]:
    """Row-normalised boundary counts; the row of a class without any boundary is all 0.

    >>> boundary_share(np.array([[0, 1, 3], [1, 0, 0], [3, 0, 0]])).tolist()
    [[0.0, 0.25, 0.75], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    """
    return np.asarray(pairs / np.maximum(pairs.sum(axis=1, keepdims=True), 1))
