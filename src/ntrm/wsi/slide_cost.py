"""What a slide will cost to read, judged from its header: what no slide can be worth is refused."""

from __future__ import annotations

import math

from ntrm.core.errors import RefusedError
from ntrm.core.mpp import Resolution
from ntrm.wsi.grid import THUMBNAIL_MPP, best_level
from ntrm.wsi.readers.reader import SlideInfo

MOST_OVERVIEW = 2**27
"""Pixels of a thumbnail: 155 mm squared, more than any glass has."""
MOST_READ = 2**36
"""Pixels to be read: some ten to twenty minutes for the reading alone."""
READ_ANYWAY = 2**30
"""So many pixels are read however small the file is."""
PIXELS_PER_BYTE = 1000
"""Plain glass takes a byte for 350 pixels at best (deflate), tissue one for 10 or 20."""
SEVERAL_FILES = ("mirax", "hamamatsu", "dicom", "trestle")
"""Formats whose pixels may lie in other files than the main one."""


def cost_of(info: SlideInfo, mpp: Resolution, model_mpp: float) -> tuple[int, int]:
    """Pixels of the thumbnail, and pixels to be read of the file, with a model of ``model_mpp`` µm/px.

    A header of a few kilobytes can promise any number of pixels. Tissue is looked for in a thumbnail, which is held in
    memory and read from the coarsest level that is fine enough: of a slide without coarse levels, that is every pixel.
    Then the network's windows are read where there is tissue, at worst everywhere.
    """
    overview, overview_read = _pixels_at(info, mpp, max(THUMBNAIL_MPP, model_mpp, mpp.x, mpp.y))
    grid, grid_read = _pixels_at(info, mpp, model_mpp)
    return overview, max(overview_read, overview) + max(grid_read, grid)


def _pixels_at(info: SlideInfo, mpp: Resolution, goal: float) -> tuple[int, int]:
    """Pixels of the scanned area at ``goal`` µm/px, and those of the level that they are made of."""
    fx, fy = goal / mpp.x, goal / mpp.y
    sx, sy = info.scale(best_level(info, fx, fy))
    _, _, width, height = info.area
    return math.ceil(width / fx) * math.ceil(height / fy), math.ceil(width / sx) * math.ceil(height / sy)


def check_cost(info: SlideInfo, mpp: Resolution, model_mpp: float, size: int) -> None:
    """Refuse a slide that costs too much, or far more than a file of ``size`` bytes can be worth."""
    overview, read = cost_of(info, mpp, model_mpp)
    pixels = f"{info.width:,} × {info.height:,} pixels"
    if overview > MOST_OVERVIEW:
        raise RefusedError(
            "the slide is larger than any glass slide",
            got=f"{pixels} of {mpp}, {info.width * mpp.x / 1000:,.0f} × {info.height * mpp.y / 1000:,.0f} mm",
            expected=f"at most {MOST_OVERVIEW * (THUMBNAIL_MPP / 1000) ** 2:,.0f} mm²",
            hint="correct its µm/px, or cut it into parts",
        )
    if read > MOST_READ:
        raise RefusedError(
            "too many pixels of the slide would have to be read",
            got=f"{pixels} in {len(info.levels)} levels: {read:,} to read",
            expected=f"at most {MOST_READ:,}",
            hint="save it with coarser levels (a pyramid, as OME-TIFF from QuPath has), or cut it into parts",
        )
    if read > max(READ_ANYWAY, PIXELS_PER_BYTE * size) and info.vendor not in SEVERAL_FILES:
        raise RefusedError(
            "the slide has far more pixels than its file can hold",
            got=f"{pixels} in {size:,} bytes: {read:,} to read",
            expected=f"at most {PIXELS_PER_BYTE:,} for each byte",
            hint="save only the part that was scanned, with coarser levels (as OME-TIFF from QuPath has)",
        )
