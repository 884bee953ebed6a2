"""Maps and pictures of one scene in different sizes: the pixels of one under those of another."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

OPACITY = 0.45
"""Of the tissue colours over the slide's own."""
ROWS = 256
"""Looked at together: as indices, a picture takes eight times its memory."""


def size_within(shape: tuple[int, ...], side: int) -> tuple[int, int]:
    """Height and width of a picture that is shrunk, if need be, to at most ``side`` pixels on its longer side."""
    scale = min(1.0, side / max(shape))
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def sampled(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The pixels of a map (H, W, …) nearest to those of a picture of ``shape`` that shows the same.

    >>> sampled(np.arange(8).reshape(2, 4), (1, 2)).tolist()
    [[5, 7]]
    """
    if tuple(values.shape[:2]) == shape[:2]:
        return np.asarray(values[:])
    sizes = zip(shape[:2], values.shape[:2], strict=True)
    rows, columns = (((np.arange(size) + 0.5) * full / size).astype(np.int64) for size, full in sizes)
    # Row by row: fancy indexing of both axes at once would read the whole map.
    return np.stack([np.asarray(values[row])[columns] for row in rows])


def mean_colours(picture: NDArray[np.uint8], labels: NDArray[np.uint8], count: int) -> NDArray[np.float64]:
    """(count, 3) mean colours of the pixels of each label below ``count``; NaN where there are none."""
    # How often each value is there, by label: counting is quicker than adding up, and as exact.
    counts = np.zeros((3, 256, 256), dtype=np.int64)
    for top in range(0, len(labels), ROWS):
        code = labels[top : top + ROWS].astype(np.intp) << 8
        for k in range(3):
            values = (code + picture[top : top + ROWS, :, k]).ravel()
            counts[k] += np.bincount(values, minlength=1 << 16).reshape(256, 256)
    sums, pixels = (counts[:, :count] @ np.arange(256)).T, counts[0, :count].sum(axis=1)[:, None]
    means = np.full((count, 3), np.nan)
    np.divide(sums, pixels, out=means, where=pixels > 0)
    return means
