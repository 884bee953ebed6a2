"""Corrected slides as a dataset to train on: the slides' images, and their corrected masks, or less of them.

By default the whole corrected mask counts: what a person left as it is counts as right. On request only pixels that a
person named, confirmed or drew are of their class, with or without what followed, and all others are ignored.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
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
from ntrm.correction.mask import mask_grid
from ntrm.correction.state import State, state_of
from ntrm.data.csv_tables import nearly
from ntrm.data.dataset import SPLITS
from ntrm.data.image_files import write_image, write_indexed_mask
from ntrm.data.split_file import SplitRow, split_by_patient
from ntrm.data.tiles import Window
from ntrm.results.documents import AGAIN, Summary, read_summary
from ntrm.results.folder import ResultsFolder
from ntrm.results.mask_file import colours_in, labels_in, opened_mask, schema_of, titles_in
from ntrm.results.paths import CORRECTIONS
from ntrm.results.run_record import read_run
from ntrm.results.slide_state import SlideState, finished
from ntrm.slides.inputs import check_roots, find_by_content
from ntrm.wsi.isolated import open_isolated

FORMAT = "ntrm-corrected-data/1"
RECORD, LOCK = "corrections.json", ".lock"
BLOCK = 4096
"""Longest side of the areas that a slide is divided into, in pixels."""
MARGIN = 256
"""Pixels of surroundings around what counts: a network judges a tissue by its neighbours."""
COVARIATES = ("patient", "split")
"""Covariates that mean something to a training; without ``patient``, ``group`` is the patient, as in cases.csv."""


@dataclass(frozen=True, eq=False)
class CorrectedSlide:
    """A slide whose log has steps that count."""

    folder: Path
    summary: Summary
    state: SlideState
    log: Log

    @property
    def group(self) -> str:
        """Its patient; a slide without one is its own group."""
        covariates = self.state.covariates
        return covariates.get("patient", covariates.get("group")) or self.summary.slide_id

    @property
    def split(self) -> str:
        """``train``, unless a covariate ``split`` says otherwise."""
        split = self.state.covariates.get("split") or "train"
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
    _check_alike(corrected)
    split_by_patient(SplitRow(slide.summary.slide_id, slide.group, slide.split) for slide in corrected)
    return corrected


def _read_slide(folder: Path) -> CorrectedSlide:
    log, state = read_log(folder), finished(folder)
    if state is None or state.plan is None:
        raise DataError(f"{folder.name} was not segmented completely", hint=AGAIN)
    if log.record is not None:
        check_mask(folder, log.record)
    _check_covariates(folder.name, state.covariates)
    return CorrectedSlide(folder, read_summary(folder), state, log)


def _check_covariates(slide_id: str, names: Iterable[str]) -> None:
    wrong, meant = next(iter(nearly([name for name in names if name != "group"], COVARIATES).items()), ("", ""))
    if wrong:
        raise DataError(
            f"{slide_id}: a column of its table of slides has a name that resembles {meant}",
            got=wrong,
            expected=meant,
            hint=f"rename it in the table and segment again with it: finished slides only get the column {meant}",
        )


def _check_alike(slides: Sequence[CorrectedSlide]) -> None:
    first = slides[0]
    for slide in slides:
        same = slide.summary.classes == first.summary.classes and slide.resolution.same_as(first.resolution)
        if not same:
            raise RefusedError(
                "slides of different models cannot be one dataset",
                got=f"{slide.summary.slide_id}: {slide.resolution}, {', '.join(slide.summary.classes)}",
                expected=f"{first.resolution}, {', '.join(first.summary.classes)}",
            )


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
        rows: list[list[str]] = []
        for slide, entry in zip(progress.track(slides, len(slides), "slides"), record["slides"], strict=True):
            file = files[slide.folder]
            names, entry["pixels"] = _write_slide(slide, file, out, trust, schema)
            entry["image"] = sha256_of(file)
            facts = [slide.group, slide.split, f"{slide.resolution.mean:.6g}", entry["image"]]
            rows += [[name, *facts] for name in names]
        write_text(out / "cases.csv", rows_text([["name", "group", "split", "mpp", "slide_sha256"], *rows]))
        write_json(out / RECORD, record)
    return record


def _check_same(out: Path, before: dict[str, Any], record: dict[str, Any]) -> None:
    """Refuse other corrections than those that were written before."""
    own = set(record["slides"][0])  # not what was found while it was written
    known = [{key: value for key, value in slide.items() if key in own} for slide in before.get("slides", [])]
    if (before.get("trust"), known) == (record["trust"], record["slides"]):
        return
    raise RefusedError(
        f"{out} was written from other corrections",
        got=_versions(record["trust"], record["slides"]),
        expected=_versions(before.get("trust"), known),
        hint="choose a new folder: slides were corrected since, or something else is to count",
    )


def _versions(trust: str | None, slides: Sequence[dict[str, Any]]) -> str:
    versions = ", ".join(f"{slide.get('slide_id')} {slide.get('version')}" for slide in slides)
    return f"trust {trust}; versions {versions}"


def _find_files(slides: Sequence[CorrectedSlide], sources: Path | None) -> dict[Path, Path]:
    """The files that slides were segmented from, by their content: names may have changed, or be secret."""
    if sources is None:
        raise UsageError(
            "the slides themselves are needed",
            got="results, which hold no images to train on",
            expected="the folder of the slides that were segmented",
            hint="name it with --slides",
        )
    check_roots([sources])
    wanted = [source for slide in slides if (source := _source(slide)) is not None]
    by_content: dict[str | None, Path] = dict(find_by_content(wanted, [sources]))
    missing = [slide.summary.slide_id for slide in slides if _source(slide) not in by_content]
    if missing:
        raise DataError(
            f"slides are not below {sources}",
            got=f"no file with the content of {', '.join(missing[:5])}{' …' if len(missing) > 5 else ''}",
            expected="the files as they were when they were segmented",
            hint="give the folder that holds all corrected slides with --slides",
        )
    return {slide.folder: by_content[_source(slide)] for slide in slides}


def _source(slide: CorrectedSlide) -> str | None:
    return None if slide.state.plan is None else slide.state.plan.source


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
    grid_record, names = slide.summary.grid, []
    shape = grid_record.height, grid_record.width
    corrections = state_of(slide.log, schema, shape)
    with opened_mask(slide.folder) as stored:
        labels = labels_in(stored, shape)
    pixels = np.zeros(256, dtype=np.int64)
    stated = slide.state.plan.mpp if slide.state.plan is not None else None
    with closing(open_isolated(file)) as reader:
        grid = mask_grid(reader, slide.summary, None if stated is None else Resolution(*stated), hint=AGAIN)
        for area, mask in known_areas(labels, corrections, trust):
            name = _area_name(slide.summary.slide_id, area, shape)
            image = grid.read(area.top, area.left, area.height, area.width)
            write_image(out / "Images" / f"{name}.tif", image, slide.resolution)
            write_indexed_mask(out / "Masks" / f"{name}.png", mask, schema)
            pixels += np.bincount(mask.ravel(), minlength=256)
            names.append(name)
    return names, {tissue.name: int(pixels[tissue.index]) for tissue in schema.tissues if pixels[tissue.index]}


def _area_name(slide_id: str, area: Window, shape: tuple[int, int]) -> str:
    """Of an area of a slide: with its place where there may be several, or where the id looks like such a name."""
    placed = max(shape) > BLOCK or re.search(r"_[0-9]+_[0-9]+$", slide_id)
    return f"{slide_id}_{area.top}_{area.left}" if placed else slide_id


def known_areas(labels: Mask, corrections: State, trust: str) -> Iterator[tuple[Window, Mask]]:
    """Windows around what counts, with surroundings, and their masks; every pixel counts in one of them."""
    height, width = labels.shape
    for top in range(0, height, BLOCK):
        targets = _targets(labels[top : top + BLOCK], corrections, trust, top)
        for left in range(0, width, BLOCK):
            block = targets[:, left : left + BLOCK]
            rows, columns = (np.flatnonzero((block != IGNORE).any(axis=axis)) for axis in (1, 0))
            if len(rows):
                bounds = top + rows[0], top + rows[-1] + 1, left + columns[0], left + columns[-1] + 1
                yield _with_margin(block, top, left, bounds, labels.shape)


def _targets(labels: Mask, corrections: State, trust: str, top: int) -> Mask:
    """Rows of the corrected mask (h, W), from row ``top`` on, ignored where nothing counts."""
    painted = corrections.paint(labels, top)
    if trust == ALL:
        return painted
    counts = corrections.by_hand.rows(top, *labels.shape)
    if trust == FOLLOWED:
        counts |= corrections.followed.rows(top, *labels.shape)
    return np.where(counts, painted, np.uint8(IGNORE))


def _with_margin(
    block: Mask, top: int, left: int, bounds: Sequence[int], shape: tuple[int, int]
) -> tuple[Window, Mask]:
    """The window around ``bounds`` (top, bottom, left, right) and its mask, of which only the block is known."""
    first, last, west, east = (int(bound) for bound in bounds)
    y0, y1 = max(first - MARGIN, 0), min(last + MARGIN, shape[0])
    x0, x1 = max(west - MARGIN, 0), min(east + MARGIN, shape[1])
    mask = np.full((y1 - y0, x1 - x0), IGNORE, dtype=np.uint8)
    mask[first - y0 : last - y0, west - x0 : east - x0] = block[first - top : last - top, west - left : east - left]
    return Window(y0, x0, y1 - y0, x1 - x0), mask
