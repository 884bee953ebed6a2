"""Where a slide is unlike what the model knows: its picture in grey, the windows in three colours."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ntrm.core.arrays import Floats, Ints
from ntrm.core.labels import RGB
from ntrm.report.overlay import Picture, font_size, with_legend

BETWEEN_BELOW = 0.1
"""P-value below which a window is neither like nor unlike."""
STEPS: tuple[tuple[float, RGB, str], ...] = (
    (0.01, (213, 94, 0), "p below 0.01: unlike the training data"),
    (BETWEEN_BELOW, (240, 228, 66), f"p below {BETWEEN_BELOW:g}: in between"),
    (math.inf, (86, 180, 233), "like the training data"),
)
"""P-values below which a window has a colour; colours of Okabe and Ito, told apart by every kind of colour vision."""
TINT = 0.5
GREYS = 3 * 255 + 1
"""Sums of three channels that there may be."""
LEAST_P = 1e-6
"""Smaller p-values count as this: one window must not outweigh all that overlap it."""

Windows = Sequence[tuple[int, int, int, int, float]]
"""Top, left, height and width in pixels of the mask, and p-value."""


def familiarity_map(picture: Picture, windows: Windows, mask_shape: tuple[int, int]) -> Picture:
    """``picture`` (H, W, 3) of a whole mask, tinted where there are windows, with a legend below.

    Where windows overlap, the geometric mean of their p-values counts.
    """
    p_values = window_values(windows, mask_shape, (picture.shape[0], picture.shape[1]))
    # The step of each pixel, the first of them where no window lies; NaN is not below anything, nor above.
    step = np.zeros(p_values.shape, dtype=np.uint16)
    for lower in (0.0, *(upper for upper, _, _ in STEPS[:-1])):
        step += p_values >= lower
    total = picture[..., 0].astype(np.uint16) + picture[..., 1] + picture[..., 2]
    canvas = Image.fromarray(_tints().take(step * np.uint16(GREYS) + total, axis=0))
    entries = [(text, colour, colour) for _, colour, text in STEPS]
    return np.asarray(with_legend(canvas, entries, 1.7 * font_size(canvas.width, canvas.height)))


def _tints() -> NDArray[np.uint8]:
    """((steps + 1) · ``GREYS``, 3) the colour of a pixel by its step, 0 for none, and by the sum of its channels."""
    grey = np.arange(GREYS)[:, None] / 3
    tinted = [(1 - TINT) * grey + TINT * np.array(colour) for _, colour, _ in STEPS]
    return np.asarray(np.rint(np.concatenate([np.repeat(grey, 3, axis=1), *tinted])), dtype=np.uint8)


def window_values(windows: Windows, mask_shape: tuple[int, int], shape: tuple[int, int]) -> NDArray[np.float64]:
    """(H, W) p-values of a picture of ``shape`` that shows the whole mask; NaN where no window lies.

    >>> window_values([(0, 0, 2, 2, 0.25), (0, 1, 2, 2, 0.01)], (2, 4), (1, 4)).round(3).tolist()
    [[0.25, 0.05, 0.01, nan]]
    """
    if not len(windows):
        return np.full(shape, np.nan)
    down, across = shape[0] / mask_shape[0], shape[1] / mask_shape[1]
    y, x, height, width, _ = np.array(windows, dtype=np.float64).T
    top, bottom = _scaled(y, height, down, shape[0])
    left, right = _scaled(x, width, across, shape[1])
    sums = np.zeros(shape)
    spans = (at.tolist() for at in (top, bottom, left, right))
    for (*_, p_value), first, last, begin, end in zip(windows, *spans, strict=True):
        sums[first:last, begin:end] += math.log(max(p_value, LEAST_P))
    counts = _counts(top, bottom, left, right, shape)
    means = np.divide(sums, counts, out=np.full(shape, np.nan), where=counts > 0)
    return np.asarray(np.exp(means))


def _counts(top: Ints, bottom: Ints, left: Ints, right: Ints, shape: tuple[int, int]) -> Ints:
    """(H, W) how many windows lie over each pixel: those that begin before it and have not ended."""
    begun = np.zeros((shape[0] + 1, shape[1] + 1), dtype=np.int64)
    for rows, columns, sign in ((top, left, 1), (bottom, right, 1), (top, right, -1), (bottom, left, -1)):
        np.add.at(begun, (rows, columns), sign)
    # Row by row: the library adds up columns one after the other, which takes ten times as long.
    for row in range(1, len(begun)):
        begun[row] += begun[row - 1]
    return np.asarray(begun.cumsum(axis=1)[:-1, :-1])


def _scaled(start: Floats, length: Floats, factor: float, size: int) -> tuple[Ints, Ints]:
    """(n,) first pixels, and those after the last, of stretches of at least one pixel on a grid of ``size`` pixels."""
    first = np.rint(start * factor)
    last = np.maximum(np.rint((start + length) * factor), first + 1)
    return np.clip(first, 0, size).astype(np.int64), np.clip(last, 0, size).astype(np.int64)
