"""A slide's thumbnail: masks of it in µm and mm², its glass, its optical density, and pen marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.arrays import BoolMask, Ints, Singles
from ntrm.core.mpp import Resolution
from ntrm.core.pixels import block_means, check_picture
from ntrm.core.threads import most_threads, thread_map
from ntrm.data.tiles import Window

EIGHT = np.ones((3, 3), dtype=bool)  # For `ndimage.label`: pixels that touch at a corner belong together


def dilated(mask: BoolMask, um: float, scale: Resolution) -> BoolMask:
    """Pixels that lie at most ``um`` from the mask."""
    whole = np.zeros(mask.shape, dtype=bool)
    box = bounding_box(mask, um, scale)
    if box is None:
        return whole
    # The mask grows along its rows, and every growth is copied to the rows that it reaches.
    out, wide = whole[box], mask[box]
    height, width = wide.shape
    rows = range(min(int(um / scale.y), height - 1) + 1)
    columns = np.arange(min(int(um / scale.x), width - 1) + 1) * scale.x
    # Along its own row a pixel reaches furthest, and ever less far in the rows beyond.
    limit = um * um * (1 + 1e-12)
    reach = [np.count_nonzero((row * scale.y) ** 2 + columns * columns <= limit) - 1 for row in rows]
    for distance in range(reach[0] + 1):
        if distance:
            wide, narrow = wide.copy(), wide
            wide[:, 1:] |= narrow[:, :-1]
            wide[:, :-1] |= narrow[:, 1:]
        for row in (row for row in rows if reach[row] == distance):
            out[row:] |= wide[: height - row]
            out[: height - row] |= wide[row:]
    return whole


def opened(mask: BoolMask, um: float, scale: Resolution) -> BoolMask:
    """What discs of radius ``um`` that fit into the mask cover; the picture's edge does not narrow anything."""
    return mask & dilated(~dilated(~mask, um, scale), um, scale)


def bounding_box(mask: BoolMask, um: float, scale: Resolution) -> tuple[slice, slice] | None:
    """Rows and columns of the mask and ``um`` around it; None where it is empty."""
    spans = []
    for axis, step in ((1, scale.y), (0, scale.x)):
        occupied = np.flatnonzero(mask.any(axis=axis))
        if not occupied.size:
            return None
        reach = math.ceil(um / step)
        spans.append(slice(max(0, int(occupied[0]) - reach), int(occupied[-1]) + reach + 1))
    return spans[0], spans[1]


def blurred(values: NDArray[np.floating], um: float, scale: Resolution) -> Singles:
    """Values (H, W) blurred by a Gaussian of standard deviation ``um``; edge pixels are repeated beyond the edge."""
    plane = np.asarray(values, dtype=np.float32)
    for axis, step in ((0, scale.y), (1, scale.x)):
        # Columns, and then rows, are blurred each by itself, so several threads may share them.
        parts = np.array_split(plane, min(most_threads(), plane.shape[1 - axis]), axis=1 - axis)
        along = partial(ndimage.gaussian_filter1d, sigma=um / step, axis=axis, mode="nearest", truncate=3.0)
        plane = np.concatenate([*thread_map(along, parts)], axis=1 - axis)
    return plane


def without_small_regions(mask: BoolMask, mm2: float, scale: Resolution) -> BoolMask:
    """Without connected regions smaller than ``mm2``."""
    labels, count = ndimage.label(mask, EIGHT)
    kept = region_areas(labels, count, scale) >= mm2
    kept[0] = False
    return np.asarray(kept[labels])


def without_holes(mask: BoolMask, mm2: float, scale: Resolution) -> BoolMask:
    """With enclosed gaps up to ``mm2`` filled.

    >>> ring = np.array([[1, 1, 1], [1, 0, 1], [1, 1, 1]], dtype=bool)
    >>> bool(without_holes(ring, 1.0, Resolution.square(10.0)).all())
    True
    """
    labels, count = ndimage.label(~mask)
    filled = region_areas(labels, count, scale) <= mm2
    for edge in (labels[0], labels[-1], labels[:, 0], labels[:, -1]):
        filled[edge] = False
    return np.asarray(mask | filled[labels])


def region_areas(labels: NDArray[np.integer], count: int, scale: Resolution) -> NDArray[np.floating]:
    """(count + 1,) mm² of each number in a mask of numbered regions."""
    return np.asarray(np.bincount(labels.ravel(), minlength=count + 1) * (scale.pixel_area_um2 / 1e6))


def upsampled(mask: BoolMask, factors: tuple[int, int], shape: tuple[int, int]) -> BoolMask:
    """A mask of blocks of ``factors`` (rows, columns) on the pixels of ``shape``."""
    # Along rows first: what follows copies whole rows.
    return mask.repeat(factors[1], axis=1)[:, : shape[1]].repeat(factors[0], axis=0)[: shape[0]]


