"""Where a slide is unlike what the model knows: its picture in grey, the windows in three colours."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image

from ntrm.core.arrays import Floats
from ntrm.core.labels import RGB
from ntrm.report.overlay import Picture, font_size, with_legend

BETWEEN_BELOW = 0.1  # P-value below which a window is neither like nor unlike
STEPS: tuple[tuple[float, RGB, str], ...] = (
    (0.01, (213, 94, 0), "p below 0.01: unlike the training data"),
    (BETWEEN_BELOW, (240, 228, 66), f"p below {BETWEEN_BELOW:g}: in between"),
    (math.inf, (86, 180, 233), "like the training data"),
)
"""P-values below which a window has a colour; colours of Okabe and Ito, told apart by every kind of colour vision."""
TINT = 0.5
LEAST_P = 1e-6  # Smaller p-values count as this: one window must not outweigh all that overlap it

Windows = Sequence[tuple[int, int, int, int, float]]  # Top, left, height and width in pixels of the mask, and p-value


def familiarity_map(picture: Picture, windows: Windows, mask_shape: tuple[int, int]) -> Picture:
    """``picture`` (H, W, 3) of a whole mask, tinted where there are windows, with a legend below.

    Where windows overlap, the geometric mean of their p-values counts.
    """
    p_values = window_values(windows, mask_shape, (picture.shape[0], picture.shape[1]))
    # The step of each pixel; the last one, which leaves it grey, where no window lies.
    step = np.where(np.isnan(p_values), len(STEPS), np.digitize(p_values, [upper for upper, _, _ in STEPS[:-1]]))
    colours = TINT * np.array([*(colour for _, colour, _ in STEPS), (0, 0, 0)], dtype=np.float32)
    weights = np.array([1 - TINT] * len(STEPS) + [1], dtype=np.float32)
    red, green, blue = (picture[..., channel].astype(np.float32) for channel in range(3))
    shown = (weights[step] * ((red + green + blue) / 3))[..., None] + colours[step]
    canvas = Image.fromarray(np.rint(shown).astype(np.uint8))
    entries = [(text, colour, colour) for _, colour, text in STEPS]
    return np.asarray(with_legend(canvas, entries, 1.7 * font_size(canvas.width, canvas.height)))


def window_values(windows: Windows, mask_shape: tuple[int, int], shape: tuple[int, int]) -> Floats:
    """(H, W) p-values of a picture of ``shape`` that shows the whole mask; NaN where no window lies.

    >>> window_values([(0, 0, 2, 2, 0.25), (0, 1, 2, 2, 0.01)], (2, 4), (1, 4)).round(3).tolist()
    [[0.25, 0.05, 0.01, nan]]
    """
    sums, counts = np.zeros(shape), np.zeros(shape)
    down, across = shape[0] / mask_shape[0], shape[1] / mask_shape[1]
    for y, x, height, width, p_value in windows:
        top, left = round(y * down), round(x * across)
        bottom, right = max(round((y + height) * down), top + 1), max(round((x + width) * across), left + 1)
        sums[top:bottom, left:right] += math.log(max(p_value, LEAST_P))
        counts[top:bottom, left:right] += 1
    means = np.divide(sums, counts, out=np.full(shape, np.nan), where=counts > 0)
    return np.asarray(np.exp(means))
