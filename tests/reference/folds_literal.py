"""Folds as their definition reads: every orientation at every pixel."""

import math

import numpy as np
from scipy import ndimage

from ntrm.slides.quality import folds


def find_folds(planes, tissue, scale):
    """As ``folds.find_folds``, which looks closely only where there may be one."""
    planes = [np.maximum(plane, 0) for plane in planes]
    contrast, angles = strongest(planes, scale)
    regions, count = ndimage.label(tissue & (contrast > folds.LEAST_CONTRAST), structure=np.ones((3, 3)))
    found = np.zeros_like(tissue)
    for number in range(1, count + 1):
        band = np.nonzero(regions == number)
        length = math.hypot(np.ptp(band[0]) * scale.y + scale.y, np.ptp(band[1]) * scale.x + scale.x)
        if length >= folds.LEAST_LENGTH_UM and len(band[0]) * scale.pixel_area_um2 >= folds.LEAST_MM2 * 1e6:
            one, other = folds._sides(band, angles[band], folds.BORDER_UM, scale, tissue.shape)
            on_border = (tissue[one] != tissue[other]).mean() > folds.MOST_BORDER
            redder = folds._redder(*planes[:2], band, angles[band], scale) > folds.MOST_RED
            found[band] = not (on_border or redder)
    return found


def strongest(planes, scale):
    """The highest contrast of any orientation, averaged along a band, and the number of that orientation."""
    red, green, _ = planes
    logs, hue = np.log(green + np.float32(folds.NO_DENSITY)), red / (green + np.float32(folds.NO_DENSITY))
    flank, hues = np.where(green < folds.LEAST_FLANK, np.float32(9), logs), hue + np.float32(folds.BLUER)
    highest, numbers = np.full_like(logs, folds.CONTRAST[0]), np.zeros(logs.shape, dtype=np.uint8)
    steps = int(folds.HALF_LENGTH_UM / folds.STEP_UM)
    for number in range(folds.ORIENTATIONS):
        contrast = np.full_like(logs, folds.CONTRAST[0])
        for um in folds.FLANKS_UM:
            down, right = folds._offset(number, 0.0, um, scale)
            sides = [shifted(flank, sign * down, sign * right, 9.0) for sign in (1, -1)]
            ridge = logs - np.maximum(*sides)
            ridge *= (hue <= np.maximum(*(shifted(hues, s * down, s * right, 0.0) for s in (1, -1)))) | (ridge < 0)
            contrast = np.maximum(contrast, ridge)
        contrast = np.minimum(contrast, np.float32(folds.CONTRAST[1]))
        total = np.zeros_like(contrast)
        for step in range(-steps, steps + 1):
            total += shifted(contrast, *folds._offset(number, step * folds.STEP_UM, 0.0, scale), folds.CONTRAST[0])
        band = total / np.float32(2 * steps + 1)
        numbers[band > highest] = number
        highest = np.maximum(highest, band)
    return highest, numbers


def shifted(plane, down, right, beyond):
    """What lies so many rows and columns away from each pixel."""
    out = np.full_like(plane, beyond)
    height, width = plane.shape
    rows, columns = (
        (slice(max(0, -by), max(0, min(size, size - by))), slice(max(0, by), max(0, min(size, size + by))))
        for by, size in ((down, height), (right, width))
    )
    out[rows[0], columns[0]] = plane[rows[1], columns[1]]
    return out
