"""Where the tissue lies on a slide, from a small picture of it: so that empty glass costs nothing.

Light that passes tissue loses colour; light that passes dust, a coverslip's edge or an uneven lamp only loses
brightness. With the optical density d of each channel against the slide's own glass, averaged over the width of a
cell, a place is plainly tissue where

    max(d_red, d_green, d_blue) − min(d_red, d_green, d_blue) > a little

What is plainly tissue or plainly dark is then set aside, so that it does not shine over the glass beside it, and the
faint rest is looked at in wider averages: where it has colour, or texture that glass has not, and is not plainly grey,
it is tissue, too, if it hangs together with what plainly is. So fat is found, which is nearly white: the walls of its
cells are pink, but few, and JPEG takes most of so faint a colour away. Pens are told by what they absorb (``pen.py``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import ndimage

from ntrm.resolution import Resolution
from ntrm.slide.glass import Picture
from ntrm.slide.pen import pen_in
from ntrm.slide.places import Floats, Places, blurred, near, regions_of, shrunk, spread, without_holes, without_specks
from ntrm.slide.seen import Seen

WHITE = 255

STRONG = 0.04
"""Colour (a difference of optical densities) of what is plainly tissue."""
LEAST_PURITY = 0.15
"""Colour over density: less is dirt, however dark it is."""
DARK = 0.08
"""Density of dirt, and of surgical ink, that would spoil the averages beside it."""
BESIDE_UM = 40.0
"""The faint rest is looked at this far from what is plainly tissue or dark: nearer, that blurs into it."""

WEAK, AVERAGED_UM = 0.011, 30.0
"""Colour of the faintest tissue, and the standard deviation of its average: about a fat cell."""
FAINT, NOISE_FACTOR = (0.0026, 0.006), 3.0
"""Texture (standard deviation of the density) of fat: this factor above that of glass, within these limits."""
CLIPPED = 0.03
"""Denser places count as this dense in the texture: the walls of fat cells are no denser."""
WIDER_UM, WIDER_PURITY, TOO_FAINT = 80.0, 0.2, 0.02
"""Average to look for colour in what has texture, how pure it must be, and the density below which nobody can tell."""
WIDER_STEP = 2
"""That average is taken of every second row and column."""
LEAST_SHARE = 0.05
"""An average over less than this share of its weights tells nothing."""
GLASS_DENSITY = 0.015
"""Pixels less dense than this tell how noisy the glass is."""

MARGIN_UM = 14.0
"""Tissue is taken to reach this much further: its border lies anywhere in a pixel of the coarser grid."""
HOLE_MM2 = 0.3
"""Gaps inside tissue up to this size belong to it: lumina, cysts, clefts."""
SPECK_MM2 = 0.015
"""Anything smaller is dust."""
BESIDE_PEN_UM = 100.0
"""Average of what is seen beside a pen's stroke, to tell whether it was drawn over tissue or over glass."""


def find_tissue(thumbnail: Picture, mpp: float | Resolution) -> Places:
    """Where tissue lies in a picture (H, W, 3) of a slide at ``mpp`` µm/px, ``grid.THUMBNAIL_MPP`` or about that.

    Generous by some 25 µm. Pen on glass, dust and the coverslip's edge are no tissue; under a pen's stroke there is
    taken to be tissue where there is tissue on both sides of it.
    """
    seen = Seen.of(thumbnail, mpp)
    return tissue_in(seen, pen_in(seen))


def tissue_in(seen: Seen, pen: Places) -> Places:
    """The same of what was seen, with the strokes of a pen on its coarser grid."""
    scale = seen.coarse
    most, colour = _most_and_colour(seen.averaged)
    plain = (colour > STRONG) & (colour > LEAST_PURITY * most) & ~pen
    dark = (most > DARK) & ~plain & ~pen
    beside = near(plain, BESIDE_UM, scale)
    aside = beside | near(dark, BESIDE_UM, scale)
    faint = _faint(seen, aside, pen)
    # Between what is plain, or the ink on a margin, and what is faint lies tissue, too.
    between = aside & near(faint, BESIDE_UM, scale)
    tissue = _connected(beside | faint | between, plain) & (plain | faint | between)
    if pen.any():
        tissue = _under_pen(tissue, pen, scale)
    tissue = without_holes(without_specks(tissue, SPECK_MM2, scale), HOLE_MM2, scale)
    return _widened(seen.spread(tissue), seen.scale)