def tissue_under(
    windows: Sequence[Window], tissue: BoolMask, scale: Resolution, model_mpp: Resolution, margin_um: float = 0.0
) -> tuple[Ints, Ints]:
    """How many pixels of the mask each window (in pixels of ``model_mpp``) touches that are tissue, and at all.

    Both grids start at the same corner of the slide; at least one pixel is touched.
    """
    boxes = np.array([(w.top, w.left, w.height, w.width) for w in windows], dtype=np.float64).reshape(-1, 4).T
    spans = []
    for start, length, model, thumb, size in zip(
        boxes[:2], boxes[2:], (model_mpp.y, model_mpp.x), (scale.y, scale.x), tissue.shape, strict=True
    ):
        # What is touched by rounding alone does not count.
        first = np.clip(np.floor((start * model - margin_um) / thumb + 1e-6), 0, size - 1)
        stop = np.clip(np.ceil(((start + length) * model + margin_um) / thumb - 1e-6), first + 1, size)
        spans.append((first.astype(np.int64), stop.astype(np.int64)))
    (top, bottom), (left, right) = spans
    edges = zip(top.tolist(), bottom.tolist(), left.tolist(), right.tolist(), strict=True)
    found = [np.count_nonzero(tissue[y0:y1, x0:x1]) for y0, y1, x0, x1 in edges]
    return np.array(found, dtype=np.int64), (bottom - top) * (right - left)


Picture = NDArray[np.uint8]

LEAST_BRIGHTNESS, MOST_TINT = 180, 25  # Glass is at least so bright, and its channels differ by at most so much
LEAST_FRACTION = 0.005  # Fewer bright pixels than this are no glass
BRIGHTEST_FRACTION = 0.002  # Where a picture shows no glass, so many of its brightest pixels stand for it
MOST_PIXELS = 500_000  # Of larger pictures, every second (third …) row and column determines the glass's colour
LEAST_PEAK = 0.2  # Of the peaks at least this fraction of the highest, the brightest is glass; pale fat is a darker one

CLIPPED = 0.03  # Denser pixels count as this dense in the texture: the walls of fat cells are no denser

GRID_UM = 26.8  # µm/px, about, of the coarser grid: a pen's stroke, a fold and a cell of fat are all wider
AVERAGED_UM = 18.0  # Nuclei and specks of dirt vanish in this average; strokes do not

LEAST_DENSITY = 0.12  # A pen's stroke is at least so dense
OPAQUE = 0.4  # Black and red strokes are at least so dense: paler grey is a shadow, paler red is eosin
HALF_WIDTH_UM = 100.0
"""Half the least width of a stroke. Surgical ink is a thinner crust, and belongs to the tissue it sits on."""
RIM_UM = 150.0  # A stroke's paler rim is so wide at most
FRINGE_UM = 45.0  # Around that the ink fades into the glass, too pale for its hue to be measured


def glass_colour(picture: Picture) -> NDArray[np.float32]:
    """(3,) colour of empty glass in an RGB picture (H, W, 3); a guess of the lamp if it shows none."""
    step = max(1, math.ceil(math.sqrt(picture.shape[0] * picture.shape[1] / MOST_PIXELS)))
    seen = picture[::step, ::step]
    bright = is_glass(seen)
    # Readers paint what was never scanned pure white: no measure of the lamp where there is any true glass.
    scanned = bright & (seen.min(axis=2) < 255)
    glass = scanned if scanned.mean() > LEAST_FRACTION else bright
    if glass.mean() <= LEAST_FRACTION:
        # Tissue only: the lamp is taken to be white, as bright as the brightest channel.
        level = max(float(np.quantile(seen.max(axis=2), 1 - BRIGHTEST_FRACTION)), LEAST_BRIGHTNESS)
        return np.full(3, level, dtype=np.float32)
    colours = seen[glass]
    brightness = colours.sum(axis=1, dtype=np.int16)
    counts = np.bincount(brightness, minlength=3 * 255 + 1).astype(np.float64)
    smooth = np.convolve(counts, np.ones(7), mode="same")
    neighbours = np.maximum(np.roll(smooth, 1), np.roll(smooth, -1))
    peaks = np.flatnonzero((smooth >= neighbours) & (smooth >= LEAST_PEAK * smooth.max()))
    around = np.abs(brightness - peaks[-1]) <= 6
    return np.asarray(np.median(colours[around], axis=0), dtype=np.float32)


