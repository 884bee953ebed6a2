"""QuPath annotations to a ``plain`` dataset: annotated areas become their class, all the rest is ignore."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from ntrm.annotations.pairing import Pair, SlideFacts, case_name, check_names, class_index, pair_files
from ntrm.annotations.qupath import Annotation, count_clipped, read_annotations
from ntrm.annotations.rasterise import AnnotationGrid, paint, read_grid
from ntrm.annotations.record import ImportedDataset, ImportedSlide, ImportOptions, input_sha256
from ntrm.core.errors import DataError, NtrmError, RefusedError, first_names
from ntrm.core.io import whole_file
from ntrm.core.labels import IGNORE, SKIN, LabelSchema
from ntrm.core.mpp import TOLERANCE, Resolution
from ntrm.core.progress import SILENT, Progress
from ntrm.data.image_files import write_indexed_mask
from ntrm.data.split import SplitRow, split_by_patient
from ntrm.slides.grid import credible_resolution
from ntrm.slides.isolated import open_isolated
from ntrm.slides.readers.reader import SlideInfo, SlideReader

MAX_PIXELS = 100_000_000  # Largest image written: an annotated box of 5 × 5 mm at 0.5 µm/px just fits.
MARGIN_UM = 200.0  # Surroundings kept around the annotated box: a network judges a tissue by its neighbours
NO_PIXEL = "areas smaller than a pixel of the mask"


class ImportFailure(NamedTuple):
    """A pair that could not be imported, and why."""

    slide: str
    annotations: str
    error: NtrmError


@dataclass(frozen=True)
class ImportReport:
    """What an import did."""

    out: Path
    imported: tuple[ImportedSlide, ...]
    reused: tuple[str, ...]  # Names of the cases that an earlier run had already written from the same inputs
    failures: tuple[ImportFailure, ...]
    slides_without_annotations: tuple[str, ...]
    annotations_without_slide: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0 all well; 3 nothing imported because of a refusal; 1 something failed or annotations found no slide."""
        if not self.imported and any(isinstance(failure.error, RefusedError) for failure in self.failures):
            return RefusedError.exit_code
        return 1 if self.failures or self.annotations_without_slide else 0

    def as_dict(self) -> dict[str, Any]:
        """The fields as a JSON document."""
        failures = [{"slide": slide, "annotations": name, **error.texts()} for slide, name, error in self.failures]
        return asdict(replace(self, failures=())) | {"out": str(self.out), "failures": failures}


def import_annotations(
    slides: Path,
    annotations: Path,
    out: Path,
    *,
    schema: LabelSchema = SKIN,
    names: Mapping[str, str] | None = None,
    facts: Mapping[str, SlideFacts] | None = None,
    mpp: float | None = None,
    target_mpp: float | None = None,
    margin_um: float = MARGIN_UM,
    progress: Progress = SILENT,
    open_slide: Callable[[Path], SlideReader] = open_isolated,
) -> ImportReport:
    """Write slides and their QuPath annotations as a ``plain`` dataset, one case per slide.

    Cases that are complete from the same inputs and options are kept, so that an interrupted import continues where it
    stopped; one slide's failure does not stop the others, and takes out the case that was made from it before.
    ``facts`` has patient, split and µm/px by case name. ``open_slide`` is for files that need no isolation.
    """
    options = ImportOptions(schema, check_names(names or {}, schema), mpp, target_mpp, margin_um)
    pairing, given = pair_files(slides, annotations), facts or {}
    told = {pair.name: given.get(pair.name.lower(), SlideFacts()) for pair in pairing.pairs}
    slides_there = (*(pair.slide for pair in pairing.pairs), *pairing.slides_alone)
    if strange := sorted({*given} - {case_name(slide).lower() for slide in slides_there}):
        hint = "correct the names in its column slide, or remove the rows"
        raise DataError("rows of the table of slides match no slide", got=first_names(strange), hint=hint)
    unknown = [name for name in told if name.lower() not in given]
    if unknown and any(fact.patient for fact in given.values()):
        raise DataError(
            "the patients of some slides are known, those of others are not",
            got=f"no patient told of {first_names(unknown)}",
            expected="a row for every slide, or a patient could be in two splits",
            hint="give --cases with a column patient, empty for a patient of its own",
        )
    split_by_patient(SplitRow(name, fact.patient or name, fact.split) for name, fact in told.items() if fact.split)
    imported, reused, failures = [], [], []
    with ImportedDataset.opened(out, options, [*told]) as dataset:
        for pair in progress.track(pairing.pairs, len(pairing.pairs), "importing"):
            fact = told[pair.name]
            try:
                before = dataset.complete(pair, fact)
                case = before or _import_pair(pair, fact, dataset, open_slide)
            except NtrmError as error:
                # Errors of readers name no file; here the user knows the slide by its name.
                named = pair.slide.name in error.what or pair.annotations.name in error.what
                said = error if named else error.prefixed(pair.slide.name)
                failures.append(ImportFailure(pair.slide.name, pair.annotations.name, said))
                dataset.remove(pair.name)
                continue
            dataset.add(case)
            imported.append(case)
            reused.extend([case.name] if before else [])
    return ImportReport(
        out=out,
        imported=tuple(imported),
        reused=tuple(reused),
        failures=tuple(failures),
        slides_without_annotations=tuple(path.name for path in pairing.slides_alone),
        annotations_without_slide=tuple(path.name for path in pairing.annotations_alone),
    )


