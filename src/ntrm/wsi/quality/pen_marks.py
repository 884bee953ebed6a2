"""Strokes of a pen on a slide, over glass or over tissue, told by the light they absorb and by their width."""

from __future__ import annotations

import numpy as np

from ntrm.core.mpp import Resolution
from ntrm.wsi.quality.morphology import BoolMask, Floats, near, opened
from ntrm.wsi.quality.thumbnail import Picture, Thumbnail

LEAST_DENSITY = 0.12
"""A stroke is at least so dense."""
OPAQUE = 0.4
"""Black and red strokes are at least so dense: paler grey is a shadow, paler red is eosin."""
HALF_WIDTH_UM = 100.0
"""Half the least width of a stroke. Surgical ink is a thinner crust, and belongs to the tissue it sits on."""
RIM_UM = 150.0
"""A stroke's paler rim is so wide at most."""
FRINGE_UM = 45.0
"""Around that the ink fades into the glass, too pale for its hue to be told."""


def find_pen(thumbnail: Picture, mpp: float | Resolution) -> BoolMask:
    """Where strokes of a pen lie in a picture (H, W, 3) of a slide at ``mpp`` µm/px."""
    seen = Thumbnail.of(thumbnail, mpp)
    return seen.spread(pen_in(seen))


def pen_in(seen: Thumbnail) -> BoolMask:
    """The same on the coarser grid of what was seen."""
    return pen_strokes(*seen.averaged, seen.coarse)


def pen_strokes(red: Floats, green: Floats, blue: Floats, scale: Resolution) -> BoolMask:
    """The same from optical densities (H, W), averaged over more than a nucleus."""
    # No dye of tissue absorbs red most: these are blue, green and violet pens.
    cold = (red > 1.15 * green) & (red > 1.15 * blue) & (red > LEAST_DENSITY)
    # Black absorbs all alike, where haematoxylin spares blue and diaminobenzidine (brown) spares red.
    black = (np.minimum(red, blue) > 0.68 * green) & (np.maximum(red, blue) < 1.25 * green) & (red > LEAST_DENSITY)
    # Eosin spares blue more than red ink does.
    scarlet = (blue > 0.75 * green) & (red < 0.2 * green)
    opaque = (black & (red > OPAQUE)) | (scarlet & (green > OPAQUE))
    core = opened(np.asarray(cold | opaque), HALF_WIDTH_UM, scale)
    if not core.any():
        return core
    paler = (cold | black | scarlet) & (np.maximum(red, green) > LEAST_DENSITY)
    return near(core | (paler & near(core, RIM_UM, scale)), FRINGE_UM, scale)
