"""The network's mask of a segmented slide, ready to be corrected, and the slide file that it was made from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from ntrm.core.arrays import Floats
from ntrm.core.errors import DataError, RefusedError
from ntrm.core.labels import LabelSchema, Mask
from ntrm.core.mpp import Resolution
from ntrm.correct.log import Log, MaskRecord, read_log
from ntrm.correct.state import State, state_of
from ntrm.regions.regions import Regions, scan_mask
from ntrm.results.classes import folder_classes
from ntrm.results.documents import AGAIN, Summary, read_summary
from ntrm.results.mask_file import labels_in, mask_sha256, opened_mask, schema_in
from ntrm.results.paths import HIDDEN, MASK, PIECES
from ntrm.results.slide_state import Plan, SlideState, finished
from ntrm.segment.measurements import scan_slide
from ntrm.slides.grid import SlideGrid
from ntrm.slides.pieces import PieceMap
from ntrm.slides.readers.reader import SlideReader


@dataclass(frozen=True, eq=False)
class SlideMask:
    """The network's mask in a slide's folder of results."""

    folder: Path
    summary: Summary
    schema: LabelSchema
    record: MaskRecord  # What a log of corrections says about its mask

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.summary.grid.height, self.summary.grid.width

    @property
    def resolution(self) -> Resolution:
        """µm/px."""
        return Resolution(*self.summary.grid.mpp)

    @cached_property
    def segmented(self) -> tuple[SlideState, Plan]:
        """How the slide was segmented; refuses one that was not segmented completely."""
        state = finished(self.folder)
        if state is None or state.plan is None:
            raise DataError(f"{self.folder.name} was not segmented completely", hint=AGAIN)
        return state, state.plan

    def grid(self, reader: SlideReader, mpp: Resolution | None = None) -> SlideGrid:
        """The slide on the grid of its mask; ``mpp`` is the slide's µm/px if it is not as it was segmented."""
        stated, mask = self.segmented[1].mpp, self.summary.grid
        mpp = mpp or (None if stated is None else Resolution(*stated))
        make = SlideGrid.no_finer if self.summary.model is None else SlideGrid
        grid = make(reader, self.summary.wanted_mpp, mpp)
        if (grid.height, grid.width) != self.shape:
            raise RefusedError(
                f"{self.summary.slide_id}: slide and mask do not match",
                got=f"{grid.width} × {grid.height} px",
                expected=f"{mask.width} × {mask.height} px",
                hint="give the slide and the µm/px that were segmented",
            )
        return grid

    def labels(self) -> Mask:
        """(H, W) classes, 255 where nothing is known."""
        with opened_mask(self.folder) as stored:
            return labels_in(stored, self.shape)

    @cached_property
    def network_regions(self) -> tuple[Regions, Floats]:
        """The regions of the tables, and (R + 2,) how sure the network is of each; of glass as of all tissue.

        NaN where there was no network. Runs of no region have the last two entries.
        """
        grid = PieceMap.read(self.folder / HIDDEN / PIECES, hint=AGAIN)
        regions = scan_slide(self.labels(), None, grid, schema=self.schema, resolution=self.resolution)
        rows = self.segmented[0].tables["regions"]
        if len(rows) != len(regions.table):
            what, got = f"{self.folder.name}: {MASK} does not have the regions of the tables", len(regions.table)
            raise DataError(what, got=f"{got} regions", expected=len(rows), hint=AGAIN)
        known = [row["mean_confidence"] for row in rows]
        sure = np.array([np.nan if each is None else each for each in known], dtype=np.float64)
        mean = float((np.nan_to_num(sure) * regions.table.pixels).sum() / max(regions.table.pixels.sum(), 1))
        return regions, np.append(sure, [mean, mean])

    @cached_property
    def regions(self) -> Regions:
        """Its connected regions, glass included."""
        return scan_mask(self.labels(), replace(self.schema, background=None), self.resolution)


def open_mask(folder: Path) -> SlideMask:
    """The mask of a slide's folder, which ``ntrm segment`` has finished."""
    summary = read_summary(folder)
    with opened_mask(folder) as stored:
        schema = schema_in(stored, summary)
        digest = mask_sha256(folder)
    if summary.model is None:
        schema = folder_classes(folder.parent)
    record = MaskRecord(
        slide_id=summary.slide_id,
        mask=digest,
        height=summary.grid.height,
        width=summary.grid.width,
        classes=schema.names,
    )
    return SlideMask(folder, summary, schema, record)


def corrections_in(mask: SlideMask) -> tuple[Log, State]:
    """The log beside a mask, and its corrections; refuses a log about another mask."""
    log = read_log(mask.folder).check(mask.record)
    return log, state_of(log, mask.schema, mask.shape)
