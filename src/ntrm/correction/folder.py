"""Correct the slides of a results folder without the page: clicks, areas from QuPath, undo and redo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ntrm.annotations.qupath import SUFFIXES, refuse_project
from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError, choices_error, did_you_mean
from ntrm.core.io import sha256_of
from ntrm.core.progress import SILENT, Progress
from ntrm.correction.areas import painted_areas, read_areas
from ntrm.correction.ask import Ask, Name, Redo, Undo
from ntrm.correction.engine.prepare import same_model
from ntrm.correction.log import UNDO, Step
from ntrm.correction.mask import segmented
from ntrm.correction.pixels import PixelSet
from ntrm.correction.slide import SlideCorrections
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

MOST_LISTED = 12
"""Slides that an error lists."""


@dataclass
class FolderCorrections:
    """Corrects slides of the results in ``out``; ``finish`` makes the files that follow from it."""

    out: Path
    slides: Sequence[Path] = ()
    """Where the slides are, if no longer where they were segmented: needed once, to find their parts."""
    model: str | None = None
    """That the results were made with; None: the bundled one, if it is that."""
    device: str = "auto"
    batch: int = 16
    by: str | None = None
    """Initials for the log."""
    preview: bool = False
    """Say what would change, and write nothing."""
    progress: Progress = SILENT
    changes: list[dict[str, Any]] = field(default_factory=list)
    """All steps that were taken, without their pixels."""
    failures: dict[str, str] = field(default_factory=dict)
    """Slides to which a click could not be carried on, and why."""
    areas: list[dict[str, Any]] = field(default_factory=list)
    """Of each file of areas: its slide, and what was left out or repaired, counted."""

    def __post_init__(self) -> None:
        check_roots(self.slides)
        read_run(self.out)  # refuses a folder of something else
        self._open: dict[str, SlideCorrections] = {}
        if self.by is not None:
            Step(action=UNDO, by=self.by)  # refuses impossible initials before anything is done

    @cached_property
    def slide_ids(self) -> list[str]:
        """Slides with results."""
        return [folder.path.name for folder in ResultsFolder(self.out) if folder.has(SUMMARY)]

    def slide(self, slide_id: str) -> SlideCorrections:
        """A slide's corrections."""
        if slide_id not in self.slide_ids:
            what = f"no such slide in {self.out.name}"
            if len(self.slide_ids) <= MOST_LISTED:
                raise choices_error(what, slide_id, self.slide_ids)
            hint = did_you_mean(slide_id, self.slide_ids)
            raise UsageError(what, got=slide_id, expected=f"one of the {len(self.slide_ids)} in slides.csv", hint=hint)
        if slide_id not in self._open:
            slide = SlideCorrections(self.out / slide_id)
            # Before a step is taken that nothing could be made of.
            PieceMap.read(slide.mask.folder / HIDDEN / PIECES, hint=AGAIN)
            self._open[slide_id] = slide
        return self._open[slide_id]

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
    ) -> None:
        """Name the part, or the region, at a pixel of the mask, and carry the name on."""
        slide = self.slide(slide_id)
        height, width = slide.mask.shape
        if not (0 <= x < width and 0 <= y < height):
            raise UsageError(
                "the place lies outside the mask",
                got=f"x {x}, y {y}",
                expected=f"x 0 to {width - 1}, y 0 to {height - 1}, in pixels of mask.ome.tif",
            )
        slide.check_tissue(tissue)
        if spread or not whole_region:
            self._prepare(slide)
        before = slide.state()
        ask = Name(
            version=slide.log.version,
            points=[slide.point((y, x))],
            tissue=tissue,
            whole_regions=whole_region,
            spread=spread,
            reach=reach,
            by=self.by,
        )
        click = slide.click(ask)
        own = self._take(slide_id, ask)
        if not (all_slides and spread):
            return
        learned = slide.engine.learn([(slide.mask, before)])
        for other in self.slide_ids:
            if other == slide_id:
                continue
            try:  # what cannot be done in one of them does not stop the others
                there = self.slide(other)
                self._prepare(there)
                version = there.log.version
                found = there.engine.propose(there.mask, there.state(version), click, learned)
                if found.followed:
                    self._take(other, found.step(f"slide {slide_id}, step {own.number}"), version)
            except NtrmError as error:
                self.failures[other] = error.what

    def draw(self, path: Path, slide_id: str | None = None) -> None:
        """Name the areas of a GeoJSON file, drawn in QuPath; smaller ones lie on larger ones.

        Regions of ours that were exported again as they are change nothing, also where an area was drawn over them.
        """
        slide_id = slide_id or slide_of(path, self.slide_ids)
        slide = self.slide(slide_id)
        mask = slide.mask
        (areas, counts), version = read_areas(path, mask), slide.log.version
        painted, _, pixels = painted_areas(mask, slide.state(version), areas)
        self.areas.append({"slide_id": slide_id, **counts, "no_pixel": pixels.count(0)})
        indices = np.unique(painted[painted < len(mask.schema)]).tolist()
        if not indices:
            raise DataError(
                f"{path.name}: no area changes the slide",
                expected=f"areas on {slide_id}, in pixels of its full resolution, that are no regions as they are",
                hint="give the slide that they were drawn on with --slide",
            )
        for index in indices:
            step = slide.drawn(PixelSet.of_window(painted == index, 0, 0, mask.shape[1]), mask.schema.names[index])
            version = self._take(slide_id, replace(step, origin="file"), version).number

    def undo(self, slide_id: str) -> None:
        """Take the last step back."""
        self._take(slide_id, Undo(version=self.slide(slide_id).log.version, by=self.by))

    def redo(self, slide_id: str) -> None:
        """Do again what was taken back last."""
        self._take(slide_id, Redo(version=self.slide(slide_id).log.version, by=self.by))

    def finish(self) -> None:
        """Make the corrected versions of what changed, and the tables."""
        changed = [] if self.preview else [*dict.fromkeys(change["slide_id"] for change in self.changes)]
        for slide_id in self.progress.track(changed, len(changed), "corrected"):
            self.slide(slide_id).write()
        if changed:
            tabulate_again(self.out)

    def _take(self, slide_id: str, asked: Ask | Step, version: int | None = None) -> Step:
        """Do what is asked for, or write a step down that follows from a version; with a preview only follow it."""
        slide = self.slide(slide_id)
        if isinstance(asked, Step):
            step = slide.record(replace(asked, by=self.by), after=version, preview=self.preview)
        else:
            step = slide.take(asked, origin="command", preview=self.preview)
        size = slide.mask.shape[0] * slide.mask.shape[1]
        followed = {name: PixelSet.parse(text, size).pixels * slide.pixel_mm2 for name, text in step.followed.items()}
        told = {key: getattr(step, key) for key in ("action", "tissue", "regions", "area_mm2")}
        self.changes.append(
            {"slide_id": slide_id, "step": step.number, **told, "followed_mm2": followed, "of": step.of}
        )
        return step

    def _prepare(self, slide: SlideCorrections) -> None:
        """Find the parts of a slide where they are not known."""
        if not slide.is_ready:
            slide.engine.prepare(slide.mask, self._original(slide), self._predictor, self.progress)

    def _original(self, slide: SlideCorrections) -> SlideInput:
        """The file of a slide, by its content."""
        source, slide_id = segmented(slide.mask.folder)[1].source or "", slide.mask.folder.name
        path = self._originals.get(source) if self.slides else place_of(source)
        if path is not None:
            return SlideInput(path, path.name)
        if self.slides:
            raise RefusedError(
                f"the file of {slide_id} was not found",
                got=", ".join(str(folder) for folder in self.slides),
                expected="a folder with the very file that was segmented, under any name",
                hint="give its folder with --slides",
            )
        raise UsageError(
            f"the parts of {slide_id} are not known yet",
            expected="the slide itself, once: its parts are then kept with the results",
            hint="say where the slides are with --slides; or name whole regions with --whole-region --no-spread",
        )

    @cached_property
    def _originals(self) -> dict[str, Path]:
        """Files of all slides of the folder, by their content."""
        states = (finished(self.out / slide_id) for slide_id in self.slide_ids)
        plans = [state.plan for state in states if state is not None and state.plan is not None]
        return dict(find_by_content({plan.source for plan in plans if plan.source is not None}, self.slides))

    @cached_property
    def _predictor(self) -> Predictor:
        """The network of the results."""
        from ntrm.inference.predictor import Predictor
        from ntrm.models.folders import BUNDLED, WEIGHTS, locate
        from ntrm.models.hub import load

        folder = locate(self.model or BUNDLED)
        same_model(next(iter(self._open.values())).mask, sha256_of(folder / WEIGHTS))
        return Predictor(load(folder), self.device, batch=self.batch)


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
