"""Correct the slides of a results folder without the page: clicks, areas from QuPath, undo and redo."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ntrm.annotations.qupath import SUFFIXES
from ntrm.core.devices import choose_device
from ntrm.core.errors import DataError, NtrmError, UsageError, did_you_mean, first_names
from ntrm.core.progress import SILENT, Progress
from ntrm.correct.areas import painted_areas
from ntrm.correct.ask import Name
from ntrm.correct.engine import ENGINE
from ntrm.correct.log import Step
from ntrm.correct.pixels import PixelSet
from ntrm.correct.slide import SlideCorrections
from ntrm.results.folder import ResultsFolder
from ntrm.results.manifest import read_run
from ntrm.results.paths import SUMMARY
from ntrm.results.slide_state import finished
from ntrm.segment.tabulating import tabulate_again
from ntrm.slides.inputs import SlideInput, check_roots, find_by_content, place_of

ORIGIN = "command"


@dataclass
class FolderCorrections:
    """Corrects slides of the results in ``out``; ``finish`` makes the files that follow from it."""

    out: Path
    slides: Sequence[Path] = ()
    """Where the slides are, if no longer where they were segmented: needed once, to read their texture."""
    device: str = "auto"
    by: str | None = None  # Initials for the log
    preview: bool = False  # Say what would change, and write nothing
    progress: Progress = SILENT
    changes: list[dict[str, Any]] = field(default_factory=list)  # All steps that were taken, without their pixels
    failures: dict[str, str] = field(default_factory=dict)  # Slides to which a click could not be carried on, and why
    areas: list[dict[str, Any]] = field(default_factory=list)
    """Of each file of areas: its slide, and what was left out or repaired, counted."""

    def __post_init__(self) -> None:
        check_roots(self.slides)
        read_run(self.out)  # refuses a folder of something else
        self._open: dict[str, SlideCorrections] = {}
        Step(action="undo", by=self.by)  # refuses impossible initials before anything is done

    @cached_property
    def slide_ids(self) -> list[str]:
        """Slides with results."""
        return [folder.path.name for folder in ResultsFolder(self.out) if folder.has(SUMMARY)]

    def slide(self, slide_id: str) -> SlideCorrections:
        """A slide's corrections."""
        if slide_id not in self.slide_ids:
            what, hint = f"no such slide in {self.out.name}", did_you_mean(slide_id, self.slide_ids)
            raise UsageError(what, got=slide_id, expected=f"one of {first_names(self.slide_ids, 12)}", hint=hint)
        if slide_id not in self._open:
            self._open[slide_id] = SlideCorrections(self.out / slide_id)
        return self._open[slide_id]

    def click(self, slide_id: str, x: int, y: int, tissue: str, *, all_slides: bool = False, **how: Any) -> None:
        """Name the pixels, or the region, around one of the mask, and carry it on; ``how``: fields of ``Name``."""
        slide = self.slide(slide_id)
        slide.mask.schema.check_nameable(tissue)
        slide.units.at((y, x))  # refused before the slide is read
        ask = Name(version=slide.log.version, points=[slide.point((y, x))], tissue=tissue, by=self.by, **how)
        if ask.spread:
            self._prepare(slide)
        proposed = slide.propose(ask).step(slide.mask.schema, slide.pixel_mm2)
        own = self._record(slide, replace(proposed, origin=ORIGIN), ask.version)
        if all_slides and ask.spread:
            self._carry(slide_id, own, ask.reach)

    def _carry(self, slide_id: str, own: Step, reach: float) -> None:
        """Apply what the clicks on all slides say to the others of the folder, a step each."""
        corrected = [self.slide(each) for each in self.slide_ids if self.slide(each).log.active]
        clicked = [slide for slide in corrected if slide.state().clicks and slide.is_ready]
        classifier = ENGINE.learn([(slide.mask, slide.state()) for slide in clicked])
        for other in (other for other in self.slide_ids if other != slide_id):
            try:  # what cannot be done in one of them does not stop the others
                there = self.slide(other)
                self._prepare(there)
                found, version = there.apply(classifier, reach), there.log.version
                if found.followed:
                    step = found.step(there.mask.schema, there.pixel_mm2)
                    self._record(there, replace(step, origin=f"slide {slide_id}, step {own.number}"), version)
            except NtrmError as error:
                self.failures[other] = error.what

    def draw(self, path: Path, slide_id: str | None = None) -> None:
        """Name the areas of a GeoJSON file, drawn in QuPath; smaller ones lie on larger ones.

        Regions of ours that were exported again as they are change nothing, also where an area was drawn over them.
        """
        end = next((end for end in SUFFIXES if path.name.lower().endswith(end)), path.suffix)
        slide_id = slide_id or path.name[: len(path.name) - len(end)]
        if slide_id not in self.slide_ids:
            hint = did_you_mean(slide_id, self.slide_ids) or "say which slide it is with --slide"
            raise UsageError("the file does not say which slide it is about", got=path.name, hint=hint)
        slide = self.slide(slide_id)
        mask = slide.mask
        painted, counts = painted_areas(path, mask)
        self.areas.append({"slide_id": slide_id, **counts})
        indices = np.unique(painted[painted < len(mask.schema)]).tolist()
        if not indices:
            raise DataError(
                f"{path.name}: no area changes the slide",
                expected=f"areas on {slide_id}, in pixels of its full resolution, that are no regions as they are",
                hint="give the slide that they were drawn on with --slide",
            )
        for index in indices:
            step = slide.drawn(PixelSet.of_window(painted == index, 0, 0, mask.shape[1]), mask.schema.names[index])
            self._record(slide, replace(step, origin="file"))

    def go(self, action: Literal["undo", "redo"], slide_id: str) -> None:
        """Take the last step back, or do again what was taken back last."""
        slide = self.slide(slide_id)
        self._record(slide, Step(action=action, origin=ORIGIN), slide.log.version)

    def finish(self) -> None:
        """Make the corrected versions of what changed, and the tables."""
        changed = [] if self.preview else [*dict.fromkeys(change["slide_id"] for change in self.changes)]
        for slide_id in self.progress.track(changed, len(changed), "corrected"):
            self.slide(slide_id).write()
        if changed:
            tabulate_again(self.out)

    def _record(self, slide: SlideCorrections, step: Step, after: int | None = None) -> Step:
        """Write a step down that follows from a version; with a preview only follow it."""
        step = slide.record(replace(step, by=self.by), after=after, preview=self.preview)
        size = slide.mask.shape[0] * slide.mask.shape[1]
        followed = {name: PixelSet.parse(text, size).pixels * slide.pixel_mm2 for name, text in step.followed.items()}
        told = {key: getattr(step, key) for key in ("action", "tissue", "regions", "area_mm2")}
        change = {"slide_id": slide.mask.folder.name, "step": step.number, **told, "followed_mm2": followed}
        self.changes.append({**change, "of": step.of})
        return step

    def _prepare(self, slide: SlideCorrections) -> None:
        """Read the texture of a slide where it is not there, in its file, which is found by its content."""
        if slide.is_ready:
            return
        source = slide.mask.segmented[1].source or ""
        path = self._originals.get(source) if self.slides else place_of(source)
        if path is None:
            raise UsageError(
                f"the texture of {slide.mask.folder.name} has not been read yet, and its file was not found",
                got=", ".join(map(str, self.slides)) or None,
                expected="the very file that was segmented, under any name, once: its texture is kept with the results",
                hint="say where the slides are with --slides; or name whole regions with --whole-region --no-spread",
            )
        ENGINE.prepare(slide.mask, SlideInput(path, path.name), str(choose_device(self.device)), self.progress)

    @cached_property
    def _originals(self) -> dict[str, Path]:
        """Files of all slides of the folder, by their content."""
        states = (finished(self.out / slide_id) for slide_id in self.slide_ids)
        plans = [state.plan for state in states if state is not None and state.plan is not None]
        return dict(find_by_content({plan.source or "" for plan in plans}, self.slides))
