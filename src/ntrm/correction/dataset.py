"""Corrected slides as a dataset to train on: the slides' images, and their corrected masks, or less of them.

By default the whole corrected mask counts: what a person left as it is counts as right. On request only pixels that a
person named, confirmed or drew are of their class, with or without what followed, and all others are ignored.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ntrm.core.csv_text import rows_text
from ntrm.core.errors import DataError, RefusedError, UsageError, choices_error
from ntrm.core.io import read_object, sha256_of, whole_file, write_json, write_text
from ntrm.core.labels import IGNORE, LabelSchema, Mask
from ntrm.core.locks import holding
from ntrm.core.mpp import Resolution
from ntrm.core.progress import SILENT, Progress
from ntrm.correction.log import ALL, FOLLOWED, TRUSTS, Log, check_mask, read_log
from ntrm.correction.mask import mask_grid, segmented
from ntrm.correction.state import State, state_of
from ntrm.data.csv_tables import nearly
from ntrm.data.dataset import SPLITS
from ntrm.data.image_files import write_image, write_indexed_mask
from ntrm.data.split import SplitRow, split_by_patient
from ntrm.data.tiles import Window
from ntrm.results.documents import AGAIN, Summary, read_summary
from ntrm.results.folder import ResultsFolder
from ntrm.results.mask_file import colours_in, labels_in, opened_mask, schema_of, titles_in
from ntrm.results.paths import CORRECTIONS
from ntrm.results.run_record import read_run
from ntrm.results.slide_state import Plan
from ntrm.slides.inputs import check_roots, find_by_content
from ntrm.wsi.isolated import open_isolated

FORMAT = "ntrm-corrected-data/1"
RECORD, LOCK = "corrections.json", ".lock"
BLOCK = 4096
"""Longest side of the areas that a slide is divided into, in pixels."""
MARGIN = 256
"""Pixels of surroundings around what counts: a network judges a tissue by its neighbours."""


@dataclass(frozen=True, eq=False)
class CorrectedSlide:
    """A slide whose log has steps that count."""

    folder: Path
    summary: Summary
    covariates: Mapping[str, str]
    plan: Plan
    log: Log

    @property
    def group(self) -> str:
        """Its patient; a slide without one is its own group."""
        return self.covariates.get("patient", self.covariates.get("group")) or self.summary.slide_id

    @property
    def split(self) -> str:
        """``train``, unless a covariate ``split`` says otherwise."""
        split = self.covariates.get("split") or "train"
        if split not in SPLITS:
            raise choices_error(f"{self.summary.slide_id}: unknown split", split, SPLITS)
        return split

    @property
    def resolution(self) -> Resolution:
        """µm/px of its mask."""
        return Resolution(*self.summary.grid.mpp)

    def record(self) -> dict[str, Any]:
        """What was trained on: which mask, and which version of its corrections."""
        steps = json.dumps([step.line() for step in self.log.steps], ensure_ascii=False).encode()
        return {
            "slide_id": self.summary.slide_id,
            "mask": "" if self.log.record is None else self.log.record.mask,
            "version": self.log.version,
            "log": hashlib.sha256(steps).hexdigest(),
            "group": self.group,
            "split": self.split,
        }


@dataclass(frozen=True)
class CorrectedResults:
    """The corrected slides of a folder of results, to train on."""

    results: Path
    """What ``ntrm segment`` wrote, with corrections."""
    slides: Path | None = None
    """Folder below which the slides' files lie."""
    trust: str = ALL
    """What counts, one of ``TRUSTS``."""

    @cached_property
    def corrected(self) -> tuple[CorrectedSlide, ...]:
        """The slides, by name."""
        return corrected_slides(self.results)

    @property
    def resolution(self) -> Resolution:
        """µm/px of their masks."""
        return self.corrected[0].resolution

    def write(self, out: Path, schema: LabelSchema | None, progress: Progress) -> dict[str, Any]:
        """Write them as a dataset, see ``write_training_data``."""
        return write_training_data(self.corrected, self.slides, out, trust=self.trust, schema=schema, progress=progress)