def _most_and_colour(planes: tuple[Floats, Floats, Floats]) -> tuple[Floats, Floats]:
    """Density, the largest of the channels, and colour: both (H, W)."""
    red, green, blue = planes
    most = np.maximum(np.maximum(red, green), blue)
    return most, most - np.minimum(np.minimum(red, green), blue)


class _Average(NamedTuple):
    """Averages of the places that count, and of them only."""

    counted: Floats
    share: Floats
    um: float
    scale: Resolution

    @classmethod
    def over(cls, places: Places, um: float, scale: Resolution) -> _Average:
        counted = places.astype(np.float32)
        return cls(counted, np.maximum(blurred(counted, um, scale), LEAST_SHARE), um, scale)

    def of(self, plane: Floats) -> Floats:
        return blurred(plane * self.counted, self.um, self.scale) / self.share


def _faint(seen: Seen, aside: Places, pen: Places) -> Places:
    """Where something lies on the glass that is neither dirt nor plainly tissue, be it nearly white."""
    scale, picture = seen.coarse, seen.picture
    # Readers paint what was never scanned pure white.
    unscanned = np.minimum(np.minimum(picture[..., 0], picture[..., 1]), picture[..., 2]) == WHITE
    rest = ~aside & ~pen
    if unscanned.any():
        rest &= shrunk(unscanned, seen.factors) == 0
    close = _Average.over(rest, AVERAGED_UM, scale)
    red, green, blue = (close.of(plane) for plane in seen.planes)
    most, colour = _most_and_colour((red, green, blue))
    coloured = (colour > WEAK) & (colour > LEAST_PURITY * most)
    return np.asarray(rest & (coloured | (_textured(seen, close, rest) & _no_dirt(seen, rest))))


def _textured(seen: Seen, close: _Average, rest: Places) -> Places:
    green = np.clip(seen.density[..., 1], -CLIPPED, CLIPPED)
    mean, square = close.of(shrunk(green, seen.factors)), close.of(shrunk(green * green, seen.factors))
    texture = np.sqrt(np.maximum(square - mean * mean, 0))
    red, green, blue = (np.abs(plane) for plane in seen.planes)
    glass = rest & (np.maximum(np.maximum(red, green), blue) < GLASS_DENSITY)
    noise = float(np.median(texture[glass])) if glass.any() else 0.0
    return np.asarray(texture > np.clip(NOISE_FACTOR * noise, *FAINT))


def _no_dirt(seen: Seen, rest: Places) -> Places:
    # So wide an average needs no fine grid.
    scale = Resolution(seen.coarse.x * WIDER_STEP, seen.coarse.y * WIDER_STEP)
    counted, factors = rest.astype(np.float32), (WIDER_STEP, WIDER_STEP)
    share = np.maximum(blurred(shrunk(counted, factors), WIDER_UM, scale), LEAST_SHARE)
    red, green, blue = (
        np.asarray(blurred(shrunk(plane * counted, factors), WIDER_UM, scale) / share, np.float32)
        for plane in seen.planes
    )
    most, colour = _most_and_colour((red, green, blue))
    return spread((colour > WIDER_PURITY * most) | (most < TOO_FAINT), factors, rest.shape)


def _connected(weak: Places, strong: Places) -> Places:
    """Regions of ``weak`` that hold a ``strong`` place."""
    regions, sizes = regions_of(weak)
    kept = np.zeros(len(sizes), dtype=bool)
    kept[regions[strong]] = True
    kept[0] = False
    return np.asarray(kept[regions])


def _under_pen(tissue: Places, pen: Places, scale: Resolution) -> Places:
    """Under a stroke lies what lies nearest beside it."""
    if pen.all():
        return np.zeros_like(tissue)
    seen = blurred((~pen).astype(np.float32), BESIDE_PEN_UM, scale)
    beside = blurred((tissue & ~pen).astype(np.float32), BESIDE_PEN_UM, scale) > 0.5 * seen
    nearest = ndimage.distance_transform_edt(
        pen, sampling=(scale.y, scale.x), return_distances=False, return_indices=True
    )
    return np.asarray(np.where(pen, beside[tuple(nearest)], tissue))


def _widened(tissue: Places, scale: Resolution) -> Places:
    """With its margin; but only what itself lies at the picture's edge touches that edge."""
    wide = near(tissue, MARGIN_UM, scale)
    for edge in ((0,), (-1,), (slice(None), 0), (slice(None), -1)):
        wide[edge] = tissue[edge]
    return wide
