"""Plugs of keratin that reach down into a tumour: the surface runs straight over their mouths, not around them.

A plug between two places of the surface shows by its way around: it is much longer than the straight way across. Of
all pairs of places the one with the largest ``around - DETOUR · across`` is bridged first, then the next, until no
detour is left that is worth it. With a factor of 1.25 a surface that stays within 37° of the line across is never
bridged; a shoulder steeper than 75°, on the flank of a bulge under keratin, may be.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
Where = NDArray[np.bool_]

DETOUR = 1.25
LEAST_GAIN_UM = 60.0
WIDEST_UM = 2000.0
COVERED_SHARE = 0.7
"""At least this share of the way around must lie under keratin: what gapes open is no plug."""
STEP_UM = 25.0
"""Places are looked at in steps of this length, which also smooths the stairs of the pixels."""
MOST_PLACES = 1500
MOST_PLUGS = 50


def bridge_plugs(places_um: Points, covered: Where, turns_left: bool) -> list[tuple[int, int]]:
    """Pairs of indices into the surface between which it is bridged by a straight line.

    ``places_um`` (n, 2) run along the surface; ``covered`` says where keratin lies beyond; ``turns_left`` is the sense
    in which the whole outline runs (its signed area in (row, column) is positive).
    """
    if len(places_um) < 8:
        return []
    travelled = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(places_um, axis=0).T))])
    step_um = max(STEP_UM, float(travelled[-1]) / MOST_PLACES)
    kept = np.unique(np.searchsorted(travelled, np.arange(0.0, travelled[-1], step_um)))
    cover = np.concatenate([[0.0], np.cumsum(covered)])
    points = places_um[kept]
    across = np.hypot(*(points[None] - points[:, None]).transpose(2, 0, 1))  # (m, m)
    across = np.where(across > WIDEST_UM, np.inf, DETOUR * across)
    bridges: list[tuple[int, int]] = []
    for _ in range(MOST_PLUGS):
        pair = _best_pair(points, kept, across, cover, turns_left)
        if pair is None:
            break
        first, last = (int(kept[place]) for place in pair)
        # A wider bridge swallows those within it.
        bridges = [bridge for bridge in bridges if bridge[0] < first or bridge[1] > last] + [(first, last)]
        left = (kept <= first) | (kept >= last)
        kept, points, across = kept[left], points[left], across[np.ix_(left, left)]
    return sorted(bridges)


def _best_pair(
    points: Points, kept: NDArray[np.int64], across: NDArray[np.float64], cover: NDArray[np.float64], turns_left: bool
) -> tuple[int, int] | None:
    """Places in ``kept`` (of ``points``) whose way around gains most over the straight way ``across``."""
    steps = np.diff(points, axis=0)
    along = np.concatenate([[0.0], np.cumsum(np.hypot(*steps.T))])
    # What is too wide has a gain far below 0. Few pairs have one worth it: the rest is asked of them alone.
    gain = along[None] - along[:, None] - across
    first, last = np.nonzero(gain >= LEAST_GAIN_UM)
    # Twice the signed area between the way and the straight line from i to j is S_j - S_i - p_i × p_j.
    swept = np.concatenate([[0.0], np.cumsum(_cross(points[:-1], points[1:]))])
    area = swept[last] - swept[first] - _cross(points[first], points[last])
    share = (cover[kept[last]] - cover[kept[first]]) / np.maximum(kept[last] - kept[first], 1)
    right = ((area < 0) == turns_left) & (area != 0) & (share >= COVERED_SHARE)
    if not right.any():
        return None
    best = int(np.where(right, gain[first, last], 0.0).argmax())
    return int(first[best]), int(last[best])


def _cross(one: Points, other: Points) -> NDArray[np.float64]:
    return np.asarray(one[..., 0] * other[..., 1] - one[..., 1] * other[..., 0])