def corrected_slides(results: Path) -> tuple[CorrectedSlide, ...]:
    """The slides of a results folder that are corrected, by name; what was undone does not count."""
    read_run(results)
    found = [_read_slide(folder.path) for folder in ResultsFolder(results) if folder.has(CORRECTIONS)]
    corrected = tuple(slide for slide in found if slide.log.active)
    if not corrected:
        raise DataError(
            f"{results}: no slide is corrected",
            got=f"{len(found)} slides of which every correction was undone" if found else f"no {CORRECTIONS}",
            hint="correct slides in the page of `ntrm serve`, or with `ntrm correct`",
        )
    first = corrected[0]
    for slide in corrected:
        if slide.summary.classes != first.summary.classes or not slide.resolution.same_as(first.resolution):
            raise RefusedError(
                "slides of different models cannot be one dataset",
                got=f"{slide.summary.slide_id}: {slide.resolution}, {', '.join(slide.summary.classes)}",
                expected=f"{first.resolution}, {', '.join(first.summary.classes)}",
            )
    split_by_patient(SplitRow(slide.summary.slide_id, slide.group, slide.split) for slide in corrected)
    return corrected


def _read_slide(folder: Path) -> CorrectedSlide:
    log, (state, plan) = read_log(folder), segmented(folder)
    if log.record is not None:
        check_mask(folder, log.record)
    # Covariates that mean something to a training; without "patient", "group" is the patient, as in cases.csv.
    names = [name for name in state.covariates if name != "group"]
    for wrong, meant in nearly(names, ("patient", "split")).items():
        raise DataError(
            f"{folder.name}: a column of its table of slides has a name that resembles {meant}",
            got=wrong,
            expected=meant,
            hint=f"rename it in the table and segment again with it: finished slides only get the column {meant}",
        )
    return CorrectedSlide(folder, read_summary(folder), state.covariates, plan, log)


def write_training_data(
    slides: Sequence[CorrectedSlide],
    sources: Path | None,
    out: Path,
    *,
    trust: str = ALL,
    schema: LabelSchema | None = None,
    progress: Progress = SILENT,
) -> dict[str, Any]:
    """Write corrected slides as a dataset of layout ``plain``; returns the record of what it is made of.

    What is there already of the same corrections is kept, of others it is refused. An interrupted writing begins anew.
    Several processes may call this at once: the first writes.

    Args:
        slides: what ``corrected_slides`` found.
        sources: folder below which the slides' files lie, under whatever names.
        out: folder of the dataset.
        trust: one of ``TRUSTS``.
        schema: classes of a dataset that these slides are to be used with; their names must be those of the masks.
        progress: over the slides.

    """
    if trust not in TRUSTS:
        raise choices_error("unknown value of --trust", trust, TRUSTS)
    record: dict[str, Any] = {"format": FORMAT, "trust": trust, "slides": [slide.record() for slide in slides]}
    with holding(out / LOCK, wait=True):
        before = read_object(out / RECORD)
        if before:
            _check_same(out, before, record)
            return before
        files = _find_files(slides, sources)
        for name in ("Images", "Masks"):
            shutil.rmtree(out / name, ignore_errors=True)
        schema = _schema(slides[0], schema)
        with whole_file(out / "classes.csv") as partial:
            schema.write_csv(partial)
        rows = [["name", "group", "split", "mpp", "slide_sha256"]]
        for slide, entry in zip(progress.track(slides, len(slides), "slides"), record["slides"], strict=True):
            file = files[slide.plan.source]
            names, entry["pixels"] = _write_slide(slide, file, out, trust, schema)
            entry["image"] = sha256_of(file)
            facts = [slide.group, slide.split, f"{slide.resolution.mean:.6g}", entry["image"]]
            rows += [[name, *facts] for name in names]
        write_text(out / "cases.csv", rows_text(rows))
        write_json(out / RECORD, record)
    return record


def _check_same(out: Path, before: dict[str, Any], record: dict[str, Any]) -> None:
    """Refuse other corrections than those that were written before."""
    own = set(record["slides"][0])  # not what was found while it was written
    known = [{key: value for key, value in slide.items() if key in own} for slide in before.get("slides", [])]
    if (before.get("trust"), known) == (record["trust"], record["slides"]):
        return
    (got, expected) = (
        f"trust {trust}; versions " + ", ".join(f"{slide.get('slide_id')} {slide.get('version')}" for slide in slides)
        for trust, slides in ((record["trust"], record["slides"]), (before.get("trust"), known))
    )
    hint = "choose a new folder: slides were corrected since, or something else is to count"
    raise RefusedError(f"{out} was written from other corrections", got=got, expected=expected, hint=hint)


