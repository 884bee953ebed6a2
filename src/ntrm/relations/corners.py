"""Where the natural surface ends and the cut begins: at the corner that the knife left.

Between the last side under keratin, which is surface for sure, and the first side of dermis or fat, which is cut for
sure, the outline may run along epidermis or tumour that is either worn surface or cut through. The corner is the
break of the best pair of straight lines through this stretch and its surroundings. Where the outline has no break
worth the name there, the surface ends with its keratin.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
Where = NDArray[np.bool_]

AROUND_UM = 200.0
"""Outline on both sides of the doubtful stretch that takes part in the two lines."""
LEAST_TURN_DEG = 30.0
"""Lines that turn by less make no corner."""
TURN_UM = 100.0
"""Sharp turns are told by the outline this far before and behind …"""
SHARP_DEG = 60.0
"""… if it turns by at least as much."""


def settle_ends(start: int, stop: int, places_um: Points, covered: Where, weights: NDArray[np.float64]) -> Where:
    """Which sides are surface, given the stretch ``start`` … ``stop`` of the ring that speaks for it most.

    ``covered`` sides lie under keratin; ``weights`` are below 0 where the cut is certain.
    """
    size = len(places_um)
    first = _end(start, stop, places_um, covered, weights, forward=False)
    last = _end(start, stop, places_um, covered, weights, forward=True)
    arc = np.zeros(size, dtype=bool)
    arc[np.arange(first, max(last, first)) % size] = True
    return arc


def _end(
    start: int, stop: int, places_um: Points, covered: Where, weights: NDArray[np.float64], *, forward: bool
) -> int:
    """Index behind the last side of surface (or of its first side, walking backward)."""
    size, length = len(places_um), stop - start
    # Walk outward from the middle of the stretch; afterwards, index k of the walk is side (middle ± k).
    middle = start + length // 2
    order = middle + np.arange(size) if forward else middle - 1 - np.arange(size)
    reach = (length - length // 2) if forward else length // 2
    under, cut = covered[order % size], weights[order % size] < 0
    sure = int(np.flatnonzero(under[: max(reach, 1)])[-1]) + 1 if under[: max(reach, 1)].any() else reach
    beyond = np.flatnonzero(cut[sure:])
    certain = sure + (int(beyond[0]) if beyond.size else 0)
    walk = places_um[order % size]
    corner = _corner(walk, sure, max(certain, reach))
    return middle + corner if forward else middle - corner


def _corner(walk: Points, sure: int, certain: int) -> int:
    """Index in the walk of the first side that is cut: from ``sure`` to ``certain``."""
    if certain <= sure:
        return sure
    travelled = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(walk, axis=0).T))])
    certain = _first_turn(walk, travelled, sure, certain)
    low = int(np.searchsorted(travelled, travelled[sure] - AROUND_UM))
    high = int(np.searchsorted(travelled, travelled[certain] + AROUND_UM))
    piece = walk[max(low, 0) : min(high, len(walk))]
    if len(piece) < 8:
        return sure
    at, turn_deg = two_lines(piece)
    if turn_deg < LEAST_TURN_DEG:
        return sure
    return int(np.clip(low + at, sure, certain))


def _first_turn(walk: Points, travelled: NDArray[np.float64], sure: int, certain: int) -> int:
    """Where the first sharp turn after ``sure`` is over, ``certain`` at the latest.

    A tumour may line the cut as well as the surface: the knife's first corner counts, not a later one.
    """
    places = np.arange(sure, certain + 1)
    before = np.searchsorted(travelled, np.maximum(travelled[places] - TURN_UM, 0.0))
    after = np.minimum(np.searchsorted(travelled, travelled[places] + TURN_UM), len(walk) - 1)
    back, forth = walk[places] - walk[before], walk[after] - walk[places]
    lengths = np.maximum(np.hypot(*back.T) * np.hypot(*forth.T), 1e-9)
    sharp = (back * forth).sum(axis=1) / lengths < np.cos(np.radians(SHARP_DEG))
    if not sharp.any():
        return certain
    first = int(sharp.argmax())
    rest = np.flatnonzero(~sharp[first:])
    return sure + first + (int(rest[0]) if rest.size else 0)


def two_lines(points: Points) -> tuple[int, float]:
    """Split of a run of points that leaves least to two straight lines, and the angle in degrees between them.

    >>> at, turn = two_lines(np.array([[0, 0], [0, 1], [0, 2], [0, 3], [1, 4], [2, 4], [3, 4], [4, 4.0]]))
    >>> at, round(turn)
    (4, 90)
    """
    count = len(points)
    shifted = points - points.mean(axis=0)
    splits = np.arange(3, count - 2)
    left, right = _rests(shifted)[splits - 1], _rests(shifted[::-1])[count - splits - 1]
    at = int(splits[(left + right).argmin()])
    ahead, behind = _direction(shifted[:at]), _direction(shifted[at:])
    return at, float(np.degrees(np.arccos(np.clip(ahead @ behind, -1.0, 1.0))))


def _rests(points: Points) -> NDArray[np.float64]:
    """For each k: squared distances of points 0 … k from their best line (the smaller principal moment)."""
    count = np.arange(1, len(points) + 1)
    y, x = points.T
    mean_y, mean_x = np.cumsum(y) / count, np.cumsum(x) / count
    yy = np.cumsum(y * y) - count * mean_y**2
    xx = np.cumsum(x * x) - count * mean_x**2
    xy = np.cumsum(x * y) - count * mean_x * mean_y
    return np.asarray((yy + xx) / 2 - np.hypot((yy - xx) / 2, xy))


def _direction(points: Points) -> NDArray[np.float64]:
    """Unit vector along the points, from the first to the last."""
    centred = points - points.mean(axis=0)
    along = np.linalg.svd(centred, full_matrices=False)[2][0]
    forth = along @ (points[-1] - points[0])
    return np.asarray(along if forth >= 0 else -along)
