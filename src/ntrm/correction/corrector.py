"""Correct the slides of a results folder without the page: clicks, areas from QuPath, undo and redo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ntrm.annotations.qupath import SUFFIXES, refuse_project
from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError, choices_error, did_you_mean
from ntrm.core.io import sha256_of
from ntrm.core.progress import SILENT, Progress
from ntrm.correction.areas import painted_areas, read_areas
from ntrm.correction.engine.graph import RegionGraph
from ntrm.correction.engine.propose import Click, check_tissue, drawn_step, propose, propose_elsewhere, propose_regions
from ntrm.correction.engine.spread import DEFAULT
from ntrm.correction.log import REDO, UNDO, Log, Step, append, completed
from ntrm.correction.pixels import PixelSet
from ntrm.correction.results import write_corrected
from ntrm.correction.slide import (
    SlideMask,
    corrections_in,
    make_region_graph,
    open_mask,
    region_graph_in,
    same_model,
)
from ntrm.correction.state import Corrections, corrections_of
from ntrm.pipeline.tabulating import tabulate_again
from ntrm.results.documents import AGAIN
from ntrm.results.folder import ResultsFolder
from ntrm.results.paths import HIDDEN, PIECES, SUMMARY
from ntrm.results.run_record import read_run
from ntrm.results.slide_state import finished
from ntrm.slides.inputs import SlideInput, check_roots, find_by_content
from ntrm.slides.known_places import place_of
from ntrm.wsi.pieces import PieceMap

if TYPE_CHECKING:
    from ntrm.inference.predictor import Predictor

COMMAND, FILE = "command", "file"
"""Where a step came from."""
MOST_LISTED = 12
"""Slides that an error lists."""


@dataclass(frozen=True)
class TakenStep:
    """One step in one slide, taken or shown before it is taken."""

    slide_id: str
    step: int
    """Its number in the log; with a preview, the one that it would get."""
    action: str
    tissue: str | None
    regions: int
    """Parts that were named and that followed; 0 for areas that were drawn."""
    area_mm2: float
    followed_mm2: dict[str, float] = field(default_factory=dict)
    """Of ``area_mm2``, what followed, by the tissue that it got."""
    of: int | None = None
    """The step that is undone or done again."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class CorrectionOptions:
    """How slides are corrected."""

    slides: tuple[Path, ...] = ()
    """Where the slides are, if no longer where they were segmented: needed once, to make their region graphs."""
    model: str | None = None
    """That the results were made with; None: the bundled one, if it is that."""
    device: str = "auto"
    batch: int = 16
    by: str | None = None
    """Initials for the log."""
    preview: bool = False
    """Say what would change, and write nothing."""

    def __post_init__(self) -> None:
        check_roots(self.slides)


@dataclass
class _Slide:
    """A slide that is being corrected."""

    mask: SlideMask
    log: Log
    corrections: Corrections
    graph: RegionGraph | None = None
    changed: bool = False


