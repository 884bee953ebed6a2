"""Colours of layers: the dataset's own, one for colour-blind readers, and that of certainty."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from ntrm.core.labels import RGB, LabelSchema, safe_palette

Table = NDArray[np.uint8]

_VIRIDIS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
HIGHLIGHT: RGB = (255, 214, 10)
CORRECTED, BROKEN = (26, 152, 80), (215, 48, 39)
SAFE_CORRECTED, SAFE_BROKEN = (0, 90, 181), (220, 100, 0)
"""Blue and orange: green and red are one colour to some."""


def safe_colours(schema: LabelSchema) -> list[RGB]:
    """A colour for each class that colour-blind readers tell apart; of very many classes, a grey each."""
    found = safe_palette(schema)
    step = 255 / max(len(schema) - 1, 1)
    return [(round(step * k),) * 3 for k in range(len(schema))] if found is None else list(found)


def class_table(colours: Sequence[RGB]) -> Table:
    """(K + 1, 3) for pixels that are class index + 1."""
    return np.array([(255, 255, 255), *colours], dtype=np.uint8)


def class_alpha(
    count: int, background: int | None, hide: Collection[int] = (), only: Collection[int] | None = None
) -> Table:
    """(K + 1,) opacities: nothing and, unless asked for, background and what is hidden are transparent."""
    alpha = np.full(count + 1, 255, dtype=np.uint8)
    alpha[0] = 0
    if only is not None:
        alpha[1:] = [255 if index in only else 0 for index in range(count)]
        return alpha
    hidden = {*hide} | ({background} if background is not None else set())
    for index in hidden:
        if 0 <= index < count:
            alpha[index + 1] = 0
    return alpha


def certainty_table(kind: str) -> Table:
    """(256, 3): grey or from dark violet (uncertain) to yellow (certain)."""
    ramp = np.arange(256)
    if kind == "grey":
        return np.repeat(ramp[:, None], 3, axis=1).astype(np.uint8)
    stops = np.linspace(0, 255, len(_VIRIDIS))
    return np.stack([np.interp(ramp, stops, channel) for channel in zip(*_VIRIDIS, strict=True)], axis=1).astype(
        np.uint8
    )
