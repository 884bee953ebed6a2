"""Numbered things, such as stretches of a mask: ranges of their numbers, and which are linked in pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Ints


def ranges(first: Ints, length: Ints) -> Ints:
    """All integers of several ranges, one range after the other.

    >>> ranges(np.array([3, 10]), np.array([2, 3])).tolist()
    [3, 4, 10, 11, 12]
    """
    return np.repeat(first - (np.cumsum(length) - length), length) + np.arange(length.sum())


def earliest_linked(one: NDArray[np.integer], other: NDArray[np.integer], count: int) -> Ints:
    """For each of ``count`` things the earliest with which it is linked, itself or through others.

    >>> earliest_linked(np.array([3, 1]), np.array([4, 3]), 5).tolist()
    [0, 1, 2, 1, 1]
    """
    origin = np.arange(count)
    while len(one):
        # The later of two goes back to the earlier, or to the earliest of several.
        np.minimum.at(origin, np.maximum(one, other), np.minimum(one, other))
        origin = followed(origin)
        one, other = origin.take(one), origin.take(other)
        apart = np.flatnonzero(one != other)
        one, other = one.take(apart), other.take(apart)
    return origin


def followed(origin: Ints) -> Ints:
    """The first thing of the chain that each belongs to, found in doubling steps; first things point to themselves.

    >>> followed(np.array([0, 0, 1, 2])).tolist()
    [0, 0, 0, 0]
    """
    further = origin.take(origin)
    while not np.array_equal(further, origin):
        origin, further = further, further.take(further)
    return origin