class Corrector:
    """Corrects slides of the results in ``out``; ``finish`` makes the files that follow from it."""

    def __init__(self, out: Path, options: CorrectionOptions | None = None, progress: Progress = SILENT) -> None:
        self.out, self.options, self.progress = out, options or CorrectionOptions(), progress
        read_run(out)  # refuses a folder of something else
        self.failures: dict[str, str] = {}
        """Slides to which a click could not be carried on, and why."""
        self.areas: list[dict[str, Any]] = []
        """Of each file of areas: its slide, and what was left out or repaired, counted."""
        self._open: dict[str, _Slide] = {}
        if self.options.by is not None:
            Step(action=UNDO, by=self.options.by)  # refuses impossible initials before anything is done

    @cached_property
    def slide_ids(self) -> list[str]:
        """Slides with results."""
        return [folder.path.name for folder in ResultsFolder(self.out) if folder.has(SUMMARY)]

    def slide(self, slide_id: str) -> _Slide:
        """A slide with its log as it is now."""
        if slide_id not in self.slide_ids:
            raise self._unknown(slide_id)
        if slide_id not in self._open:
            mask = open_mask(self.out / slide_id)
            # Before a step is taken that nothing could be made of.
            PieceMap.read(mask.folder / HIDDEN / PIECES, hint=AGAIN)
            self._open[slide_id] = _Slide(mask, *corrections_in(mask))
        return self._open[slide_id]

    def _unknown(self, slide_id: str) -> UsageError:
        what = f"no such slide in {self.out.name}"
        if len(self.slide_ids) <= MOST_LISTED:
            return choices_error(what, slide_id, self.slide_ids)
        hint = did_you_mean(slide_id, self.slide_ids)
        return UsageError(what, got=slide_id, expected=f"one of the {len(self.slide_ids)} in slides.csv", hint=hint)

    def click(
        self,
        slide_id: str,
        x: int,
        y: int,
        tissue: str,
        *,
        spread: bool = True,
        reach: float = 1.0,
        whole_region: bool = False,
        all_slides: bool = False,
    ) -> list[TakenStep]:
        """Name the part, or the region, at a pixel of the mask, and carry the name on."""
        there = self.slide(slide_id)
        _check_place(there.mask, x, y)
        check_tissue(there.mask.schema, tissue)
        click = Click(((y, x),), tissue, whole_region, DEFAULT if spread else None, reach)
        if whole_region and not spread and region_graph_in(there.mask) is None:
            proposal = propose_regions(there.mask.regions(), there.mask.schema, click)
            return [self._take(slide_id, proposal.step(COMMAND))]
        before, proposal = there.corrections, propose(self._graph(slide_id), there.corrections, click)
        own = self._take(slide_id, proposal.step(COMMAND))
        if not (all_slides and spread):
            return [own]
        return [own, *self._carried_on(slide_id, before, click, f"slide {slide_id}, step {own.step}")]

    def _carried_on(self, slide_id: str, before: Corrections, click: Click, origin: str) -> list[TakenStep]:
        """The same click in all other slides; what cannot be done in one of them does not stop the others."""
        changes, here = [], self._graph(slide_id)
        for other in self.slide_ids:
            if other == slide_id:
                continue
            try:
                there = self.slide(other)
                found = propose_elsewhere(here, before, click, self._graph(other), there.corrections)
                if found.followed:
                    changes.append(self._take(other, found.step(origin)))
            except NtrmError as error:
                self.failures[other] = error.what
        return changes

    def draw(self, slide_id: str, path: Path) -> list[TakenStep]:
        """Name the areas of a GeoJSON file, drawn in QuPath; smaller ones lie on larger ones.

        Regions of ours that were exported again as they are change nothing, also where an area was drawn over them.
        """
        there = self.slide(slide_id)
        mask = there.mask
        areas, counts = read_areas(path, mask)
        painted, _, pixels = painted_areas(mask, there.corrections, areas)
        self.areas.append({"slide_id": slide_id, **counts, "no_pixel": pixels.count(0)})
        indices = np.unique(painted[painted < len(mask.schema)]).tolist()
        if not indices:
            raise DataError(
                f"{path.name}: no area changes the slide",
                expected=f"areas on {slide_id}, in pixels of its full resolution, that are no regions as they are",
                hint="give the slide that they were drawn on with --slide",
            )
        drawn = {index: PixelSet.of_window(painted == index, 0, 0, mask.shape[1]) for index in indices}
        return [
            self._take(slide_id, drawn_step(named, mask.resolution, mask.schema.names[index], FILE))
            for index, named in drawn.items()
        ]

    def undo(self, slide_id: str) -> TakenStep:
        """Take the last step back."""
        return self._take(slide_id, Step(action=UNDO, origin=COMMAND))

    def redo(self, slide_id: str) -> TakenStep:
        """Do again what was taken back last."""
        return self._take(slide_id, Step(action=REDO, origin=COMMAND))

    def finish(self) -> list[str]:
        """Make the corrected versions of what changed, and the tables; returns the slides."""
        changed = [slide_id for slide_id, each in self._open.items() if each.changed]
        for slide_id in self.progress.track(changed, len(changed), "corrected"):
            write_corrected(self._open[slide_id].mask)
        if changed:
            tabulate_again(self.out)
        return changed

    def _take(self, slide_id: str, step: Step) -> TakenStep:
        """Write a step down, or only follow it."""
        there, step = self.slide(slide_id), replace(step, by=self.options.by)
        if self.options.preview:
            new = completed(step, there.log)
            there.log = Log(there.mask.record, (*there.log.steps, replace(new, number=there.log.version + 1)))
        else:
            there.log = append(there.mask.folder, there.mask.record, step, after=there.log.version)
            there.changed = True
        taken, mask = there.log.steps[-1], there.mask
        if taken.of is None:
            there.corrections = there.corrections.with_step(taken)
        else:
            there.corrections = corrections_of(there.log, mask.schema, mask.shape)
        pixel_mm2, size = mask.resolution.pixel_area_um2 / 1e6, mask.shape[0] * mask.shape[1]
        followed = {name: PixelSet.parse(text, size).pixels * pixel_mm2 for name, text in taken.followed.items()}
        return TakenStep(
            slide_id, taken.number, taken.action, taken.tissue, taken.regions, taken.area_mm2, followed, taken.of
        )

    def _graph(self, slide_id: str) -> RegionGraph:
        """The region graph of a slide; made where it is missing."""
        there = self.slide(slide_id)
        if there.graph is None:
            there.graph = region_graph_in(there.mask)
        if there.graph is None:
            there.graph = make_region_graph(there.mask, self._original(there.mask), self._predictor, self.progress)
        return there.graph

    def _original(self, mask: SlideMask) -> SlideInput:
        """The file of a slide, by its content."""
        slide_id = mask.folder.name
        if not self.options.slides:
            if (known := place_of(_source(mask))) is not None:
                return SlideInput(known, known.name)
            raise UsageError(
                f"the parts of {slide_id} are not known yet",
                expected="the slide itself, once: its parts are then kept with the results",
                hint="say where the slides are with --slides; or name whole regions with --whole-region --no-spread",
            )
        path = self._originals.get(_source(mask))
        if path is None:
            raise RefusedError(
                f"the file of {slide_id} was not found",
                got=", ".join(str(folder) for folder in self.options.slides),
                expected="a folder with the very file that was segmented, under any name",
                hint="give its folder with --slides",
            )
        return SlideInput(path, path.name)

    @cached_property
    def _originals(self) -> dict[str, Path]:
        """Files of all slides of the folder, by their content."""
        states = (finished(self.out / slide_id) for slide_id in self.slide_ids)
        wanted = {state.plan.source for state in states if state is not None and state.plan is not None}
        return dict(find_by_content({source for source in wanted if source is not None}, self.options.slides))

    @cached_property
    def _predictor(self) -> Predictor:
        """The network of the results."""
        from ntrm.inference.predictor import Predictor
        from ntrm.models.folders import BUNDLED, WEIGHTS, locate
        from ntrm.models.hub import load

        folder = locate(self.options.model or BUNDLED)
        same_model(next(iter(self._open.values())).mask, sha256_of(folder / WEIGHTS))
        return Predictor(load(folder), self.options.device, batch=self.options.batch)


def slide_of(path: Path, slide_ids: Sequence[str]) -> str:
    """The slide that a file is about, by its name."""
    name = next((path.name[: -len(end)] for end in SUFFIXES if path.name.lower().endswith(end)), path.stem)
    if name not in slide_ids:
        if not path.exists():
            raise UsageError("no such file", got=path, expected="areas that QuPath exported as GeoJSON")
        refuse_project(path)
        hint = did_you_mean(name, slide_ids) or "say which slide it is with --slide"
        raise UsageError("the file does not say which slide it is about", got=path.name, hint=hint)
    return name


def _source(mask: SlideMask) -> str:
    state = finished(mask.folder)
    return "" if state is None or state.plan is None else state.plan.source or ""


def _check_place(mask: SlideMask, x: int, y: int) -> None:
    height, width = mask.shape
    if not (0 <= x < width and 0 <= y < height):
        raise UsageError(
            "the place lies outside the mask",
            got=f"x {x}, y {y}",
            expected=f"x 0 to {width - 1}, y 0 to {height - 1}, in pixels of mask.ome.tif",
        )
