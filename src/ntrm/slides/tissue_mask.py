"""The tissue on a slide, found in its thumbnail, and which windows show any.

Light that passes tissue loses colour; light that passes dust, a coverslip's edge or an uneven lamp only loses
brightness. With the optical density d of each channel against the slide's own glass, averaged over the width of a
cell, a pixel is plainly tissue where

    max(d_red, d_green, d_blue) − min(d_red, d_green, d_blue) > a little

What is plainly tissue or plainly dark is then masked out, so that it does not blur into the glass around it, and the
faint rest is examined in wider averages: where it has colour, or texture that glass has not, and is not plainly grey,
it is tissue, too, if it is connected with what plainly is. So fat is found, which is nearly white: the walls of its
cells are pink, but few, and JPEG removes most of so faint a colour. Pen marks are recognised by what they absorb
(``thumbnail.find_pen``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import ndimage

from ntrm.core.arrays import BoolMask, Singles
from ntrm.core.mpp import Resolution
from ntrm.core.pixels import block_means
from ntrm.data.tiles import Window
from ntrm.slides.quality.thumbnail import (
    EIGHT,
    Thumbnail,
    blurred,
    dilated,
    tissue_under,
    upsampled,
    without_holes,
    without_small_regions,
)

STRONG = 0.04  # Colour (a difference of optical densities) of what is plainly tissue
LEAST_PURITY = 0.15  # Colour over density: less is dirt, however dark it is
DARK = 0.08  # Density of dirt, and of surgical ink, that would spoil the averages around it
NEAR_UM = 40.0  # The faint rest is examined this far from what is plainly tissue or dark: nearer, that blurs into it

WEAK, AVERAGED_UM = 0.011, 30.0
"""Colour of the faintest tissue, and the standard deviation of its average: about a fat cell."""
FAINT, NOISE_FACTOR = (0.0026, 0.006), 3.0
"""Texture (standard deviation of the density) of fat: this factor above that of glass, within these limits."""
WIDER_UM, WIDER_PURITY, TOO_FAINT = 80.0, 0.2, 0.02
"""Average to look for colour in what has texture, how pure it must be, and the density below which nobody can tell."""
WIDER_STEP = 2  # That average is taken of every second row and column
LEAST_WEIGHT = 0.05  # An average over less than this fraction of its weights means nothing
GLASS_DENSITY = 0.015  # The noise of the glass is measured in pixels less dense than this

MARGIN_UM = 14.0  # Tissue is taken to reach this much further: its border lies anywhere in a pixel of the coarser grid
HOLE_MM2 = 0.3  # Gaps inside tissue up to this size belong to it: lumina, cysts, clefts
SPECK_MM2 = 0.015  # Anything smaller is dust
BESIDE_PEN_UM = 100.0
"""Average of what is seen next to a pen's stroke, which decides whether it was drawn over tissue or over glass."""
MARK_MARGIN_UM = 27.0
"""Marks are taken to reach this much further: two pixels of the thumbnail, over which their rims fade."""
WINDOW_MARGIN_UM = 60.0  # Windows this near to tissue count, too: the mask was found in a coarser picture


def find_tissue(thumbnail: Thumbnail, pen: BoolMask) -> BoolMask:
    """(H, W) tissue of a thumbnail at about ``grid.THUMBNAIL_MPP`` with pen marks ``pen`` (coarser grid).

    Generous by some 25 µm. Pen on glass, dust and the coverslip's edge are no tissue; under a pen's stroke there is
    taken to be tissue where there is tissue on both sides of it.
    """
    scale = thumbnail.coarse
    plain, dark = _plain_and_dark(*thumbnail.averaged, pen)
    near_plain = dilated(plain, NEAR_UM, scale)
    excluded = near_plain | dilated(dark, NEAR_UM, scale)
    faint = _faint(thumbnail, excluded, pen)
    # Between what is plain, or the ink on a margin, and what is faint lies tissue, too.
    between = excluded & dilated(faint, NEAR_UM, scale)
    tissue = _connected(near_plain | faint | between, plain) & (plain | faint | between)
    if pen.all():
        tissue = np.zeros_like(tissue)
    elif pen.any():
        # Under a stroke there is tissue where there is tissue beside it.
        seen = blurred((~pen).astype(np.float32), BESIDE_PEN_UM, scale)
        beside = blurred((tissue & ~pen).astype(np.float32), BESIDE_PEN_UM, scale) > 0.5 * seen
        steps = (scale.y, scale.x)
        nearest = ndimage.distance_transform_edt(pen, sampling=steps, return_distances=False, return_indices=True)
        tissue = np.where(pen, beside[tuple(nearest)], tissue)
    tissue = without_holes(without_small_regions(tissue, SPECK_MM2, scale), HOLE_MM2, scale)
    found = thumbnail.upsampled(tissue)
    wide = dilated(found, MARGIN_UM, thumbnail.scale)
    # The margin does not reach the picture's edge unless the tissue itself does.
    for edge in ((0,), (-1,), (slice(None), 0), (slice(None), -1)):
        wide[edge] = found[edge]
    return wide


