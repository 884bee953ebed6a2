"""The tour behind ``make demo`` and ``ntrm demo``: every step a newcomer would take, on embedded defaults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ntrm.core.errors import DataError
from ntrm.core.io import check_folder, foreign_files, write_json
from ntrm.core.labels import LabelSchema, Mask, Tissue
from ntrm.core.progress import Progress
from ntrm.data.check import check_dataset
from ntrm.data.dataset import Case
from ntrm.data.image_files import read_mask
from ntrm.data.layouts import open_dataset
from ntrm.data.stats import dataset_stats
from ntrm.demo.mistake import Mistake, find_mistake, mark_place, write_foreign
from ntrm.evaluation.evaluate import evaluate
from ntrm.evaluation.result import Evaluation
from ntrm.models.folders import BUNDLED
from ntrm.phantom.generate import PhantomOptions, write_phantom
from ntrm.pipeline.batch import Segmented, segment_slides
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
    _claim(out, dataset_folder)
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
    foreign = write_foreign(last, out / FOREIGN / f"{last.name}-foreign.tif")
    chosen = [case.image for case in own or [last] if case.image is not None]
    segmented = segment_slides([*chosen, foreign], out=out / "results", options=Options(maps=True), progress=progress)
    for slide in segmented.failed[:1]:
        raise DataError(f"{slide.slide_id} could not be segmented", got=slide.reason, hint="run the same command again")
    note("5/5  statistics, pictures, and where the model is wrong")
    mistake = find_mistake(segmented.out, foreign.stem, foreign, _truth(last, dataset.schema), progress)
    stats = dataset_stats(dataset, jobs=jobs, progress=progress)
    write_json(out / "stats.json", stats.as_dict())
    attention = _attends(segmented)
    more = {"scored": evaluation, "scores": scores, "by_tissue": _by_tissue(evaluation), **_slides(segmented)}
    marked = None if mistake is None else mark_place(mistake, foreign, out / "mistake.png")
    more |= {"attention": attention, "mistake": mistake, "marked": marked}
    dataset_report(page, dataset, stats, check, template="tour.html", more=more, progress=progress)
    return TourResult(
        page,
        dataset_folder,
        sections=len(dataset),
        faults=len(check.faults),
        scored=len(evaluation.sections),
        iou=evaluation.pooled.macro["iou"],
        foreign=foreign.parent,
        results=segmented.out,
        mistake=mistake,
        attention=attention,
    )


def _claim(out: Path, dataset: Path) -> None:
    """Refuse a folder of something else: its own index.html would be lost."""
    check_folder(out)
    if foreign := [path.name for path in out.iterdir()] if out.is_dir() and not dataset.is_dir() else []:
        raise foreign_files(out, "tour", foreign)


def _truth(case: Case, schema: LabelSchema) -> Mask:
    if case.mask is None:
        raise DataError(f"{case.name} has no mask", hint="run the same command again")
    return read_mask(case.mask, schema).mask


def _slides(segmented: Segmented) -> dict[str, object]:
    """Rows of the table of slides, and the picture of the first."""
    return {
        "slides": [
            (
                slide.slide_id,
                cancers_in_words(slide.cancers, slide.cancers_looked_for),
                f"{slide.row['tissue_area_mm2']:.1f}",
            )
            for slide in segmented.slides
        ],
        "overlays": {slide.slide_id: segmented.out / slide.slide_id / OVERLAY for slide in segmented.slides[:1]},
    }


def _attends(segmented: Segmented) -> bool:
    """Whether the network left attention in the results."""
    networks = (read_slide(segmented.out / slide.slide_id).network for slide in segmented.slides)
    return any(network is not None and network.attention for network in networks)


def _by_tissue(evaluation: Evaluation) -> list[tuple[Tissue, str, str]]:
    scores = evaluation.pooled.per_class
    return [
        (tissue, _score(iou), _score(dice))
        for tissue, iou, dice in zip(evaluation.pooled.schema.tissues, scores["iou"], scores["dice"], strict=True)
    ]


def _score(value: float) -> str:
    return "–" if value != value else f"{value:.3f}"  # noqa: PLR0124 (NaN: a tissue that is not there)
