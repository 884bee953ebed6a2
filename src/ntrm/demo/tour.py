"""The tour behind ``make demo`` and ``ntrm demo``: every step a newcomer would take, on embedded defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path

from ntrm.core.errors import DataError
from ntrm.core.io import check_folder, foreign_files, write_json
from ntrm.core.labels import Tissue
from ntrm.core.progress import Progress
from ntrm.data.check import check_dataset
from ntrm.data.image_files import read_mask
from ntrm.data.layouts import open_dataset
from ntrm.data.stats import dataset_stats
from ntrm.demo.mistake import Mistake, find_mistake, write_foreign
from ntrm.evaluation.evaluate import evaluate
from ntrm.evaluation.result import Evaluation
from ntrm.models.folders import BUNDLED
from ntrm.phantom.generate import PhantomOptions, write_phantom
from ntrm.pipeline.batch import segment_slides
from ntrm.pipeline.options import Options
from ntrm.report.dataset_report import dataset_report
from ntrm.results.documents import read_slide
from ntrm.results.familiarity import cancers_in_words
from ntrm.results.paths import OVERLAY

SECTIONS, SEED = 24, 1
"""Another seed than that of the sections the bundled model was trained on."""
SLIDES = 3
"""Sections of the test part that are segmented as slides of a user's would be; the last one in a foreign stain."""
FOREIGN = "foreign"
"""Folder of the section in a foreign stain."""


@dataclass(frozen=True)
class TourResult:
    """What the tour made."""

    page: Path
    dataset: Path
    sections: int
    faults: int
    scored: int
    """Sections that the bundled model was scored on."""
    iou: float
    foreign: Path
    """Folder of the section that is made to look like another laboratory's."""
    results: Path
    """What ``ntrm segment`` made of some of them: reports, polygons, tables."""
    mistake: Mistake | None
    """A region that the model has named wrongly, and what one click would do."""
    attention: bool
    """Whether the model has a relation module that attends, so that the viewer shows to what."""

    def as_dict(self) -> dict[str, object]:
        """For ``--json``."""
        return {**asdict(self), **{key: str(getattr(self, key)) for key in ("page", "dataset", "foreign", "results")}}


def tour(out: Path, *, jobs: int, progress: Progress, note: Callable[[str], None]) -> TourResult:
    """Phantom → check → the bundled model, scored and on slides → page. A tour that was interrupted goes on."""
    dataset_folder, page, scores = out / "phantom", out / "index.html", out / "evaluation"
    check_folder(out)
    # In a folder of something else, its own index.html would be lost.
    if foreign := [path.name for path in out.iterdir()] if out.is_dir() and not dataset_folder.is_dir() else []:
        raise foreign_files(out, "tour", foreign)
    note(f"1/5  drawing {SECTIONS} synthetic skin sections")
    write_phantom(dataset_folder, PhantomOptions(SECTIONS, SEED), jobs=jobs, progress=progress)
    note("2/5  checking the dataset")
    check = check_dataset(dataset_folder, jobs=jobs, progress=progress)
    note("3/5  scoring the bundled model on the test split")
    evaluation = evaluate(BUNDLED, dataset_folder, scores, jobs=1, progress=progress)
    note(f"4/5  segmenting {SLIDES} sections: masks, polygons, relations, measurements, reports")
    dataset = open_dataset(dataset_folder)
    cases = {case.name: case for case in dataset.cases}
    *own, last = (cases[section.name] for section in evaluation.sections[:SLIDES])
    changed = write_foreign(last, out / FOREIGN / f"{last.name}-foreign.tif")
    chosen = [case.image for case in own or [last] if case.image is not None]
    segmented = segment_slides([*chosen, changed], out=out / "results", options=Options(maps=True), progress=progress)
    for slide in segmented.failed[:1]:
        raise DataError(f"{slide.slide_id} could not be segmented", got=slide.reason, hint="run the same command again")
    note("5/5  statistics, pictures, and where the model is wrong")
    if last.mask is None:
        raise DataError(f"{last.name} has no mask", hint="run the same command again")
    truth = read_mask(last.mask, dataset.schema).mask
    mistake = find_mistake(segmented.out, changed.stem, changed, truth, progress)
    stats = dataset_stats(dataset, jobs=jobs, progress=progress)
    write_json(out / "stats.json", stats.as_dict())
    networks = (read_slide(segmented.out / slide.slide_id).network for slide in segmented.slides)
    attention = any(network is not None and network.attention for network in networks)
    more = {
        "scored": evaluation,
        "scores": scores,
        "by_tissue": _by_tissue(evaluation),
        "slides": [
            (
                slide.slide_id,
                cancers_in_words(slide.cancers, slide.cancers_looked_for),
                f"{slide.row['tissue_area_mm2']:.1f}",
            )
            for slide in segmented.slides
        ],
        "overlays": {slide.slide_id: segmented.out / slide.slide_id / OVERLAY for slide in segmented.slides[:1]},
        "attention": attention,
        "mistake": mistake,
    }
    dataset_report(page, dataset, stats, check, template="tour.html", more=more, progress=progress)
    return TourResult(
        page,
        dataset_folder,
        sections=len(dataset),
        faults=len(check.faults),
        scored=len(evaluation.sections),
        iou=evaluation.pooled.macro["iou"],
        foreign=changed.parent,
        results=segmented.out,
        mistake=mistake,
        attention=attention,
    )


def _by_tissue(evaluation: Evaluation) -> list[tuple[Tissue, str, str]]:
    scores, tissues = evaluation.pooled.per_class, evaluation.pooled.schema.tissues
    iou, dice = (["–" if isnan(score) else f"{score:.3f}" for score in scores[name]] for name in ("iou", "dice"))
    return [*zip(tissues, iou, dice, strict=True)]
