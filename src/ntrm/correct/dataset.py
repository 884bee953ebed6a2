"""Corrected slides as a dataset to train on: the slides' images, and their corrected masks, or less of them.

By default the whole corrected mask counts: what a person left as it is counts as right, but for what nobody has named
yet. On request only pixels that a person named, confirmed or drew are of their class, with or without what followed,
and all others are ignored.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ntrm.core.csv_text import rows_text
from ntrm.core.errors import DataError, RefusedError, UsageError, choices_error, first_names
from ntrm.core.io import holding, read_object, sha256_of, whole_file, write_json, write_text
from ntrm.core.labels import IGNORE, LabelSchema, Mask
from ntrm.core.mpp import Resolution
from ntrm.core.progress import SILENT, Progress
from ntrm.correct.log import Log, read_log
from ntrm.correct.mask import SlideMask, open_mask
from ntrm.correct.state import State, state_of
from ntrm.data.csv_tables import nearly
from ntrm.data.dataset import SPLITS
from ntrm.data.image_files import write_image, write_indexed_mask
from ntrm.data.split import SplitRow, split_by_patient
from ntrm.data.tiles import Window
from ntrm.results.folder import ResultsFolder
from ntrm.results.manifest import read_run
from ntrm.results.paths import CORRECTIONS
from ntrm.slides.inputs import check_roots, find_by_content
from ntrm.slides.isolated import open_isolated

RECORD, LOCK = "corrections.json", ".lock"
TRUSTS = HAND, FOLLOWED, ALL = ("hand", "followed", "all")
"""What counts: what a person named or drew; also what followed from it; the whole corrected mask."""
BLOCK = 4096  # Longest side of the areas that a slide is divided into, in pixels
MARGIN = 256  # Pixels of surroundings around what counts: a network judges a tissue by its neighbours


@dataclass(frozen=True, eq=False)
class CorrectedSlide:
    """A slide whose log has steps that count."""

    mask: SlideMask
    log: Log

    @property
    def slide_id(self) -> str:
        """Name of its folder."""
        return self.mask.summary.slide_id

    @property
    def source(self) -> str | None:
        """Fingerprint of the file that was segmented."""
        return self.mask.segmented[1].source

    @property
    def group(self) -> str:
        """Its patient; a slide without one is its own group."""
        covariates = self.mask.segmented[0].covariates
        return covariates.get("patient", covariates.get("group")) or self.slide_id

    @property
    def split(self) -> str:
        """``train``, unless a covariate ``split`` says otherwise."""
        split = self.mask.segmented[0].covariates.get("split") or "train"
        if split not in SPLITS:
            raise choices_error(f"{self.slide_id}: unknown split", split, SPLITS)
        return split

    def record(self) -> dict[str, Any]:
        """What was trained on: which mask, and which version of its corrections."""
        steps = json.dumps([asdict(step) for step in self.log.steps], ensure_ascii=False).encode()
        return {
            "slide_id": self.slide_id,
            "mask": self.mask.record.mask,
            "version": self.log.version,
            "log": hashlib.sha256(steps).hexdigest(),
            "group": self.group,
            "split": self.split,
        }


@dataclass(frozen=True)
class CorrectedResults:
    """The corrected slides of a folder of results, to train on."""

    results: Path  # What ``ntrm segment`` wrote, with corrections
    slides: Path | None = None  # Folder below which the slides' files lie, under whatever names
    trust: str = ALL  # What counts, one of ``TRUSTS``

    def __post_init__(self) -> None:
        if self.trust not in TRUSTS:
            raise choices_error("unknown value of --trust", self.trust, TRUSTS)

    @cached_property
    def corrected(self) -> tuple[CorrectedSlide, ...]:
        """The slides, by name; what was undone does not count."""
        read_run(self.results)
        found = [_read_slide(folder.path) for folder in ResultsFolder(self.results) if folder.has(CORRECTIONS)]
        corrected = tuple(slide for slide in found if slide.log.active)
        if not corrected:
            raise DataError(
                f"{self.results}: no slide is corrected",
                got=f"{len(found)} slides of which every correction was undone" if found else f"no {CORRECTIONS}",
                hint="correct slides in the page of `ntrm serve`, or with `ntrm correct`",
            )
        (one, classes), *others = [(slide.mask.resolution, slide.mask.schema.names) for slide in corrected]
        if any(names != classes or not resolution.same_as(one) for resolution, names in others):
            every = {f"{resolution}, {', '.join(names)}" for resolution, names in [(one, classes), *others]}
            raise RefusedError("slides of different models cannot be one dataset", got="; ".join(sorted(every)))
        split_by_patient(SplitRow(slide.slide_id, slide.group, slide.split) for slide in corrected)
        return corrected

    @property
    def resolution(self) -> Resolution:
        """µm/px of their masks."""
        return self.corrected[0].mask.resolution

    def write(self, out: Path, schema: LabelSchema | None = None, progress: Progress = SILENT) -> dict[str, Any]:
        """Write them as a dataset of layout ``plain``; returns the record of what it is made of.

        What is there already of the same corrections is kept, of others it is refused. An interrupted writing begins
        anew. Several processes may call this at once: the first writes. ``schema`` is that of a dataset that these
        slides are to be used with; its names must be those of the masks.
        """
        slides, own = self.corrected, self.corrected[0].mask.schema.without_unnamed()
        record: dict[str, Any] = {"trust": self.trust, "slides": [each.record() for each in slides]}
        with holding(out / LOCK, wait=True):
            before = read_object(out / RECORD)
            if before:
                _check_same(out, before, record)
                return before
            files = self._find_files()
            for name in ("Images", "Masks"):
                shutil.rmtree(out / name, ignore_errors=True)
            if schema is not None and schema.names != own.names:
                raise RefusedError(
                    "the corrected slides have other tissues than the dataset",
                    got=", ".join(own.names),
                    expected=", ".join(schema.names),
                    hint="train on one of them only",
                )
            with whole_file(out / "classes.csv") as partial:
                (schema or own).write_csv(partial)
            rows = [["name", "group", "split", "mpp", "slide_sha256"]]
            for slide, entry in zip(progress.track(slides, len(slides), "slides"), record["slides"], strict=True):
                file = files[slide.source]
                names, entry["pixels"] = _write_slide(slide, file, out, self.trust, schema or own)
                entry["image"] = sha256_of(file)
                facts = [slide.group, slide.split, f"{slide.mask.resolution.mean:.6g}", entry["image"]]
                rows += [[name, *facts] for name in names]
            write_text(out / "cases.csv", rows_text(rows))
            write_json(out / RECORD, record)
        return record

    def _find_files(self) -> dict[str | None, Path]:
        """The files that slides were segmented from, by their content: names may have changed, or be secret."""
        if self.slides is None:
            raise UsageError(
                "the slides themselves are needed",
                got="results, which hold no images to train on",
                expected="the folder of the slides that were segmented",
                hint="name it with --slides",
            )
        check_roots([self.slides])
        wanted = [slide.source for slide in self.corrected if slide.source is not None]
        found: dict[str | None, Path] = dict(find_by_content(wanted, [self.slides]))
        missing = [slide.slide_id for slide in self.corrected if slide.source not in found]
        if missing:
            raise DataError(
                f"slides are not below {self.slides}",
                got=f"no file with the content of {first_names(missing)}",
                expected="the files as they were when they were segmented",
                hint="give the folder that holds all corrected slides with --slides",
            )
        return found


def _read_slide(folder: Path) -> CorrectedSlide:
    mask = open_mask(folder)
    # Covariates that mean something to a training; without "patient", "group" is the patient, as in cases.csv.
    names = [name for name in mask.segmented[0].covariates if name != "group"]
    for wrong, meant in nearly(names, ("patient", "split")).items():
        raise DataError(
            f"{folder.name}: a column of its table of slides has a name that resembles {meant}",
            got=wrong,
            expected=meant,
            hint=f"rename it in the table and segment again with it: finished slides only get the column {meant}",
        )
    return CorrectedSlide(mask, read_log(folder).check(mask.record))


def _check_same(out: Path, before: dict[str, Any], record: dict[str, Any]) -> None:
    """Refuse other corrections than those that were written before."""
    own = set(record["slides"][0])  # not what was found while it was written
    known = [{key: value for key, value in slide.items() if key in own} for slide in before.get("slides", [])]
    if (before.get("trust"), known) == (record["trust"], record["slides"]):
        return

    def told(record: dict[str, Any]) -> str:
        versions = (f"{slide.get('slide_id')} {slide.get('version')}" for slide in record.get("slides", []))
        return f"trust {record.get('trust')}; versions {', '.join(versions)}"

    hint = "choose a new folder: slides were corrected since, or something else is to count"
    raise RefusedError(f"{out} was written from other corrections", got=told(record), expected=told(before), hint=hint)


def _write_slide(
    slide: CorrectedSlide, file: Path, out: Path, trust: str, schema: LabelSchema
) -> tuple[list[str], dict[str, int]]:
    """Write image and mask of each area in which something counts; their names, and the pixels of each class."""
    names, mask = [], slide.mask
    pixels = np.zeros(256, dtype=np.int64)
    renumbered = schema.remap_table(mask.schema, {name: "" for name in (mask.schema.unnamed,) if name})
    # With its place, where there may be several areas, or where the id looks like such a name.
    placed = max(mask.shape) > BLOCK or re.search(r"_[0-9]+_[0-9]+$", slide.slide_id)
    with closing(open_isolated(file)) as reader:
        grid = mask.grid(reader)
        for area, known in known_areas(mask.labels(), state_of(slide.log, mask.schema, mask.shape), trust):
            names.append(f"{slide.slide_id}_{area.top}_{area.left}" if placed else slide.slide_id)
            image = grid.read(area.top, area.left, area.height, area.width)
            write_image(out / "Images" / f"{names[-1]}.tif", image, mask.resolution)
            target = renumbered[known]
            write_indexed_mask(out / "Masks" / f"{names[-1]}.png", target, schema)
            pixels += np.bincount(target.ravel(), minlength=256)
    return names, {tissue.name: int(pixels[tissue.index]) for tissue in schema.tissues if pixels[tissue.index]}


def known_areas(labels: Mask, state: State, trust: str) -> Iterator[tuple[Window, Mask]]:
    """Windows around what counts, with surroundings, and their masks; every pixel counts in one of them."""
    height, width = labels.shape
    for top in range(0, height, BLOCK):
        block = labels[top : top + BLOCK]
        targets = state.paint(block, top)
        if trust != ALL:
            counts = state.by_hand.rows(top, *block.shape)
            if trust == FOLLOWED:
                counts |= state.followed.rows(top, *block.shape)
            targets[~counts] = IGNORE
        if state.schema.unnamed_index is not None:
            targets[targets == state.schema.unnamed_index] = IGNORE
        for left in range(0, width, BLOCK):
            known = targets[:, left : left + BLOCK] != IGNORE
            if not known.any():
                continue
            (first, last), (west, east) = (np.flatnonzero(known.any(axis=axis))[[0, -1]] + [0, 1] for axis in (1, 0))
            y0, y1 = max(top + first - MARGIN, 0), min(top + last + MARGIN, height)
            x0, x1 = max(left + west - MARGIN, 0), min(left + east + MARGIN, width)
            # Of the surroundings nothing is known: they count in the areas of their own.
            mask = np.full((y1 - y0, x1 - x0), IGNORE, dtype=np.uint8)
            here = np.s_[top + first - y0 : top + last - y0, left + west - x0 : left + east - x0]
            mask[here] = targets[first:last, left + west : left + east]
            yield Window(int(y0), int(x0), int(y1 - y0), int(x1 - x0)), mask
