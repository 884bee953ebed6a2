"""Once around a piece of skin: which stretch of its outline is the natural surface, and which the knife made.

The *body* is the largest connected part of what is neither background, ignored nor keratin, with its holes filled:
loose bits, flakes and pearls take no part, and under keratin its outline is the true surface. Narrow cracks that open
to the outside are filled as well, since a tear is neither surface nor margin.
The outline consists of the pixel sides between body and outside, in order. Keratin beyond a side, or epidermis behind
it, speaks for the natural surface; dermis, fat or glands behind it speak for a cut; a tumour says nothing. The surface
is the stretch with the largest sum: one stretch, so a worn or ulcerated place within it belongs to it, and keratin
that a cut exposes does not. Its two ends are then moved to the corner that the knife left.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import ndimage

from ntrm.analysis.body import body_sides, bulk_box, embedded, find_body, framed
from ntrm.analysis.runs import Floats, Ints, Runs, Where, runs_of
from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, LabelSchema, Mask
from ntrm.core.mpp import Resolution

SURFACE_TISSUES = ("EPI", "IEC")
KERATIN = "KER"
CUT_TISSUES = ("RET", "HYP", "GLD", "PAP")
EVIDENCE = ((SURFACE_TISSUES, 0.7), (CUT_TISSUES, -1.0), (("INF",), -0.5))
"""What the tissue behind a side says; keratin beyond it says 1, what is not named here 0."""

NO_TISSUE = "no tissue in the piece"
NO_SURFACE_CLASSES = "the classes know no epidermis and no keratin: the skin surface cannot be told"
NO_SURFACE = "no skin surface in the piece"

LEAST_SURFACE_UM = 300.0
"""Evidence for less surface than this is none."""
LEAST_SHARE = 0.1
"""… nor is evidence for less than this share of the outline: keratin pearls and follicles lie at cuts, too."""
MOST_PIXELS = 1 << 24
"""Finer masks are thinned to this many pixels before the outline is looked for, so that memory stays bounded."""


AROUND_UM = 200.0
"""Outline on both sides of the doubtful stretch that takes part in the two lines."""
LEAST_TURN_DEG = 30.0
"""Lines that turn by less make no corner."""
TURN_UM = 100.0
"""Sharp turns are told by the outline this far before and behind …"""
SHARP_DEG = 60.0
"""… if it turns by at least as much."""

DETOUR = 1.25
LEAST_GAIN_UM = 60.0
WIDEST_UM = 2000.0
COVERED_SHARE = 0.7
"""At least this share of the way around must lie under keratin: what gapes open is no plug."""
STEP_UM = 25.0
"""Places are looked at in steps of this length, which also smooths the stairs of the pixels."""
MOST_PLACES = 1500
MOST_PLUGS = 50


@dataclass(frozen=True, eq=False)
class Outline:
    """The outline of one piece. Coordinates are (row, column) of the mask that was given, in pixels."""

    resolution: Resolution
    stride: int
    """Only every so manieth pixel of the mask was looked at, in both directions."""
    sides: Floats
    """(n, 2) middles of the pixel sides, in order around the body."""
    inner: Ints
    """(n, 2) the pixel of the body at each side."""
    outer: Ints
    """(n, 2) the pixel outside."""
    is_surface: Where
    """(n,) whether the side belongs to the natural surface; the others were cut."""
    covered: Where
    """(n,) whether keratin lies beyond the side."""
    fragments: int
    """Parts that hold a fair share of the tissue."""
    bulk: Ints | None
    """Top, left, bottom and right (first and last pixels) of the body without thin spurs; None if it is but spurs."""
    reason: str = ""
    """Why there is no surface; empty where there is one."""

    @property
    def scale_um(self) -> Floats:
        """µm per pixel of the mask along rows and columns."""
        return np.array([self.resolution.y, self.resolution.x])

    @property
    def step_um(self) -> Floats:
        """The same for the pixels that were looked at."""
        return self.scale_um * self.stride

    @cached_property
    def surface(self) -> Floats:
        """(m, 2) pixels just above the surface, from its one end to the other, straight over plugs of keratin."""
        order = self.surface_order
        outer = self.outer[order].astype(np.float64)
        bridges = bridge_plugs(self.sides[order] * self.scale_um, self.covered[order], self._area > 0)
        kept, parts = 0, []
        for first, last in bridges:
            parts.append(outer[kept : first + 1])
            count = int(np.hypot(*((outer[last] - outer[first]) / self.stride))) + 2
            parts.append(np.linspace(outer[first], outer[last], count)[1:-1])
            kept = last
        return np.concatenate([*parts, outer[kept:]])

    @property
    def surface_order(self) -> Ints:
        """Indices of the sides of the surface, from its first to its last around the ring."""
        return _in_order(self.is_surface)

    @property
    def cut_order(self) -> Ints:
        """Indices of the other sides, from the end of the surface around to its beginning."""
        return _in_order(~self.is_surface)

    @property
    def _area(self) -> float:
        """Twice the signed area in (row, column)."""
        ahead = np.roll(self.sides, -1, axis=0)
        return float((self.sides[:, 0] * ahead[:, 1] - self.sides[:, 1] * ahead[:, 0]).sum())

    @cached_property
    def normals(self) -> Floats:
        """(n, 2) unit vectors out of the body, in µm, smoothed over ``SMOOTH_UM`` of the outline."""
        raw = (self.outer - self.inner) * self.step_um
        # A long side weighs more: a row step crosses a side as long as a column step.
        raw = raw / np.hypot(*raw.T)[:, None] * np.where(raw[:, :1] != 0, self.step_um[1], self.step_um[0])
        width = max(int(SMOOTH_UM / float(self.step_um.mean())), 1)
        smooth = ndimage.uniform_filter1d(raw, min(width, len(raw)), axis=0, mode="wrap")
        length = np.hypot(*smooth.T)[:, None]
        return np.asarray(np.divide(smooth, length, out=np.zeros_like(smooth), where=length > 0))


SMOOTH_UM = 150.0
"""Directions along the outline are means over this length."""


def _in_order(stretch: Where) -> Ints:
    """Indices of one stretch of a ring, in order although it may run across the seam."""
    found = np.flatnonzero(stretch)
    gap = np.flatnonzero(np.diff(found) > 1)
    return np.roll(found, -(int(gap[0]) + 1)) if gap.size else found


def trace_outline(mask: Mask, schema: LabelSchema, resolution: Resolution) -> Outline:
    """Find the outline of the piece in ``mask`` and tell surface from cut."""
    check_mask(mask, schema)
    stride = stride_for((mask.shape[0], mask.shape[1]))
    return trace_thinned(runs_of(mask[::stride, ::stride]), stride, schema, resolution)


def stride_for(shape: tuple[int, int]) -> int:
    """Of the pixels of a mask every so manieth is looked at, in both directions.

    >>> stride_for((4096, 4096)), stride_for((4096, 4097))
    (1, 2)
    """
    stride = 1
    while -(-shape[0] // stride) * -(-shape[1] // stride) > MOST_PIXELS:
        stride += 1
    return stride


def trace_thinned(thinned: Runs, stride: int, schema: LabelSchema, resolution: Resolution) -> Outline:
    """The same from the runs of every ``stride``-th pixel of a mask, whose µm/px are ``resolution``."""
    if not {KERATIN, *SURFACE_TISSUES} & set(schema.names):
        return _nothing(resolution, stride, NO_SURFACE_CLASSES)
    seen, corner = _cropped(thinned, schema)
    step = np.array([resolution.y, resolution.x]) * stride
    body, fragments = find_body(_flesh(seen, schema), step)
    if body is None:
        return _nothing(resolution, stride, NO_TISSUE)
    sides, inner, outer = body_sides(body)
    weights, covered = _evidence(seen, schema, inner, outer)
    lengths = np.where(inner[:, 0] != outer[:, 0], step[1], step[0])
    start, stop, total = best_arc(weights * lengths)
    found = total >= max(LEAST_SURFACE_UM, LEAST_SHARE * float(lengths.sum()))
    bulk = bulk_box(body, step)
    return Outline(
        resolution=resolution,
        stride=stride,
        sides=(sides + corner) * stride,
        inner=(inner + corner) * stride,
        outer=(outer + corner) * stride,
        is_surface=settle_ends(start, stop, sides * step, covered, weights) if found else np.zeros(len(sides), bool),
        covered=covered,
        fragments=fragments,
        bulk=None if bulk is None else (bulk + np.tile(corner, 2)) * stride,
        reason="" if found else NO_SURFACE,
    )


def _cropped(runs: Runs, schema: LabelSchema) -> tuple[Runs, Ints]:
    """The part that holds tissue within a frame of nothing, and (row, column) of its corner in the mask."""
    outside = IGNORE if schema.background_index is None else schema.background_index
    tissue = (runs.value != IGNORE) & (runs.value != outside)
    if not tissue.any():
        return runs_of(np.full((1, 1), IGNORE, dtype=np.uint8)), np.zeros(2, dtype=np.int64)
    rows, columns = runs.row[tissue], runs.left[tissue]
    top, left = int(rows[0]), int(columns.min())
    right = int((columns + runs.length[tissue]).max())
    part = runs.window(top, left, int(rows[-1]) + 1 - top, right - left)
    return framed(part, 1, 1, IGNORE), np.array([top - 1, left - 1])


def _flesh(seen: Runs, schema: LabelSchema) -> Runs:
    """Where there is tissue that is not keratin, or keratin within such tissue."""
    table = np.zeros(256, dtype=bool)
    table[[tissue.index for tissue in schema.tissues if tissue.name not in {schema.background, KERATIN}]] = True
    flesh = table[seen.value]
    if KERATIN in schema.names:
        flesh = flesh | embedded(seen, seen.value == schema.index(KERATIN), flesh)
    return seen.relabelled(flesh)


def check_mask(mask: Mask, schema: LabelSchema) -> None:
    """Refuse what is no label mask of this schema."""
    if mask.ndim != 2 or mask.dtype != np.uint8:
        raise DataError("this is no label mask", got=f"{mask.dtype} {mask.shape}", expected="uint8 (height, width)")
    wrong = (mask >= len(schema)) & (mask != IGNORE)
    if wrong.any():
        raise DataError(
            "the mask has labels that the schema does not know",
            got=f"label {int(mask[wrong][0])}",
            expected=f"0 to {len(schema) - 1}, or {IGNORE} for nothing",
            hint="give the schema that the mask was made with",
        )


def _nothing(resolution: Resolution, stride: int, reason: str) -> Outline:
    none = np.zeros((0, 2), dtype=np.int64)
    never = np.zeros(0, dtype=bool)
    return Outline(resolution, stride, none.astype(np.float64), none, none, never, never, 0, None, reason)


def _evidence(seen: Runs, schema: LabelSchema, inner: Ints, outer: Ints) -> tuple[Floats, Where]:
    """For each side: above 0 for surface, below 0 for a cut; and whether keratin lies beyond."""
    behind = np.zeros(256)
    for names, weight in EVIDENCE:
        for name in set(names) & set(schema.names):
            behind[schema.index(name)] = weight
    tissues, beyond = (seen.value[seen.at(at[:, 0] * seen.shape[1] + at[:, 1])] for at in (inner, outer))
    covered = np.zeros(len(outer), dtype=bool)
    if KERATIN in schema.names:
        covered = np.asarray(beyond == schema.index(KERATIN))
    return np.where(covered, 1.0, behind[tissues]), covered


def best_arc(values: Floats) -> tuple[int, int, float]:
    """Stretch of a closed ring with the largest sum: first index, index after the last (may exceed n), the sum.

    >>> best_arc(np.array([2.0, -1, -5, 1, 3]))
    (3, 6, 6.0)
    """
    size = len(values)
    total = np.concatenate([[0.0], np.cumsum(values)])  # (n + 1,)
    plain = total - np.minimum.accumulate(total)
    stop = int(plain.argmax())
    best = (int(total[: stop + 1].argmin()), stop, float(plain[stop]))
    # Across the seam: the whole ring less the stretch with the smallest sum.
    fall = total - np.maximum.accumulate(total)
    end = int(fall.argmin())
    begin = int(total[: end + 1].argmax())
    around = float(total[size] - fall[end])
    return (end, size + begin, around) if around > best[2] else best


def settle_ends(start: int, stop: int, places_um: Floats, covered: Where, weights: Floats) -> Where:
    """Which sides are surface, given the stretch ``start`` … ``stop`` of the ring that speaks for it most.

    The surface ends at the corner that the knife left. Between the last side under keratin, which is surface for sure,
    and the first side of dermis or fat, which is cut for sure, the outline may run along epidermis or tumour that is
    either worn surface or cut through. The corner is the break of the best pair of straight lines through this stretch
    and its surroundings. Where the outline has no break worth the name there, the surface ends with its keratin.

    ``covered`` sides lie under keratin; ``weights`` are below 0 where the cut is certain.
    """
    size = len(places_um)
    first = _end(start, stop, places_um, covered, weights, forward=False)
    last = _end(start, stop, places_um, covered, weights, forward=True)
    arc = np.zeros(size, dtype=bool)
    arc[np.arange(first, max(last, first)) % size] = True
    return arc


def _end(start: int, stop: int, places_um: Floats, covered: Where, weights: Floats, *, forward: bool) -> int:
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


def _corner(walk: Floats, sure: int, certain: int) -> int:
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


def _first_turn(walk: Floats, travelled: Floats, sure: int, certain: int) -> int:
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


def two_lines(points: Floats) -> tuple[int, float]:
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


def _rests(points: Floats) -> Floats:
    """For each k: squared distances of points 0 … k from their best line (the smaller principal moment)."""
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


def bridge_plugs(places_um: Floats, covered: Where, turns_left: bool) -> list[tuple[int, int]]:
    """Pairs of indices into the surface between which it is bridged by a straight line.

    Plugs of keratin reach down into a tumour: the surface runs straight over their mouths, not around them. A plug
    between two places of the surface shows by its way around: it is much longer than the straight way across. Of all
    pairs of places the one with the largest ``around - DETOUR · across`` is bridged first, then the next, until no
    detour is left that is worth it. With a factor of 1.25 a surface that stays within 37° of the line across is never
    bridged; a shoulder steeper than 75°, on the flank of a bulge under keratin, may be.

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


def _best_pair(points: Floats, kept: Ints, across: Floats, cover: Floats, turns_left: bool) -> tuple[int, int] | None:
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


def _cross(one: Floats, other: Floats) -> Floats:
    return np.asarray(one[..., 0] * other[..., 1] - one[..., 1] * other[..., 0])
