"""Folds: bands where a section lies double, so that light passes two layers of tissue.

Twice the thickness is twice the optical density of every channel: a fold is a narrow, long band that is much denser
than the tissue on either side of it, whatever tissues it crosses. What it has more than its sides has their hue: a
hair follicle or the epidermis is a dense band, too, but bluer than the dermis beside it.

With the green density g, averaged over more than a nucleus, the contrast of a pixel against both sides of a band is

    log g − log max(g to the left, g to the right)

averaged along the band (its sides being tissue). A fold has a contrast of about log 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.arrays import BoolMask, Ints, Singles
from ntrm.core.mpp import Resolution
from ntrm.core.threads import thread_map
from ntrm.slides.quality.thumbnail import EIGHT, bounding_box, region_areas

ORIENTATIONS = 12
FLANKS_UM = (120.0, 180.0, 245.0)
"""How far from its middle the tissue beside a band is looked at: for narrow and for wide ones."""
HALF_LENGTH_UM, STEP_UM = 450.0, 56.0  # How far to either side the average along a band reaches, and in which steps
LEAST_FLANK = 0.05  # Both sides are tissue of at least this density
CONTRAST = (-0.5, 0.9)  # Limits of what a single pixel counts: -0.5 is no band at all, and three layers have 1.1
LEAST_CONTRAST = 0.25  # Contrast of a fold, averaged along it
NO_DENSITY = 0.01  # Added before the logarithm is taken: less cannot be measured
BLUER = 0.03  # A pixel whose red over green density is so much more than that of both its sides lies on no fold
MOST_RED = 0.08
"""Red density that a fold has beyond the hue of its sides, as a fraction of the green it has more than they."""
BORDER_UM, MOST_BORDER = 420.0, 0.8
"""A band of which more than this fraction has glass so near on one side only follows the skin's surface: epidermis."""
LEAST_LENGTH_UM, LEAST_MM2 = 900.0, 0.12  # Shorter and smaller bands are something else

Positions = tuple[Ints, Ints]  # Rows and columns


def find_folds(planes: Sequence[Singles], tissue: BoolMask, scale: Resolution) -> BoolMask:
    """Pixels of folds, from averaged densities (H, W) and the tissue on a grid of about ``thumbnail.GRID_UM``."""
    whole = np.zeros(tissue.shape, dtype=bool)
    box = bounding_box(tissue, BORDER_UM, scale)
    if box is None:
        return whole
    red, green = (np.maximum(plane[box], 0) for plane in planes[:2])
    tissue, folds = tissue[box], whole[box]
    contrast, angles = _strongest(red, green, tissue, scale)
    for band in _long_regions(contrast > LEAST_CONTRAST, scale):
        # Beyond the picture's edge lies what lies at it.
        one, other = (tissue[side] for side in _sides(band, angles[band], BORDER_UM, scale, tissue.shape))
        along_border = (one != other).mean() > MOST_BORDER
        folds[band] = not along_border and _redder(red, green, band, angles[band], scale) <= MOST_RED
    return whole


def _long_regions(mask: BoolMask, scale: Resolution) -> Iterator[Positions]:
    """Pixels, row by row, of each connected region that is as long and as large as a fold."""
    labels, count = ndimage.label(mask, EIGHT)
    large = region_areas(labels, count, scale) >= LEAST_MM2
    for number, (rows, columns) in enumerate(ndimage.find_objects(labels), start=1):
        length = math.hypot((rows.stop - rows.start) * scale.y, (columns.stop - columns.start) * scale.x)
        if large[number] and length >= LEAST_LENGTH_UM:
            row, column = np.nonzero(labels[rows, columns] == number)
            yield row + rows.start, column + columns.start


def _strongest(red: Singles, green: Singles, tissue: BoolMask, scale: Resolution) -> tuple[Singles, NDArray[np.uint8]]:
    """The highest contrast of any orientation at each pixel of tissue, and the number of that orientation."""
    # In a frame of glass, so that what a pixel is compared with is always inside.
    frame = [(a + b,) * 2 for a, b in zip(_reach(max(FLANKS_UM), scale), _reach(HALF_LENGTH_UM, scale), strict=True)]
    red, green = (np.pad(plane, frame) for plane in (red, green))
    strongest = np.full(tissue.shape, CONTRAST[0], dtype=np.float32)
    numbers = np.zeros(tissue.shape, dtype=np.uint8)
    contrasts = thread_map(lambda number: _averaged_along(red, green, number, scale), range(ORIENTATIONS))
    for number, contrast in enumerate(contrasts):
        stronger = tissue & (contrast > strongest)
        strongest[stronger], numbers[stronger] = contrast[stronger], number
    return strongest, numbers


def _averaged_along(red: Singles, green: Singles, number: int, scale: Resolution) -> Singles:
    """Mean contrast along a band of one orientation through each pixel inside the frame."""
    contrast = _contrast(red, green, number, scale)
    steps = int(HALF_LENGTH_UM / STEP_UM)
    offsets = (_offset(number, step * STEP_UM, 0.0, scale) for step in range(-steps, steps + 1))
    moved = (_moved(contrast, offset, _reach(HALF_LENGTH_UM, scale)) for offset in offsets)
    total = next(moved).copy()
    for each in moved:
        total += each
    return total / np.float32(2 * steps + 1)


def _contrast(red: Singles, green: Singles, number: int, scale: Resolution) -> Singles:
    """How much denser pixels are than both sides of a band of whatever width, less a frame as wide as those lie off."""
    frame = _reach(max(FLANKS_UM), scale)
    density = green + np.float32(NO_DENSITY)
    logs, hue = np.log(density), red / density
    own_log, own_hue = (_moved(plane, (0, 0), frame) for plane in (logs, hue))
    contrast = np.full(own_log.shape, CONTRAST[0], dtype=np.float32)
    for flank in FLANKS_UM:
        down, right = _offset(number, 0.0, flank, scale)
        one, other = (
            [_moved(plane, side, frame) for plane in (logs, green, hue)] for side in ((down, right), (-down, -right))
        )
        ridge = own_log - np.maximum(one[0], other[0])
        # Next to glass nothing is a band, and what is bluer than both sides is no denser, either.
        ridge[np.minimum(one[1], other[1]) < LEAST_FLANK] = CONTRAST[0]
        ridge *= (own_hue <= np.maximum(one[2], other[2]) + np.float32(BLUER)) | (ridge < 0)
        np.maximum(contrast, ridge, out=contrast)
    return np.minimum(contrast, CONTRAST[1], out=contrast)


def _moved(plane: Singles, offset: tuple[int, int], frame: tuple[int, int]) -> Singles:
    """What lies so many rows and columns from each pixel inside a frame of so many."""
    rows, columns = (
        slice(out + by, length - out + by) for length, out, by in zip(plane.shape, frame, offset, strict=True)
    )
    return plane[rows, columns]


def _reach(um: float, scale: Resolution) -> tuple[int, int]:
    """More rows and columns than any offset of so many µm has."""
    return math.ceil(um / scale.y) + 1, math.ceil(um / scale.x) + 1


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
