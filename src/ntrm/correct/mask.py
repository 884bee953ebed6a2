"""The network's mask of a segmented slide, ready to be corrected, and the slide file that it was made from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.labels import LabelSchema, Mask
from ntrm.core.mpp import Resolution
from ntrm.core.wording import NO_MODEL
from ntrm.correct.log import Log, MaskRecord, read_log
from ntrm.correct.state import State, state_of
from ntrm.regions.regions import Regions, scan_mask
from ntrm.results.classes import folder_classes
from ntrm.results.documents import AGAIN, Summary, read_summary
from ntrm.results.mask_file import labels_in, mask_sha256, opened_mask, schema_in
from ntrm.results.slide_state import Plan, SlideState, finished
from ntrm.slides.grid import SlideGrid
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

    def check_model(self, sha256: str) -> None:
        """Refuse weights that are not those of the results."""
        model = self.summary.model
        if model is None:
            raise RefusedError(f"{self.folder.name} was {NO_MODEL}", got=f"weights {sha256[:12]}")
        if sha256 != model["sha256"]:
            known = f"named {model['name'] or model['arch']}, weights {str(model['sha256'])[:12]}"
            raise RefusedError(
                f"{self.folder.name} was made with another model",
                got=f"weights {sha256[:12]}",
                hint=f"give the folder of the model that the results were made with: --model ({known})",
            )

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
