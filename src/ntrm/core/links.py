"""Ranges of the numbers of things, such as the pixels of stretches of a mask."""

from __future__ import annotations

import numpy as np

from ntrm.core.arrays import Ints


def ranges(first: Ints, length: Ints) -> Ints:
    """All integers of several ranges, one range after the other.

    >>> ranges(np.array([3, 10]), np.array([2, 3])).tolist()
    [3, 4, 10, 11, 12]
    """
    return np.repeat(first - (np.cumsum(length) - length), length) + np.arange(length.sum())
