"""A slide at low resolution: where its tissue lies, and whether it is fit to be segmented."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import RefusedError
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.core.pixels import sampled
from ntrm.data.tiles import Window
from ntrm.segment.options import Options
from ntrm.slides.grid import THUMBNAIL_MPP, SlideGrid, thumbnail
from ntrm.slides.pieces import PieceMap, cells_under
from ntrm.slides.quality.checks import Quality, as_judged, assess_quality, sample_windows, synthetic_fraction
from ntrm.slides.quality.thumbnail import Thumbnail, find_pen
from ntrm.slides.tissue_mask import find_marks, find_tissue, windows_with_tissue

ROWS = 256  # Of a mask that are looked at together


@dataclass(frozen=True, eq=False)
class SlideOverview:
    """A slide's thumbnail and tissue; its marks, pieces and quality are looked at once, when somebody asks."""

    seen: Thumbnail
    pen: NDArray[np.bool_]
    tissue: NDArray[np.bool_]
    judge: Callable[[], Quality]

    @property
    def picture(self) -> NDArray[np.uint8]:
        """(H, W, 3) at ``resolution``."""
        return self.seen.picture

    @property
    def resolution(self) -> Resolution:
        """µm/px of picture and tissue."""
        return self.seen.scale

    @cached_property
    def quality(self) -> Quality:
        """Whether the slide is fit to be segmented."""
        return self.judge()

    @cached_property
    def marks(self) -> NDArray[np.bool_]:
        """Pen and dirt on the glass."""
        return find_marks(self.seen, self.pen, self.tissue)

    @cached_property
    def pieces(self) -> PieceMap:
        """The pieces of the tissue."""
        return PieceMap.of(self.tissue, self.resolution)

    def windows(self, grid: SlideGrid, options: Options, window: int) -> tuple[Window, ...]:
        """The windows that need the network."""
        windows = options.stitching(window).windows(grid.height, grid.width)
        if not options.tissue_mask:
            return windows
        return windows_with_tissue(windows, self.tissue, self.resolution, grid.resolution)

    def unmark(self, labels: NDArray[np.uint8], grid: SlideGrid, schema: LabelSchema, options: Options) -> None:
        """Make background of the labels of a whole slide under marks."""
        if not (options.tissue_mask and schema.background_index is not None and self.marks.any()):
            return
        whole = Window(0, 0, grid.height, grid.width)
        rows, columns = cells_under(whole, grid.resolution, self.marks.shape, self.resolution)
        for top in range(0, grid.height, ROWS):
            band = labels[top : top + ROWS]
            marked = self.marks.take(rows[top : top + ROWS], axis=0)
            if marked.any():
                band[marked.take(columns, axis=1) & (band != IGNORE)] = schema.background_index

    def pieces_of(self, labels: NDArray[np.uint8], schema: LabelSchema, options: Options) -> PieceMap:
        """The pieces of the tissue that was found, or without a tissue mask of what the network calls tissue."""
        if options.tissue_mask:
            return self.pieces
        seen = sampled(labels, self.tissue.shape)
        background = IGNORE if schema.background_index is None else schema.background_index
        return PieceMap.of(np.asarray((seen != IGNORE) & (seen != background)), self.resolution)


def inspect_slide(grid: SlideGrid, options: Options) -> SlideOverview:
    """Find tissue; refuses a poor slide where that was asked for."""
    seen = Thumbnail(*thumbnail(grid, max(THUMBNAIL_MPP, grid.model_mpp)))
    pen = find_pen(seen)
    tissue = find_tissue(seen, pen)
    grids = (seen.scale, grid.resolution, (grid.height, grid.width))
    windows = sample_windows(tissue, *grids)
    # Focus shows at the resolution that the network sees, not from afar.
    read = [grid.read(window.top, window.left, window.height, window.width) for window in windows]
    samples = [as_judged(sample, grid.resolution) for sample in read] or None
    # Where no tissue was found, windows all over the slide are looked at.
    drawn = synthetic_fraction(grid, windows or sample_windows(np.ones_like(tissue), *grids))
    enlarged = max(grid.source.x, grid.source.y) / grid.model_mpp
    quality = partial(assess_quality, seen, tissue, pen, samples=samples, drawn=drawn, enlarged=enlarged)
    overview = SlideOverview(seen, pen, tissue, quality)
    if options.strict and overview.quality.serious:
        raise RefusedError(
            "the slide is of poor quality",
            got="; ".join(overview.quality.warnings),
            hint=f"{'give the image' if overview.quality.drawn.flag else 'scan it again'}, or run without --strict",
        )
    return overview
