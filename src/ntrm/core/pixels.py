"""Maps and pictures of one scene in different sizes: sampled, averaged over blocks, and their mean colours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError

OPACITY = 0.45  # Of the tissue colours over the slide's own
ROWS = 256  # Looked at together: as indices, a picture takes eight times its memory


def check_picture(picture: NDArray[np.uint8]) -> None:
    """Refuse what is no RGB picture of at least one pixel."""
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8 or picture.size == 0:
        raise DataError(
            "not an RGB picture",
            got=f"{picture.dtype} of shape {picture.shape}",
            expected="uint8 of shape (H, W, 3), at least one pixel",
        )


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
    return np.asarray(values[np.ix_(rows, columns)])


def block_means(values: NDArray[Any], factors: tuple[int, int]) -> NDArray[np.float32]:
    """Means over blocks of ``factors`` (rows, columns) of (H, W, …); an incomplete last block repeats its edge.

    >>> block_means(np.array([[0, 2, 5]]), (1, 2)).tolist()
    [[1.0, 5.0]]
    """
    (down, across), (height, width, *rest) = factors, values.shape
    full = np.asarray(values, dtype=np.float32)
    if down == across == 1:
        return full
    padding = (0, -height % down), (0, -width % across)
    if any(after for _, after in padding):
        full = np.pad(full, [*padding, *((0, 0) for _ in rest)], mode="edge")
    total = np.zeros_like(full[::down, ::across])
    for row, column in np.ndindex(factors):
        total += full[row::down, column::across]
    total /= np.float32(down * across)
    return total


def mean_colours(picture: NDArray[np.uint8], labels: NDArray[np.uint8], count: int) -> NDArray[np.float64]:
    """(count, 3) mean colours of the pixels of each label below ``count``; NaN where there are none."""
    sums, pixels = np.zeros((256, 3)), np.zeros(256)
    for top in range(0, len(labels), ROWS):
        part = labels[top : top + ROWS].ravel()
        pixels += np.bincount(part, minlength=256)
        for k in range(3):
            sums[:, k] += np.bincount(part, picture[top : top + ROWS, :, k].ravel(), 256)
    means, there = np.full((count, 3), np.nan), pixels[:count, None]
    np.divide(sums[:count], there, out=means, where=there > 0)
    return means
