"""The slide under a mask that was made of it."""

from __future__ import annotations

from ntrm.core.errors import RefusedError
from ntrm.core.mpp import Resolution
from ntrm.results.documents import Summary
from ntrm.wsi.grid import SlideGrid
from ntrm.wsi.readers.reader import SlideReader


def mask_grid(reader: SlideReader, summary: Summary, mpp: Resolution | None, *, hint: str) -> SlideGrid:
    """The slide on the grid of its mask; ``mpp`` is the slide's µm/px where it was stated."""
    grid, mask = SlideGrid(reader, float(summary.model["mpp"]), mpp), summary.grid
    if (grid.height, grid.width) != (mask.height, mask.width):
        raise RefusedError(
            f"{summary.slide_id}: slide and mask do not match",
            got=f"{grid.width} × {grid.height} px",
            expected=f"{mask.width} × {mask.height} px",
            hint=hint,
        )
    return grid
