"""Where the tissue lies on a slide, from a small picture of it: so that empty glass costs nothing.

Light that passes tissue loses colour; light that passes dust, a coverslip's edge or an uneven lamp only loses
brightness. With the optical density d of each channel against the slide's own glass, averaged over the width of a few
cells, a place is tissue where

    max(d_red, d_green, d_blue) − min(d_red, d_green, d_blue) > a little

and where it hangs together with a place where this is much. Fat is nearly white: the walls of its cells are pink, but
few, and JPEG takes most of so faint a colour away. So a place is also tissue where it has texture that glass has not,
and is not plainly grey in the wider average. Pens are told by what they absorb (see ``pen.py``).
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from ntrm.resolution import Resolution
from ntrm.slide.glass import Densities, Picture, as_resolution, check_picture, optical_density
from ntrm.slide.pen import pen_strokes
from ntrm.slide.places import Floats, Places, blurred, near, without_holes, without_specks

WHITE = 255

THUMBNAIL_MPP = 13.4
"""µm/px to look for tissue at: cell walls of fat still show, and a whole slide is some 2000 pixels wide."""

AVERAGED_UM = 30.0
"""Standard deviation of the average: about a fat cell."""
WEAK, STRONG = 0.011, 0.04
"""Colour (a difference of optical densities) of the faintest tissue, and of what makes a place tissue at all."""
LEAST_PURITY = 0.15
"""Colour over density: less is dirt, however dark it is."""

FAINT, NOISE_FACTOR = (0.0026, 0.006), 3.0
"""Texture (standard deviation of the density) of fat: this factor above that of glass, within these limits."""
CLIPPED = 0.03
"""Denser places count as this dense in the texture, so that a dark border does not reach far over the glass."""
WIDER_UM, WIDER_PURITY, TOO_FAINT = 80.0, 0.2, 0.02
"""Average to look for colour in what has texture, how pure it must be, and the density below which nobody can tell."""
GLASS_DENSITY = 0.015
"""Pixels less dense than this tell how noisy the glass is."""

MARGIN_UM = 30.0
"""Tissue is taken to reach this much further: the average blurs its border."""
HOLE_MM2 = 0.3
"""Gaps inside tissue up to this size belong to it: lumina, cysts, clefts."""
SPECK_MM2 = 0.015
"""Anything smaller is dust."""
BESIDE_PEN_UM = 100.0
"""Average of what is seen beside a pen's stroke, to tell whether it was drawn over tissue or over glass."""


def find_tissue(thumbnail: Picture, mpp: float | Resolution) -> Places:
    """Where tissue lies in a picture (H, W, 3) of a slide at ``mpp`` µm/px, ``THUMBNAIL_MPP`` or about that.

    Generous by some 30 µm. Pen on glass, dust and the coverslip's edge are no tissue; under a pen's stroke there is
    taken to be tissue where there is tissue on both sides of it.
    """
    check_picture(thumbnail)
    scale = as_resolution(mpp)
    density = optical_density(thumbnail)
    pen = pen_strokes(density, scale)
    unmarked = np.where(pen[..., None], np.float32(0), density)
    # Readers paint what was never scanned pure white.
    unscanned = thumbnail.min(axis=2) == WHITE
    most, colour = _averages(unmarked, AVERAGED_UM, scale)
    coloured = (colour > WEAK) & (colour > LEAST_PURITY * most)
    tissue = _connected(coloured | _textured(unmarked, pen | unscanned, scale), coloured & (colour > STRONG))
    if pen.any():
        tissue = _under_pen(tissue, pen, scale)
    tissue = without_specks(tissue, SPECK_MM2, scale)
    return without_holes(_widened(tissue, scale), HOLE_MM2, scale)


def _averages(density: Densities, um: float, scale: Resolution) -> tuple[Floats, Floats]:
    """Density (the largest of the channels) and colour, both (H, W), averaged over ``um``."""
    averaged = np.stack([blurred(density[..., k], um, scale) for k in range(3)])
    most: Floats = averaged.max(axis=0)
    return most, most - averaged.min(axis=0)


def _textured(density: Densities, hidden: Places, scale: Resolution) -> Places:
    """Where something lies on the glass that is no dirt, be it nearly white; ``hidden`` says nothing of the glass."""
    green = np.clip(density[..., 1], -CLIPPED, CLIPPED)
    variance = blurred(green**2, AVERAGED_UM, scale) - blurred(green, AVERAGED_UM, scale) ** 2
    texture = np.sqrt(np.maximum(variance, 0))
    glass = (np.abs(density).max(axis=2) < GLASS_DENSITY) & ~hidden
    noise = float(np.median(texture[glass])) if glass.any() else 0.0
    most, colour = _averages(density, WIDER_UM, scale)
    no_dirt = (colour > WIDER_PURITY * most) | (most < TOO_FAINT)
    return np.asarray((texture > np.clip(NOISE_FACTOR * noise, *FAINT)) & no_dirt)


def _connected(weak: Places, strong: Places) -> Places:
    """Regions of ``weak`` that hold a ``strong`` place."""
    regions, count = ndimage.label(weak, structure=np.ones((3, 3)))
    kept = np.zeros(count + 1, dtype=bool)
    kept[np.unique(regions[strong & weak])] = True
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
