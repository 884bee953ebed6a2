"""The natural surface along the outline of a piece: which stretch it is, where it ends, and which plugs it bridges.

The outline is a closed ring of pixel sides; each side speaks for the surface or for a cut by a number.
"""

from __future__ import annotations

import numpy as np

from ntrm.core.arrays import Floats, Ints
from ntrm.regions.runs import Where

AROUND_UM = 200.0  # Outline on both sides of the doubtful stretch that the two lines are fitted to
LEAST_TURN_DEG = 30.0  # Lines that turn by less make no corner
TURN_UM = 100.0  # A turn is the angle between the outline this far before and this far behind …
SHARP_DEG = 60.0  # … and is sharp from here on

DETOUR = 1.25
LEAST_GAIN_UM = 60.0
WIDEST_UM = 2000.0
COVERED_FRACTION = 0.7  # At least this fraction of the way around must lie under keratin: what gapes open is no plug
STEP_UM = 25.0  # Points are taken in steps of this length, which also smooths the stairs of the pixels
MOST_POINTS = 1500
MOST_PLUGS = 50


def best_arc(values: Floats) -> tuple[int, int, float]:
    """Arc of a closed ring with the largest sum: first index, index after the last (may exceed n), the sum.

    >>> best_arc(np.array([2.0, -1, -5, 1, 3]))
    (3, 6, 6.0)
    """
    size = len(values)
    total = np.concatenate([[0.0], np.cumsum(values)])  # (n + 1,)
    plain = total - np.minimum.accumulate(total)
    stop = int(plain.argmax())
    best = (int(total[: stop + 1].argmin()), stop, float(plain[stop]))
    # Across the seam: the ring less the arc with the smallest sum.
    fall = total - np.maximum.accumulate(total)
    end = int(fall.argmin())
    begin = int(total[: end + 1].argmax())
    around = float(total[size] - fall[end])
    return (end, size + begin, around) if around > best[2] else best


def settle_ends(start: int, stop: int, points_um: Floats, covered: Where, weights: Floats) -> Where:
    """Which sides are surface, given the arc ``start`` … ``stop`` of the ring that speaks for it most.

    The surface ends at the corner that the knife left. Between the last side under keratin, which is surface for sure,
    and the first side of dermis or fat, which is cut for sure, the outline may run along epidermis or tumour that is
    either worn surface or cut through. The corner is the break of the best pair of straight lines through this stretch
    and its surroundings. Where the outline has no such break, the surface ends with its keratin.

    ``covered`` sides lie under keratin; ``weights`` are below 0 where the cut is certain.
    """
    size, half = len(points_um), (stop - start) // 2
    middle = start + half
    # Both walks go outward from the middle of the arc.
    around = np.arange(size)
    first = middle - _end((middle - 1 - around) % size, half, points_um, covered, weights)
    last = middle + _end((middle + around) % size, stop - middle, points_um, covered, weights)
    arc = np.zeros(size, dtype=bool)
    arc[np.arange(first, max(last, first)) % size] = True
    return arc


def _end(order: Ints, reach: int, points_um: Floats, covered: Where, weights: Floats) -> int:
    """Number of sides of surface along the walk ``order``, of which the first ``reach`` belong to the best arc."""
    under = np.flatnonzero(covered[order][: max(reach, 1)])
    sure = int(under[-1]) + 1 if under.size else reach
    cut = np.flatnonzero(weights[order][sure:] < 0)
    certain = max(sure + (int(cut[0]) if cut.size else 0), reach)
    if certain <= sure:
        return sure
    walk = points_um[order]
    travelled = _travelled(walk)
    certain = _first_turn(walk, travelled, sure, certain)
    low, high = np.searchsorted(travelled, [travelled[sure] - AROUND_UM, travelled[certain] + AROUND_UM]).tolist()
    if high - low < 8:
        return sure
    at, turn_deg = two_lines(walk[low:high])
    return sure if turn_deg < LEAST_TURN_DEG else int(np.clip(low + at, sure, certain))


def _travelled(points: Floats) -> Floats:
    """(n,) way along the points up to each of them."""
    return np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])


def _first_turn(walk: Floats, travelled: Floats, sure: int, certain: int) -> int:
    """Where the first sharp turn after ``sure`` is over, ``certain`` at the latest.

    A tumour may line the cut as well as the surface: the knife's first corner counts, not a later one.
    """
    stretch = slice(sure, certain + 1)
    before = np.searchsorted(travelled, np.maximum(travelled[stretch] - TURN_UM, 0.0))
    after = np.minimum(np.searchsorted(travelled, travelled[stretch] + TURN_UM), len(walk) - 1)
    back, forth = walk[stretch] - walk[before], walk[after] - walk[stretch]
    lengths = np.maximum(np.hypot(*back.T) * np.hypot(*forth.T), 1e-9)
    sharp = (back * forth).sum(axis=1) / lengths < np.cos(np.radians(SHARP_DEG))
    if not sharp.any():
        return certain
    first = int(sharp.argmax())
    rest = np.flatnonzero(~sharp[first:])
    return sure + first + (int(rest[0]) if rest.size else 0)


