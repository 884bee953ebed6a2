"""Folds: bands where a section lies double, so that light passes two layers of tissue.

Twice the thickness is twice the optical density of every channel: a fold is a narrow, long band that is much denser
than the tissue on either side of it, whatever tissues it crosses. What it has more than its sides has their hue: a
hair follicle or the epidermis is a dense band, too, but bluer than the dermis beside it.

With the green density g, averaged over more than a nucleus, the contrast of a pixel against both sides of a band is

    log g − log max(g to the left, g to the right)

averaged along the band (its sides being tissue). A fold has a contrast of about log 2.

Hardly any pixel has so much. What each has at most is found first, in whole numbers of 8 bits; the contrast itself is
computed in regions, as long and as large as folds, where that would be enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import BoolMask, Ints, Singles
from ntrm.core.mpp import Resolution
from ntrm.core.threads import thread_map
from ntrm.wsi.quality.morphology import bounding_box
from ntrm.wsi.quality.region_runs import RegionRuns

ORIENTATIONS = 12
FLANKS_UM = (120.0, 180.0, 245.0)
"""How far from its middle the tissue beside a band is looked at: for narrow and for wide ones."""
HALF_LENGTH_UM, STEP_UM = 450.0, 56.0
"""How far to either side the average along a band reaches, and in which steps."""
LEAST_FLANK = 0.05
"""Both sides are tissue of at least this density."""
CONTRAST = (-0.5, 0.9)
"""Limits of what a single pixel counts: -0.5 is no band at all, and three layers have 1.1."""
LEAST_CONTRAST = 0.25
"""Contrast of a fold, averaged along it."""
NO_DENSITY = 0.01
"""Added before the logarithm is taken: less cannot be measured."""
BLUER = 0.03
"""A pixel whose red over green density is so much more than that of both its sides lies on no fold."""
MOST_RED = 0.08
"""Red density that a fold has beyond the hue of its sides, as a fraction of the green it has more than they."""
BORDER_UM, MOST_BORDER = 420.0, 0.8
"""A band of which more than this fraction has glass so near on one side only follows the skin's surface: epidermis."""
LEAST_LENGTH_UM, LEAST_MM2 = 900.0, 0.12
"""Shorter and smaller bands are something else."""

UNITS = 14
"""To a contrast of 1, where it is a whole number: nine pixels of the highest contrast add up to less than 2⁷."""
FAINTEST = -2.85
"""Logarithm that is 0 in these units: no side that is tissue has less."""
MOST, MOST_BESIDE = 63, 50
"""Units that count, of a pixel and of its sides: sides that count for less only raise what a pixel has at most."""
TILE = (256, 1024)
"""Rows and columns that a thread works on together: as bytes, they stay in a processor's cache."""

Positions = tuple[Ints, Ints]
"""Rows and columns."""


def find_folds(planes: Sequence[Singles], tissue: BoolMask, scale: Resolution) -> BoolMask:
    """Pixels of folds, from averaged densities (H, W) and the tissue on a grid of about ``thumbnail.GRID_UM``."""
    folds = np.zeros(tissue.shape, dtype=bool)
    box = bounding_box(tissue, BORDER_UM, scale)
    if box is not None:
        red, green = (np.maximum(plane[box], 0) for plane in planes[:2])
        folds[box] = _folds(red, green, tissue[box], scale)
    return folds


def _folds(red: Singles, green: Singles, tissue: BoolMask, scale: Resolution) -> BoolMask:
    contrast, angles = _strongest(red, green, tissue, scale)
    folds = np.zeros_like(tissue)
    for band in _long_regions(contrast > LEAST_CONTRAST, scale):
        folds[band] = (
            _redder(red, green, band, angles[band], scale) <= MOST_RED
            and _along_border(tissue, band, angles[band], scale) <= MOST_BORDER
        )
    return folds


def _long_regions(mask: BoolMask, scale: Resolution) -> Iterator[Positions]:
    """Pixels, row by row, of each connected region that is as long and as large as a fold."""
    regions = RegionRuns.of(mask, diagonal=True)
    top, left, bottom, right = regions.boxes().T
    length = np.hypot((bottom - top) * scale.y, (right - left) * scale.x)
    large = regions.sizes * scale.pixel_area_um2 >= LEAST_MM2 * 1e6
    for region in np.flatnonzero(large & (length >= LEAST_LENGTH_UM)):
        yield regions.pixels(int(region))