def _find_files(slides: Sequence[CorrectedSlide], sources: Path | None) -> dict[str | None, Path]:
    """The files that slides were segmented from, by their content: names may have changed, or be secret."""
    if sources is None:
        raise UsageError(
            "the slides themselves are needed",
            got="results, which hold no images to train on",
            expected="the folder of the slides that were segmented",
            hint="name it with --slides",
        )
    check_roots([sources])
    by_content: dict[str | None, Path] = dict(
        find_by_content([slide.plan.source for slide in slides if slide.plan.source is not None], [sources])
    )
    missing = [slide.summary.slide_id for slide in slides if slide.plan.source not in by_content]
    if missing:
        raise DataError(
            f"slides are not below {sources}",
            got=f"no file with the content of {', '.join(missing[:5])}{' …' if len(missing) > 5 else ''}",
            expected="the files as they were when they were segmented",
            hint="give the folder that holds all corrected slides with --slides",
        )
    return by_content


def _schema(slide: CorrectedSlide, wanted: LabelSchema | None) -> LabelSchema:
    with opened_mask(slide.folder) as stored:
        own = schema_of(slide.folder, slide.summary, colours_in(stored), titles_in(stored))
    if wanted is not None and wanted.names != own.names:
        raise RefusedError(
            "the corrected slides have other tissues than the dataset",
            got=", ".join(own.names),
            expected=", ".join(wanted.names),
            hint="train on one of them only",
        )
    return wanted or own


def _write_slide(
    slide: CorrectedSlide, file: Path, out: Path, trust: str, schema: LabelSchema
) -> tuple[list[str], dict[str, int]]:
    """Write image and mask of each area in which something counts; their names, and the pixels of each class."""
    slide_id, names, stated = slide.summary.slide_id, [], slide.plan.mpp
    shape = slide.summary.grid.height, slide.summary.grid.width
    with opened_mask(slide.folder) as stored:
        labels = labels_in(stored, shape)
    pixels = np.zeros(256, dtype=np.int64)
    # With its place, where there may be several areas, or where the id looks like such a name.
    placed = max(shape) > BLOCK or re.search(r"_[0-9]+_[0-9]+$", slide_id)
    with closing(open_isolated(file)) as reader:
        grid = mask_grid(reader, slide.summary, None if stated is None else Resolution(*stated), hint=AGAIN)
        for area, mask in known_areas(labels, state_of(slide.log, schema, shape), trust):
            names.append(f"{slide_id}_{area.top}_{area.left}" if placed else slide_id)
            image = grid.read(area.top, area.left, area.height, area.width)
            write_image(out / "Images" / f"{names[-1]}.tif", image, slide.resolution)
            write_indexed_mask(out / "Masks" / f"{names[-1]}.png", mask, schema)
            pixels += np.bincount(mask.ravel(), minlength=256)
    return names, {tissue.name: int(pixels[tissue.index]) for tissue in schema.tissues if pixels[tissue.index]}


def known_areas(labels: Mask, state: State, trust: str) -> Iterator[tuple[Window, Mask]]:
    """Windows around what counts, with surroundings, and their masks; every pixel counts in one of them."""
    height, width = labels.shape
    for top in range(0, height, BLOCK):
        targets = _targets(labels[top : top + BLOCK], state, trust, top)
        for left in range(0, width, BLOCK):
            known = targets[:, left : left + BLOCK] != IGNORE
            rows, columns = np.flatnonzero(known.any(axis=1)).tolist(), np.flatnonzero(known.any(axis=0)).tolist()
            if not rows:
                continue
            first, last, west, east = rows[0], rows[-1] + 1, columns[0], columns[-1] + 1
            y0, y1 = max(top + first - MARGIN, 0), min(top + last + MARGIN, height)
            x0, x1 = max(left + west - MARGIN, 0), min(left + east + MARGIN, width)
            # Of the surroundings nothing is known: they count in the areas of their own.
            mask = np.full((y1 - y0, x1 - x0), IGNORE, dtype=np.uint8)
            mask[top + first - y0 : top + last - y0, left + west - x0 : left + east - x0] = targets[
                first:last, left + west : left + east
            ]
            yield Window(y0, x0, y1 - y0, x1 - x0), mask


def _targets(labels: Mask, state: State, trust: str, top: int) -> Mask:
    """Rows of the corrected mask (h, W), from row ``top`` on, ignored where nothing counts."""
    painted = state.paint(labels, top)
    if trust == ALL:
        return painted
    counts = state.by_hand.rows(top, *labels.shape)
    if trust == FOLLOWED:
        counts |= state.followed.rows(top, *labels.shape)
    return np.where(counts, painted, np.uint8(IGNORE))
