"""Folds: bands where a section lies double, so that light passes the same tissue twice.

Twice the thickness is twice the optical density of every channel: a fold is a narrow, long band that is much denser
than the tissue on either side of it, both sides being alike, and of their hue. A nest of tumour is dense, but bluer
than what surrounds it; keratin is dense, but has glass on one side.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, signal

from ntrm.resolution import Resolution
from ntrm.slide.glass import Densities
from ntrm.slide.places import Floats, Places, regions_of

GRID_UM = 26.8
"""Folds are looked for at this µm/px: they are wider, and finer detail is no fold."""
ORIENTATIONS = 8
ALONG_UM, ACROSS_UM = 220.0, 26.0
"""Standard deviations of the average along and across a band."""
FLANKS_UM = (110.0, 200.0)
"""How far from its middle the tissue beside a band is looked at: for narrow and for wide ones."""
DENSER = (1.55, 2.6)
"""A fold is so many times denser than either side: twice, but for the averages."""
LEAST_FLANK, ALIKE = 0.07, 0.7
"""Both sides are tissue of at least this density; the paler has this share of the denser one's."""
SAME_HUE = 1.15
"""All channels grow by the same factor, up to this."""
NO_DENSITY = 0.003
"""Added to both before one density is divided by another: less cannot be measured."""
LEAST_LENGTH_UM = 1000.0
"""Shorter bands are something else."""


def find_folds(density: Densities, tissue: Places, scale: Resolution) -> tuple[Places, Resolution]:
    """Where folds lie, on a coarser grid than ``density`` (H, W, 3) and ``tissue`` (H, W), and that grid's µm/px."""
    factors = max(1, round(GRID_UM / scale.y)), max(1, round(GRID_UM / scale.x))
    coarse = Resolution(scale.x * factors[1], scale.y * factors[0])
    planes = [_shrunk(density[..., k], factors) for k in range(3)]
    inside = _shrunk(tissue, factors) > 0.5
    found = np.zeros(inside.shape, dtype=bool)
    for step in range(ORIENTATIONS):
        found |= _bands(planes, step * math.pi / ORIENTATIONS, coarse)
    return _long(found & inside, coarse), coarse


def _bands(planes: list[Floats], angle: float, scale: Resolution) -> Places:
    """Middles of bands that run at ``angle``."""
    kernel = _kernel(angle, scale)
    along = [signal.oaconvolve(_padded(plane, kernel), kernel, mode="valid") for plane in planes]
    found = np.zeros(planes[0].shape, dtype=bool)
    for flank_um in FLANKS_UM:
        offset = round(flank_um * math.cos(angle) / scale.y), round(-flank_um * math.sin(angle) / scale.x)
        sides = [(_moved(plane, offset), _moved(plane, (-offset[0], -offset[1]))) for plane in along]
        paler, denser = np.minimum(*sides[1]), np.maximum(*sides[1])
        band = (along[1] > DENSER[0] * denser) & (paler > LEAST_FLANK) & (paler > ALIKE * denser)
        factors = [
            (plane + NO_DENSITY) / (np.maximum((one + other) / 2, 0) + NO_DENSITY)
            for plane, (one, other) in zip(along, sides, strict=True)
        ]
        least, most = np.minimum.reduce(factors), np.maximum.reduce(factors)
        found |= band & (most < DENSER[1]) & (most < SAME_HUE * least)
    return found


def _kernel(angle: float, scale: Resolution) -> Floats:
    """An elongated Gaussian whose long axis has ``angle`` to the x axis; it sums to 1."""
    rows, columns = (math.ceil(2 * ALONG_UM / step) for step in (scale.y, scale.x))
    y = np.arange(-rows, rows + 1)[:, None] * scale.y
    x = np.arange(-columns, columns + 1)[None, :] * scale.x
    along = x * math.cos(angle) + y * math.sin(angle)
    across = y * math.cos(angle) - x * math.sin(angle)
    kernel = np.exp(-0.5 * ((along / ALONG_UM) ** 2 + (across / ACROSS_UM) ** 2))
    return np.asarray(kernel / kernel.sum(), dtype=np.float32)


def _padded(plane: Floats, kernel: Floats) -> Floats:
    rows, columns = (size // 2 for size in kernel.shape)
    return np.pad(plane, ((rows, rows), (columns, columns)))


def _moved(plane: Floats, offset: tuple[int, int]) -> Floats:
    """What lies ``offset`` (rows, columns) further; glass (0) beyond the picture."""
    return np.asarray(ndimage.shift(plane, (-offset[0], -offset[1]), order=0))


def _long(places: Places, scale: Resolution) -> Places:
    """Regions that reach far enough from end to end of their boxes."""
    regions, sizes = regions_of(places)
    kept = np.zeros(len(sizes), dtype=bool)
    for number, (rows, columns) in enumerate(ndimage.find_objects(regions), start=1):
        reach = math.hypot((rows.stop - rows.start) * scale.y, (columns.stop - columns.start) * scale.x)
        kept[number] = reach >= LEAST_LENGTH_UM
    return np.asarray(kept[regions])


def _shrunk(plane: NDArray[np.float32] | Places, factors: tuple[int, int]) -> Floats:
    """Means of blocks; a last, incomplete one is filled up with its edge."""
    height, width = plane.shape
    padding = [(0, -size % factor) for size, factor in zip((height, width), factors, strict=True)]
    full = np.pad(np.asarray(plane, dtype=np.float32), padding, mode="edge")
    blocks = full.reshape(full.shape[0] // factors[0], factors[0], full.shape[1] // factors[1], factors[1])
    return np.asarray(blocks.mean(axis=(1, 3)), dtype=np.float32)