def _strongest(red: Singles, green: Singles, tissue: BoolMask, scale: Resolution) -> tuple[Singles, NDArray[np.uint8]]:
    """The highest contrast of any orientation at each pixel, and the number of that orientation.

    Where there can be no fold it is ``CONTRAST[0]``, as if there were no band.
    """
    tall, wide = _reach(scale)
    # In a frame of glass: what pixels are compared with lies equally far from all of them in memory.
    frame = ((tall, tall), (wide, wide))
    red, green, tissue = np.pad(red, frame), np.pad(green, frame), np.pad(tissue, frame)
    possible = _possible(green, tissue, scale)
    long = _long(possible, tissue.shape, scale)
    strongest, numbers = np.full(green.size, CONTRAST[0], dtype=np.float32), np.zeros(green.size, dtype=np.uint8)
    for number, places in enumerate(possible):
        band = places[long[places]]
        contrast = _averaged_along(red, green, band, number, scale)
        stronger = contrast > strongest[band]
        strongest[band[stronger]], numbers[band[stronger]] = contrast[stronger], number
    inside = slice(tall, len(green) - tall), slice(wide, green.shape[1] - wide)
    return strongest.reshape(green.shape)[inside], numbers.reshape(green.shape)[inside]


def _reach(scale: Resolution) -> tuple[int, int]:
    """Rows and columns to the furthest pixel that one is compared with, at most."""
    um = max(FLANKS_UM) + HALF_LENGTH_UM
    return math.ceil(um / scale.y) + 2, math.ceil(um / scale.x) + 2


def _possible(green: Singles, tissue: BoolMask, scale: Resolution) -> list[Ints]:
    """Pixels of tissue, by orientation, whose contrast may be that of a fold."""
    (tall, wide), (height, width) = _reach(scale), tissue.shape
    starts = [(y, x) for y in range(tall, height - tall, TILE[0]) for x in range(wide, width - wide, TILE[1])]

    def found(start: tuple[int, int]) -> list[Ints]:
        bottom, right = min(start[0] + TILE[0], height - tall), min(start[1] + TILE[1], width - wide)
        own = tissue[start[0] : bottom, start[1] : right]
        if not own.any():
            return [np.zeros(0, dtype=np.int64)] * ORIENTATIONS
        top, left = start[0] - tall, start[1] - wide
        framed = green[top : bottom + tall, left : right + wide]
        in_tile = (np.divmod(places, framed.shape[1]) for places in _possible_in(framed, own, scale))
        return [(row + top) * width + column + left for row, column in in_tile]

    return [np.concatenate(places) for places in zip(*thread_map(found, starts), strict=True)]


def _possible_in(green: Singles, tissue: BoolMask, scale: Resolution) -> list[Ints]:
    """The same in a tile (H, W) of tissue with its framed density, in one row; contrasts are rounded up, of any hue."""
    (tall, wide), width = _reach(scale), green.shape[1]
    rows = slice(tall * width, (tall + len(tissue)) * width)
    own, sides = _in_units(green)
    wanted = np.pad(tissue, ((0, 0), (wide, wide))).ravel()
    least, most = (math.ceil(UNITS * limit) for limit in CONTRAST)
    contrast, found = np.full_like(own, least), []
    for number in range(ORIENTATIONS):
        across, along = _across(number, width, scale), _along(number, width, scale)
        seen = slice(max(map(abs, across)), own.size - max(map(abs, across)))
        ridge = contrast[seen]
        beside = [np.maximum(sides[_moved(seen, away)], sides[_moved(seen, -away)]) for away in across]
        np.subtract(own[seen], reduce(np.minimum, beside), out=ridge)
        np.clip(ridge, least, most, out=ridge)
        # Half of the pixels along a band at a time: the sum of all does not fit into 8 bits.
        one, other = (_added(contrast, rows, half) for half in (along[::2], along[1::2]))
        enough = one > np.int8(math.floor(UNITS * LEAST_CONTRAST * len(along))) - other
        found.append(np.flatnonzero(enough & wanted) + rows.start)
    return found


def _in_units(green: Singles) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
    """Logarithms of densities, in one row: rounded up, for pixels of a band, and rounded down, for those beside it."""
    logs = (np.log(green + np.float32(NO_DENSITY)) - np.float32(FAINTEST)) * np.float32(UNITS)
    # Next to glass nothing is a band.
    beside = np.where(green < LEAST_FLANK, MOST_BESIDE, np.floor(logs).clip(0, MOST_BESIDE))
    return np.ceil(logs).clip(0, MOST).astype(np.int8).ravel(), beside.astype(np.int8).ravel()


def _added(values: NDArray[np.int8], where: slice, distances: Sequence[int]) -> NDArray[np.int8]:
    total = values[_moved(where, distances[0])].copy()
    for away in distances[1:]:
        total += values[_moved(where, away)]
    return total


def _moved(where: slice, by: int) -> slice:
    return slice(where.start + by, where.stop + by)


def _long(places: Sequence[Ints], shape: tuple[int, ...], scale: Resolution) -> BoolMask:
    """Which pixels lie in regions as long and as large as folds, if all of ``places`` are folds; in one row."""
    possible, long = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for some in places:
        possible.ravel()[some] = True
    for region in _long_regions(possible, scale):
        long[region] = True
    return long.ravel()


