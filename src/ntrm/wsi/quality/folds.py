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
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.mpp import Resolution
from ntrm.core.threads import thread_map
from ntrm.wsi.quality.morphology import BoolMask, Floats, Indices, bounding_box, label_regions

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

ROWS = 256
"""Rows that a thread works on together."""

Planes = tuple[Floats, Floats, Floats]
_Shift = Callable[[int, int], Floats]
Positions = tuple[Indices, Indices]
"""Rows and columns."""


def find_folds(planes: Planes, tissue: BoolMask, scale: Resolution) -> BoolMask:
    """Pixels of folds, from averaged densities (H, W) and the tissue on a grid of about ``thumbnail.GRID_UM``."""
    folds = np.zeros(tissue.shape, dtype=bool)
    box = bounding_box(tissue, BORDER_UM, scale)
    if box is not None:
        red, green, blue = (np.maximum(plane[box], 0) for plane in planes)
        folds[box] = _folds((red, green, blue), tissue[box], scale)
    return folds


def _folds(planes: Planes, tissue: BoolMask, scale: Resolution) -> BoolMask:
    contrast, angles = _strongest(planes, scale)
    regions, sizes = label_regions(tissue & (contrast > LEAST_CONTRAST))
    kept = np.zeros(len(sizes), dtype=bool)
    for number, (rows, columns) in enumerate(ndimage.find_objects(regions), start=1):
        length = math.hypot((rows.stop - rows.start) * scale.y, (columns.stop - columns.start) * scale.x)
        if length >= LEAST_LENGTH_UM and sizes[number] * scale.pixel_area_um2 >= LEAST_MM2 * 1e6:
            y, x = np.nonzero(regions[rows, columns] == number)
            band = y + rows.start, x + columns.start
            kept[number] = (
                _redder(planes, band, angles[band], scale) <= MOST_RED
                and _along_border(tissue, band, angles[band], scale) <= MOST_BORDER
            )
    return np.asarray(kept[regions])


def _strongest(planes: Planes, scale: Resolution) -> tuple[Floats, NDArray[np.uint8]]:
    """The highest contrast of any orientation at each pixel, and the number of that orientation."""
    red, green, _ = planes
    logs, hue = np.log(green + np.float32(NO_DENSITY)), red / (green + np.float32(NO_DENSITY))
    height, around = len(green), math.ceil((max(FLANKS_UM) + HALF_LENGTH_UM) / scale.y) + 2

    def band(top: int) -> tuple[Floats, NDArray[np.uint8]]:
        # With as much around it as its pixels are compared with.
        first, last = max(0, top - around), min(height, top + ROWS + around)
        found = _strongest_of(green[first:last], logs[first:last], hue[first:last], scale)
        own = slice(top - first, top - first + ROWS)
        return found[0][own], found[1][own]

    strongest, numbers = zip(*thread_map(band, range(0, height, ROWS)), strict=True)
    return np.concatenate(strongest), np.concatenate(numbers)


def _strongest_of(green: Floats, logs: Floats, hue: Floats, scale: Resolution) -> tuple[Floats, NDArray[np.uint8]]:
    """The same for some rows."""
    # Next to glass nothing is a band: as if the glass were infinitely dense.
    flanks = _shifts(np.where(green < LEAST_FLANK, np.float32(9), logs), max(FLANKS_UM), scale, beyond=9.0)
    hues = _shifts(hue + np.float32(BLUER), max(FLANKS_UM), scale, beyond=0.0)
    strongest = np.full(logs.shape, CONTRAST[0], dtype=np.float32)
    numbers = np.zeros(logs.shape, dtype=np.uint8)
    for number in range(ORIENTATIONS):
        band = _averaged_along(_contrast(logs, hue, flanks, hues, number, scale), number, scale)
        stronger = band > strongest
        np.copyto(strongest, band, where=stronger)
        numbers[stronger] = number
    return strongest, numbers


def _contrast(logs: Floats, hue: Floats, flanks: _Shift, hues: _Shift, number: int, scale: Resolution) -> Floats:
    """How much denser a pixel is than both sides of a band, of whatever width, that runs at one angle."""
    contrast = np.full(logs.shape, CONTRAST[0], dtype=np.float32)
    for flank in FLANKS_UM:
        down, right = _offset(number, 0.0, flank, scale)
        ridge = logs - np.maximum(flanks(down, right), flanks(-down, -right))
        # What is bluer than both sides is no denser, either.
        ridge *= (hue <= np.maximum(hues(down, right), hues(-down, -right))) | (ridge < 0)
        np.maximum(contrast, ridge, out=contrast)
    return np.minimum(contrast, CONTRAST[1], out=contrast)


def _averaged_along(contrast: Floats, number: int, scale: Resolution) -> Floats:
    along = _shifts(contrast, HALF_LENGTH_UM, scale, beyond=CONTRAST[0])
    steps = int(HALF_LENGTH_UM / STEP_UM)
    total = np.zeros_like(contrast)
    for step in range(-steps, steps + 1):
        total += along(*_offset(number, step * STEP_UM, 0.0, scale))
    return total / np.float32(2 * steps + 1)


def _redder(planes: Planes, band: Positions, angles: NDArray[np.uint8], scale: Resolution) -> float:
    """Red density that a band has beyond the hue of its sides, as a fraction of the green it has more than they."""
    red, green, _ = planes
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


def _shifts(plane: Floats, um: float, scale: Resolution, *, beyond: float) -> _Shift:
    """A function that returns the plane shifted by rows and columns, up to ``um``; views of one copy with a border."""
    (height, width), tall, wide = plane.shape, math.ceil(um / scale.y), math.ceil(um / scale.x)
    padded = np.pad(plane, ((tall, tall), (wide, wide)), constant_values=beyond)

    def shifted(down: int, right: int) -> Floats:
        return padded[tall + down : tall + down + height, wide + right : wide + right + width]

    return shifted