def two_lines(points: Floats) -> tuple[int, float]:
    """Where to split a sequence of points into two straight lines with the smallest residuals, and their angle in °.

    >>> at, turn = two_lines(np.array([[0, 0], [0, 1], [0, 2], [0, 3], [1, 4], [2, 4], [3, 4], [4, 4.0]]))
    >>> at, round(turn)
    (4, 90)
    """
    count = len(points)
    shifted = points - points.mean(axis=0)
    splits = np.arange(3, count - 2)
    left, right = _residuals(shifted)[splits - 1], _residuals(shifted[::-1])[count - splits - 1]
    at = int(splits[(left + right).argmin()])
    ahead, behind = _direction(shifted[:at]), _direction(shifted[at:])
    return at, float(np.degrees(np.arccos(np.clip(ahead @ behind, -1.0, 1.0))))


def _residuals(points: Floats) -> Floats:
    """For each k: sum of squared distances of points 0 … k from their best line (the smaller principal moment)."""
    count = np.arange(1, len(points) + 1)
    y, x = points.T
    mean_y, mean_x = np.cumsum(y) / count, np.cumsum(x) / count
    yy = np.cumsum(y * y) - count * mean_y**2
    xx = np.cumsum(x * x) - count * mean_x**2
    xy = np.cumsum(x * y) - count * mean_x * mean_y
    return np.asarray((yy + xx) / 2 - np.hypot((yy - xx) / 2, xy))


def _direction(points: Floats) -> Floats:
    """Unit vector along the points, from the first to the last."""
    centred = points - points.mean(axis=0)
    along = np.linalg.svd(centred, full_matrices=False)[2][0]
    forth = along @ (points[-1] - points[0])
    return np.asarray(along if forth >= 0 else -along)


def bridge_plugs(points_um: Floats, covered: Where, turns_left: bool) -> list[tuple[int, int]]:
    """Pairs of indices into the surface between which it is bridged by a straight line.

    Plugs of keratin reach down into a tumour: the surface runs straight over their mouths, not around them. Between
    two points of the surface a plug shows by a way around that is much longer than the straight way across. Of all
    pairs of points the one with the largest ``around - DETOUR · across`` is bridged first, then the next, as long as
    this gains ``LEAST_GAIN_UM``. With a factor of 1.25 a surface that stays within 37° of the line across is never
    bridged; a shoulder steeper than 75°, on the flank of a bulge under keratin, may be.

    ``points_um`` (n, 2) run along the surface; ``covered`` says where keratin lies beyond; ``turns_left``: the signed
    area of the outline in (row, column) is positive.
    """
    if len(points_um) < 8:
        return []
    travelled = _travelled(points_um)
    step_um = max(STEP_UM, float(travelled[-1]) / MOST_POINTS)
    kept = np.unique(np.searchsorted(travelled, np.arange(0.0, travelled[-1], step_um)))
    cover = np.concatenate([[0.0], np.cumsum(covered)])
    points = points_um[kept]
    across = np.hypot(*(points[None] - points[:, None]).transpose(2, 0, 1))  # (m, m)
    across = np.where(across > WIDEST_UM, np.inf, DETOUR * across)
    bridges: list[tuple[int, int]] = []
    for _ in range(MOST_PLUGS):
        pair = _best_pair(points, kept, across, cover, turns_left)
        if pair is None:
            break
        first, last = (int(kept[index]) for index in pair)
        # A wider bridge swallows those within it.
        bridges = [bridge for bridge in bridges if bridge[0] < first or bridge[1] > last] + [(first, last)]
        left = (kept <= first) | (kept >= last)
        kept, points, across = kept[left], points[left], across[np.ix_(left, left)]
    return sorted(bridges)


def _best_pair(points: Floats, kept: Ints, across: Floats, cover: Floats, turns_left: bool) -> tuple[int, int] | None:
    """Indices into ``points`` of the pair whose way around gains most over the straight way ``across``."""
    along = _travelled(points)
    # What is too wide has a gain far below 0. Few pairs gain enough: the other conditions are checked for them alone.
    gain = along[None] - along[:, None] - across
    first, last = np.nonzero(gain >= LEAST_GAIN_UM)
    # Twice the signed area between the way and the straight line from i to j is S_j - S_i - p_i × p_j.
    swept = np.concatenate([[0.0], np.cumsum(_cross(points[:-1], points[1:]))])
    area = swept[last] - swept[first] - _cross(points[first], points[last])
    fraction = (cover[kept[last]] - cover[kept[first]]) / np.maximum(kept[last] - kept[first], 1)
    is_plug = ((area < 0) == turns_left) & (area != 0) & (fraction >= COVERED_FRACTION)
    if not is_plug.any():
        return None
    best = int(np.where(is_plug, gain[first, last], 0.0).argmax())
    return int(first[best]), int(last[best])


def _cross(one: Floats, other: Floats) -> Floats:
    return np.asarray(one[..., 0] * other[..., 1] - one[..., 1] * other[..., 0])
