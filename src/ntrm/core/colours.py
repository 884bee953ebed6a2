"""Colours for classes that have none: told from stained tissue, from glass and from each other."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from ntrm.core.arrays import Floats
from ntrm.core.labels import RGB, SAFE_COLOURS, rgb_of

SEEN: tuple[RGB, ...] = ((236, 180, 208), (200, 110, 165), (120, 70, 140), (255, 255, 255), (0, 0, 0))
"""What lies beneath: pale and strong eosin, haematoxylin, glass; and black, in which glass is drawn."""
_STEPS = range(0, 256, 32)
_TO_LMS = np.array(
    [[0.4122215, 0.5363325, 0.0514460], [0.2119035, 0.6806995, 0.1073970], [0.0883025, 0.2817188, 0.6299787]]
)
_TO_LAB = np.array(
    [[0.2104543, 0.7936178, -0.0040720], [1.9779985, -2.4285922, 0.4505937], [0.0259040, 0.7827718, -0.8086758]]
)


def further_colours(count: int, taken: Collection[RGB] = ()) -> list[RGB]:
    """So many colours beside those that are ``taken``, each as far from all others and from tissue as can be.

    Those that colour-blind readers can tell apart come first.

    >>> further_colours(2), len(set(further_colours(254)))
    ([(102, 0, 0), (0, 34, 119)], 254)
    """
    pool: list[RGB] = [*SAFE_COLOURS, *(rgb_of(colour) for colour in product(_STEPS, repeat=3))]
    places, chosen = _oklab(pool), list[RGB]()
    gaps = np.linalg.norm(places[:, None] - _oklab([*SEEN, *taken]), axis=2).min(axis=1)
    for _ in range(count):
        safe = slice(len(SAFE_COLOURS) if gaps[: len(SAFE_COLOURS)].any() else None)
        best = int(gaps[safe].argmax())
        chosen.append(pool[best])
        gaps = np.minimum(gaps, np.linalg.norm(places - places[best], axis=1))
    return chosen


def _oklab(colours: ArrayLike) -> Floats:
    """(n, 3) in OKLab, where distances are about as large as they look; https://bottosson.github.io/posts/oklab/."""
    encoded = np.asarray(colours, dtype=np.float64) / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    return np.asarray(np.cbrt(linear @ _TO_LMS.T) @ _TO_LAB.T)