def green_density(picture: Picture, glass: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
    """(H, W) decadic optical density of the green channel alone, which both dyes absorb most.

    It is that against the picture's own glass, a little below 0 where it is brighter; ``glass`` (3,) is the colour of
    that, where it is known from elsewhere.
    """
    colour = glass_colour(picture) if glass is None else glass
    # Taken, not indexed, which takes twice as long.
    return np.asarray(_densities(float(colour[1])).take(picture[..., 1]))


def is_glass(picture: Picture) -> BoolMask:
    """(H, W): where a picture (H, W, 3) is as bright and as colourless as glass.

    >>> is_glass(np.array([[[240, 241, 243], [240, 150, 200]]], dtype=np.uint8)).tolist()
    [[True, False]]
    """
    darkest, brightest = picture.min(axis=2), picture.max(axis=2)
    return np.asarray((darkest >= LEAST_BRIGHTNESS) & (brightest - darkest <= MOST_TINT))


def _densities(glass: float) -> NDArray[np.float32]:
    # One more level on both sides: black has a finite density.
    return (-np.log10((np.arange(256, dtype=np.float64) + 1) / (glass + 1))).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Thumbnail:
    """A picture (H, W, 3) of a slide at ``scale`` µm/px, and its optical densities, also on a coarser grid."""

    picture: Picture
    scale: Resolution

    def __post_init__(self) -> None:
        check_picture(self.picture)

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the picture."""
        return self.picture.shape[0], self.picture.shape[1]

    @property
    def factors(self) -> tuple[int, int]:
        """Rows and columns of the picture to one of the coarser grid."""
        return max(1, round(GRID_UM / self.scale.y)), max(1, round(GRID_UM / self.scale.x))

    @property
    def coarse(self) -> Resolution:
        """µm/px of the coarser grid."""
        down, across = self.factors
        return Resolution(self.scale.x * across, self.scale.y * down)

    @cached_property
    def glass(self) -> NDArray[np.float32]:
        """(3,) colour of empty glass."""
        return glass_colour(self.picture)

    @cached_property
    def planes(self) -> tuple[Singles, Singles, Singles]:
        """Red, green and blue densities on the coarser grid."""
        tables, picture, factors = [_densities(float(level)) for level in self.glass], self.picture, self.factors
        red, green, blue = thread_map(lambda k: block_means(tables[k].take(picture[..., k]), factors), range(3))
        return red, green, blue

    @cached_property
    def moments(self) -> tuple[Singles, Singles]:
        """Means of the green density, at most ``CLIPPED``, and of its square, on the coarser grid."""
        clipped = np.clip(_densities(float(self.glass[1])), -CLIPPED, CLIPPED)
        green = self.picture[..., 1]
        mean, square = thread_map(lambda table: block_means(table.take(green), self.factors), (clipped, clipped**2))
        return mean, square

    @cached_property
    def unscanned(self) -> BoolMask:
        """Where any pixel is pure white, on the coarser grid: readers paint so what was never scanned."""
        red, green, blue = (self.picture[..., channel] for channel in range(3))
        return np.asarray(block_means((red & green & blue) == 255, self.factors) > 0)

    @cached_property
    def averaged(self) -> tuple[Singles, Singles, Singles]:
        """The same as ``planes`` without single nuclei."""
        red, green, blue = (blurred(plane, AVERAGED_UM, self.coarse) for plane in self.planes)
        return red, green, blue

    def downsampled(self, mask: BoolMask) -> BoolMask:
        """A mask of the picture on the coarser grid, by majority."""
        return np.asarray(block_means(mask, self.factors) > 0.5)

    def upsampled(self, mask: BoolMask) -> BoolMask:
        """A mask of the coarser grid on the picture's."""
        return upsampled(mask, self.factors, self.shape)


def find_pen(thumbnail: Thumbnail) -> BoolMask:
    """Pen marks, over glass or over tissue, on the coarser grid: found by what they absorb and by their width."""
    scale, (red, green, blue) = thumbnail.coarse, thumbnail.averaged
    # No dye of tissue absorbs red most: these are blue, green and violet pens.
    cold = (red > 1.15 * green) & (red > 1.15 * blue) & (red > LEAST_DENSITY)
    # Black absorbs all alike, where haematoxylin spares blue and diaminobenzidine (brown) spares red.
    black = (np.minimum(red, blue) > 0.68 * green) & (np.maximum(red, blue) < 1.25 * green) & (red > LEAST_DENSITY)
    # Eosin spares blue more than red ink does.
    scarlet = (blue > 0.75 * green) & (red < 0.2 * green)
    core = opened(cold | (black & (red > OPAQUE)) | (scarlet & (green > OPAQUE)), HALF_WIDTH_UM, scale)
    if not core.any():
        return core
    rim = (cold | black | scarlet) & (np.maximum(red, green) > LEAST_DENSITY) & dilated(core, RIM_UM, scale)
    return dilated(core | rim, FRINGE_UM, scale)