def _import_pair(
    pair: Pair, facts: SlideFacts, dataset: ImportedDataset, open_slide: Callable[[Path], SlideReader]
) -> ImportedSlide:
    """Read one slide and its annotations, write image and mask."""
    options = dataset.options
    annotated = read_annotations(pair.annotations)
    with closing(open_slide(pair.slide)) as reader:
        native = _resolution(reader.info, facts.mpp or options.mpp)
        classified = _classify(annotated.annotations, options)
        size = reader.info.area[2:]
        clipped = count_clipped([a for a, _ in classified], size, pair.annotations.name, pair.slide.name)
        grid = _grid([a for a, value in classified if value != IGNORE], reader.info, native, options)
        mask, overlaps, covered = paint(classified, grid)
        if (mask == IGNORE).all():
            raise _no_tissue("areas under others to ignore" if overlaps else NO_PIXEL)
        image = read_grid(reader, grid)
    with whole_file(dataset.image(pair.name)) as partial:
        Image.fromarray(image).save(partial, format="PNG", compress_level=6)
    write_indexed_mask(dataset.mask(pair.name), mask, options.schema)
    names = {**{t.index: t.name for t in options.schema.tissues}, IGNORE: "ignore"}
    pixels = np.bincount(mask.ravel(), minlength=256).tolist()
    return ImportedSlide(
        name=pair.name,
        slide=pair.slide.name,
        annotations=pair.annotations.name,
        slide_sha256=input_sha256(pair.slide),
        annotations_sha256=input_sha256(pair.annotations),
        given_mpp=facts.mpp,
        group=facts.patient or pair.name,
        split=facts.split,
        mpp=round(Resolution(native.x * grid.step_x, native.y * grid.step_y).mean, 6),
        slide_mpp=(native.x, native.y),
        slide_area=reader.info.area,
        counts={
            "used": len(classified) - covered.count(0),
            "clipped": clipped,
            "no_pixel": covered.count(0),
            "unclassified": len(annotated.annotations) - len(classified),
            **annotated.counts,
        },
        pixels={name: pixels[index] for index, name in names.items()},
        overlaps={f"{names[top]} over {names[below]}": n for (below, top), n in sorted(overlaps.items())},
        **asdict(grid),
    )


def _resolution(info: SlideInfo, given: float | None) -> Resolution:
    """µm/px of the slide: the user's, as long as the file does not contradict it."""
    if given is None:
        return credible_resolution(info)
    native, stated = Resolution.square(given), info.resolution
    if stated is not None and not stated.same_as(native):
        raise RefusedError(
            "the µm per pixel given contradicts the file's",
            got=f"{given:g} µm/px given",
            expected=f"{stated} in the file, within {TOLERANCE:.0%}",
            hint="leave --mpp out to use the file's; if the file is wrong, save the image without a resolution, as PNG",
        )
    return native


def _classify(annotations: tuple[Annotation, ...], options: ImportOptions) -> list[tuple[Annotation, int]]:
    """Annotations that have a class, with its mask value; an unknown class is an error."""
    named = [(a, class_index(a.name, options.schema, options.names)) for a in annotations if a.name]
    unknown = sorted({a.name for a, value in named if value is None})
    if unknown:
        raise DataError(
            "unknown or ambiguous classes",
            got=", ".join(unknown),
            expected=", ".join(f"{t.name} ({t.title})" for t in options.schema.tissues),
            hint="rename them in QuPath, or give --map with a CSV of columns from,to (an empty 'to' means ignore)",
        )
    known = [(a, value) for a, value in named if value is not None]
    if all(value == IGNORE for _, value in known):
        raise _no_tissue(f"{len(annotations) - len(known)} areas without a class, {len(known)} to ignore")
    return known


def _no_tissue(got: str) -> DataError:
    hint = "give at least one annotation the class of a tissue in QuPath, and export again"
    return DataError("no annotated tissue", got=got, hint=hint)


def _grid(tissue: list[Annotation], info: SlideInfo, native: Resolution, options: ImportOptions) -> AnnotationGrid:
    """The grid to write: the box around the annotated tissue and its margin, in full pixels inside the slide."""
    target, coarsest, step_x, step_y = options.target_mpp, max(native.x, native.y), 1.0, 1.0
    if target is not None or not math.isclose(native.x, native.y, rel_tol=0.01):
        # Full-resolution pixels per written pixel; written pixels are square.
        target = target or coarsest
        step_x, step_y = target / native.x, target / native.y
    if target is not None and target < (1 - TOLERANCE) * coarsest:
        raise RefusedError(
            "it is coarser than the resolution to write",
            got=native,
            expected=f"{target:g} µm/px or finer",
            hint="give a larger --target-mpp",
        )
    bounds = np.array([a.bounds for a in tissue])
    low, high = bounds[:, :2].min(axis=0), bounds[:, 2:].max(axis=0)
    left, width = _span(low[0], high[0], options.margin_um / native.x, step_x, info.area[2])
    top, height = _span(low[1], high[1], options.margin_um / native.y, step_y, info.area[3])
    if width * height > MAX_PIXELS:
        fits = native.mean * math.sqrt(step_x * step_y * width * height / MAX_PIXELS)
        raise RefusedError(
            "the annotated box is too large at this resolution",
            got=f"{width} × {height} pixels",
            expected=f"at most {MAX_PIXELS:,} pixels",
            hint=f"give --target-mpp of {math.ceil(fits * 100) / 100:g} or more",
        )
    if min(width, height) < 1:
        raise _no_tissue(NO_PIXEL)
    return AnnotationGrid(left, top, step_x, step_y, width, height)


def _span(low: float, high: float, margin: float, step: float, size: int) -> tuple[int, int]:
    """Start and number of full steps that cover low to high and the margin, as far as the slide goes."""
    start = math.floor(max(low - margin, 0))
    count = math.ceil((min(high + margin, size) - start) / step)
    return start, min(count, math.floor((size - start) / step + 1e-9))
