"""A map of bytes and its coarser levels, in bounded memory.

Bytes are stored as class index + 1 and 0 for nothing, because class 0 is a tissue. A coarser label is the one that
most of its four pixels have; of equally frequent ones the first in reading order. Other maps are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Bytes, new_map
from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.core.threads import thread_map
from ntrm.data.area_mean import area_means

SMALLEST = 256  # Levels are added until one fits into a square of this side
BAND_PIXELS = 1 << 20  # Pixels that a thread works on together, about
IN_MEMORY = 1 << 22  # Pixels up to which a coarser level is kept in memory
MEANING = "pixel = class index + 1; 0 = nothing"


def pyramid(level: Bytes, halved: Callable[[Bytes], Bytes], folder: Path) -> list[Bytes]:
    """The map (H, W) itself and its levels, each half the one before; large ones in nameless files in ``folder``."""
    levels = [level]
    while max(levels[-1].shape) > SMALLEST:
        finer, (height, width) = levels[-1], levels[-1].shape
        shape = (-(-height // 2), -(-width // 2))
        levels.append(new_map(shape, None if math.prod(shape) <= IN_MEMORY else folder))
        rows = max(2, BAND_PIXELS // width // 2 * 2)

        def fill(top: int, finer: Bytes = finer, coarser: Bytes = levels[-1], rows: int = rows) -> None:
            coarser[top // 2 : (top + rows) // 2] = halved(np.asarray(finer[top : top + rows]))

        for _ in thread_map(fill, range(0, height, rows)):
            pass
    return levels


def check_mask(mask: Bytes, schema: LabelSchema) -> None:
    """Refuse a mask with values that are no class of the schema."""
    for top in range(0, len(mask), 512):
        check_classes(np.asarray(mask[top : top + 512]), schema)


def check_classes(indices: NDArray[np.integer], schema: LabelSchema) -> None:
    """Refuse indices that are no class of the schema."""
    unknown = indices[(indices >= len(schema)) & (indices != IGNORE)]
    if unknown.size:
        raise DataError(
            "the mask holds a class that the schema does not know",
            got=f"index {int(unknown[0])}",
            expected=f"0 to {len(schema) - 1}, or {IGNORE} for nothing",
            hint="give the schema of the model that made the mask",
        )


def halve(labels: Bytes) -> Bytes:
    """Every 2 × 2 pixels as the value that most of them have; an odd last row or column counts twice.

    >>> halve(np.array([[1, 2, 5], [2, 0, 5]], dtype=np.uint8)).tolist()
    [[2, 5]]
    """
    height, width = labels.shape
    even = np.pad(labels, ((0, height % 2), (0, width % 2)), mode="edge")
    a, b, c, d = even[::2, ::2], even[::2, 1::2], even[1::2, ::2], even[1::2, 1::2]
    halved: Bytes = a.copy()
    differ = (a != b) | (a != c) | (a != d)  # nearly everywhere all four are equal
    a, b, c, d = (each[differ] for each in (a, b, c, d))
    # b wins with a second vote that a lacks, c with d only if neither a nor b has one.
    later = np.where((b == c) | (b == d), b, np.where(c == d, c, a))
    halved[differ] = np.where((a == b) | (a == c) | (a == d), a, later)
    return halved


def halve_mean(values: Bytes) -> Bytes:
    """Every 2 × 2 pixels as their mean, rounded half up; an odd last row or column counts twice.

    >>> halve_mean(np.array([[1, 2, 5], [2, 1, 5]], dtype=np.uint8)).tolist()
    [[2, 5]]
    """
    return area_means(values[..., None], 2, 2)[..., 0]