def find_marks(thumbnail: Thumbnail, pen: BoolMask, tissue: BoolMask) -> BoolMask:
    """(H, W) what ``find_tissue`` saw and did not take for ``tissue``: pen marks and dirt, with their rims.

    Dirt as near to tissue as the ink on a margin is left out. So is what is too pale to be seen: it may be fat.
    """
    plain, dark = _plain_and_dark(*thumbnail.averaged, pen)
    # What is plain and yet no tissue is a speck of it, too small to be any.
    dirt = thumbnail.upsampled(plain | dark) & ~tissue
    apart = dirt & ~_connected(dirt, dilated(tissue, NEAR_UM, thumbnail.scale))
    marks = apart | (thumbnail.upsampled(pen) & ~tissue)
    return dilated(marks, MARK_MARGIN_UM, thumbnail.scale) & ~tissue


def _plain_and_dark(red: Singles, green: Singles, blue: Singles, pen: BoolMask) -> tuple[BoolMask, BoolMask]:
    """What is plainly tissue, and what is plainly dark."""
    density, colour = _density_and_colour((red, green, blue))
    plain = (colour > STRONG) & (colour > LEAST_PURITY * density) & ~pen
    return plain, (density > DARK) & ~plain & ~pen


def _density_and_colour(planes: Sequence[Singles]) -> tuple[Singles, Singles]:
    """The largest density of the channels, and its difference from the smallest: both (H, W)."""
    highest = np.maximum.reduce(planes)
    return highest, highest - np.minimum.reduce(planes)


def _masked_averages(planes: Sequence[Singles], counted: Singles, um: float, scale: Resolution) -> list[Singles]:
    """Averages over the pixels with ``counted`` 1 alone; planes are 0 where it is 0."""
    counts = np.maximum(blurred(counted, um, scale), np.float32(LEAST_WEIGHT))
    return [np.divide(blurred(plane, um, scale), counts) for plane in planes]


def _faint(thumbnail: Thumbnail, excluded: BoolMask, pen: BoolMask) -> BoolMask:
    """What lies on the glass and is neither dirt nor plainly tissue, even if it is nearly white."""
    scale = thumbnail.coarse
    rest = ~(excluded | pen | thumbnail.unscanned)
    counted = rest.astype(np.float32)
    masked = [plane * counted for plane in (*thumbnail.planes, *thumbnail.moments)]
    *averages, mean, square = _masked_averages(masked, counted, AVERAGED_UM, scale)
    density, colour = _density_and_colour(averages)
    coloured = (colour > WEAK) & (colour > LEAST_PURITY * density)
    texture = np.sqrt(np.maximum(square - mean * mean, 0))
    glass = rest & (np.maximum.reduce([np.abs(plane) for plane in thumbnail.planes]) < GLASS_DENSITY)
    noise = float(np.median(texture[glass])) if glass.any() else 0.0
    textured = texture > np.clip(NOISE_FACTOR * noise, *FAINT)
    # So wide an average needs no fine grid.
    factors = (WIDER_STEP, WIDER_STEP)
    sums = [block_means(plane, factors) for plane in masked[:3]]
    averages = _masked_averages(sums, block_means(counted, factors), WIDER_UM, scale.downsampled(WIDER_STEP))
    density, colour = _density_and_colour(averages)
    no_dirt = upsampled((colour > WIDER_PURITY * density) | (density < TOO_FAINT), factors, counted.shape)
    return np.asarray(rest & (coloured | (textured & no_dirt)))


def _connected(weak: BoolMask, strong: BoolMask) -> BoolMask:
    """Regions of ``weak`` that hold a ``strong`` pixel."""
    labels, count = ndimage.label(weak, EIGHT)
    kept = np.zeros(count + 1, dtype=bool)
    kept[labels[strong]] = True
    return np.asarray(weak & kept[labels])


def windows_with_tissue(
    windows: Sequence[Window], tissue: BoolMask, thumb_mpp: Resolution, model_mpp: Resolution
) -> tuple[Window, ...]:
    """Those of ``windows`` (pixels of ``model_mpp``) that show some of ``tissue`` (pixels of ``thumb_mpp``), in order.

    Since every window over a pixel of tissue is kept, tissue is predicted as with all windows.
    """
    found, _ = tissue_under(windows, tissue, thumb_mpp, model_mpp, WINDOW_MARGIN_UM)
    return tuple(window for window, count in zip(windows, found, strict=True) if count)