def _averaged_along(red: Singles, green: Singles, places: Ints, number: int, scale: Resolution) -> Singles:
    """Mean contrast of the pixels along a band through each of some places."""
    along = [places + away for away in _along(number, green.shape[1], scale)]
    needed = np.zeros(green.size, dtype=bool)
    for some in along:
        needed[some] = True
    # Each pixel once: neighbouring places have most of them in common.
    each, contrast = np.flatnonzero(needed), np.empty(green.size, dtype=np.float32)
    contrast[each] = _contrast(red.ravel(), green.ravel(), each, _across(number, green.shape[1], scale))
    total = np.zeros(len(places), dtype=np.float32)
    for some in along:
        total += contrast[some]
    return total / np.float32(len(along))


def _contrast(red: Singles, green: Singles, places: Ints, across: Sequence[int]) -> Singles:
    """How much denser pixels are than both sides of a band of whatever width: those of the frame are not."""
    logs, hue = _logs_and_hue(red, green, places)
    contrast = np.full(len(places), CONTRAST[0], dtype=np.float32)
    for away in across:
        (one, one_hue), (other, other_hue) = (_logs_and_hue(red, green, places + by) for by in (away, -away))
        ridge = logs - np.maximum(one, other)
        # Next to glass nothing is a band, and what is bluer than both sides is no denser, either.
        glass = np.minimum(green[places + away], green[places - away]) < LEAST_FLANK
        ridge[glass] = CONTRAST[0]
        ridge *= (hue <= np.maximum(one_hue, other_hue) + np.float32(BLUER)) | (ridge < 0)
        np.maximum(contrast, ridge, out=contrast)
    return np.minimum(contrast, CONTRAST[1], out=contrast)


def _logs_and_hue(red: Singles, green: Singles, places: Ints) -> tuple[Singles, Singles]:
    density = green[places] + np.float32(NO_DENSITY)
    return np.log(density), red[places] / density


@lru_cache(4 * ORIENTATIONS)
def _along(number: int, width: int, scale: Resolution) -> list[int]:
    """How far in memory, with rows of ``width`` pixels, those lie over which the contrast of a pixel is averaged."""
    steps = int(HALF_LENGTH_UM / STEP_UM)
    offsets = (_offset(number, step * STEP_UM, 0.0, scale) for step in range(-steps, steps + 1))
    return [down * width + right for down, right in offsets]


@lru_cache(4 * ORIENTATIONS)
def _across(number: int, width: int, scale: Resolution) -> list[int]:
    """How far one side of a band lies, for each of its widths; the other lies as far in the other direction."""
    offsets = (_offset(number, 0.0, flank, scale) for flank in FLANKS_UM)
    return [down * width + right for down, right in offsets]


def _redder(red: Singles, green: Singles, band: Positions, angles: NDArray[np.uint8], scale: Resolution) -> float:
    """Red density that a band has beyond the hue of its sides, as a fraction of the green it has more than they."""
    best, more_red, more_green = np.full(len(angles), -np.inf), np.zeros(len(angles)), np.zeros(len(angles))
    for flank in FLANKS_UM:
        one, other = _sides(band, angles, flank, scale, red.shape)
        contrast = green[band] / (np.maximum(green[one], green[other]) + NO_DENSITY)
        both = green[one] + green[other]
        hue = (red[one] + red[other]) / (both + NO_DENSITY)
        better = contrast > best
        best[better] = contrast[better]
        more_green[better] = (green[band] - both / 2)[better]
        more_red[better] = (red[band] - hue * green[band])[better]
    return float(more_red.sum() / max(more_green.sum(), 1e-6))


def _along_border(tissue: BoolMask, band: Positions, angles: NDArray[np.uint8], scale: Resolution) -> float:
    """Fraction of a band that has glass on one side, and on one only."""
    # Beyond the picture's edge lies what lies at it.
    one, other = (tissue[side] for side in _sides(band, angles, BORDER_UM, scale, tissue.shape))
    return float((one != other).mean())


def _sides(
    band: Positions, angles: NDArray[np.uint8], um: float, scale: Resolution, shape: tuple[int, ...]
) -> list[Positions]:
    """Positions ``um`` away on either side of a band, inside the picture."""
    down, right = np.array([_offset(number, 0.0, um, scale) for number in range(ORIENTATIONS)])[angles].T
    return [
        (np.clip(band[0] + sign * down, 0, shape[0] - 1), np.clip(band[1] + sign * right, 0, shape[1] - 1))
        for sign in (1, -1)
    ]


def _offset(number: int, along_um: float, across_um: float, scale: Resolution) -> tuple[int, int]:
    """Rows and columns from a pixel to one that lies so far along and across a band."""
    angle = number * math.pi / ORIENTATIONS
    down = along_um * math.sin(angle) + across_um * math.cos(angle)
    right = along_um * math.cos(angle) - across_um * math.sin(angle)
    return round(down / scale.y), round(right / scale.x)
