"""The tour behind ``ntrm demo``: every step a newcomer would take, on embedded defaults.

It ends with a region that the bundled model has named wrongly, and what one click there would do. The model is used to
sections like the drawn ones, so one of them is taken to another laboratory: its stain and its scanner's focus are
changed, and everything says so. Its truth is known, so that errors can be looked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ntrm.core.errors import DataError
from ntrm.core.io import check_folder, foreign_files, write_json
from ntrm.core.labels import IGNORE, Mask
from ntrm.core.mpp import Resolution
from ntrm.core.progress import SILENT, Progress
from ntrm.correct.ask import Name
from ntrm.correct.slide import SlideCorrections
from ntrm.data.check import check_dataset
from ntrm.data.image_files import read_image, read_mask, write_image
from ntrm.data.layouts import open_dataset
from ntrm.data.stats import dataset_stats
from ntrm.evaluation.evaluate import evaluate
from ntrm.evaluation.robustness import DEGRADATIONS
from ntrm.metrics.confusion import confusion
from ntrm.metrics.overlap import overlap
from ntrm.models.folders import BUNDLED
from ntrm.phantom.generate import PhantomOptions, write_phantom
from ntrm.report.dataset_report import dataset_report
from ntrm.results.familiarity import cancers_in_words
from ntrm.results.paths import INDEX, OVERLAY
from ntrm.segment.batch import segment_slides
from ntrm.segment.options import Options
from ntrm.slides.inputs import SlideInput

SECTIONS, SEED = 24, 1  # Another seed than that of the sections the bundled model was trained on
SLIDES = 3
"""Sections of the test part that are segmented as slides of a user's would be; the last one in a foreign stain."""


@dataclass(frozen=True)
class Mistake:
    """A wrong region of a slide, and what one click would do."""

    slide_id: str
    x: int  # Of a place inside, in pixels of the mask
    y: int
    called: str  # What the network says, in words
    tissue: str  # What it is: short name, and in words
    title: str
    area_mm2: float
    changed_mm2: float  # That one click there would change
    before: float  # Mean IoU of the slide, and once the click is accepted
    after: float

    def sentences(self) -> tuple[str, str]:
        """Where it is and how it is named; what that would change."""
        return (
            f"a wrong region of {self.slide_id}: at {self.x}, {self.y} labelled {self.called}, but it is {self.title}. "
            f"In the viewer press e, click there, choose {self.tissue}, then Enter",
            f"one click would change {self.changed_mm2:.2f} mm²: "
            f"mean IoU of the slide {self.before:.3f} → {self.after:.3f}",
        )


RESULTS, DATASET, FOREIGN = "results", "phantom", "foreign"  # Folders of the tour


def tour(
    out: Path, *, jobs: int, progress: Progress, note: Callable[[str], None]
) -> tuple[dict[str, object], list[str]]:
    """Phantom → check → the bundled model, scored and on slides → page: what to tell programs, and people.

    A tour that was interrupted goes on.
    """
    dataset_folder, page, scores = out / DATASET, out / "index.html", out / "evaluation"
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
    if last.image is None or last.mask is None or last.resolution is None:
        raise DataError(f"{last.name} has no image, mask or µm/px", hint="run the same command again")
    changed = write_foreign(last.image, last.resolution, out / FOREIGN / f"{last.name}-foreign.tif")
    chosen = [case.image for case in own or [last] if case.image is not None]
    segmented = segment_slides([*chosen, changed], out=out / RESULTS, options=Options(maps=True), progress=progress)
    for slide in segmented.failed[:1]:
        raise DataError(f"{slide.slide_id} could not be segmented", got=slide.reason, hint="run the same command again")
    note("5/5  statistics, pictures, and where the model is wrong")
    truth = read_mask(last.mask, dataset.schema).mask
    mistake = find_mistake(segmented.out, changed.stem, changed, truth, progress)
    stats = dataset_stats(dataset, jobs=jobs, progress=progress)
    write_json(out / "stats.json", stats.as_dict())
    slides = []
    for slide in segmented.slides:
        cancers = cancers_in_words(slide.cancers, slide.cancers_looked_for)
        slides.append((slide.slide_id, cancers, f"{slide.row['tissue_area_mm2']:.1f}"))
    shown = segmented.slides[0].slide_id
    more = {
        "scored": evaluation,
        "scores": scores,
        "slides": slides,
        "overlay": (shown, segmented.out / shown / OVERLAY),
        "mistake": mistake,
    }
    dataset_report(page, dataset, stats, check, more=more, progress=progress)
    document = {
        "page": str(page),
        "dataset": str(dataset_folder),
        "sections": len(dataset),
        "faults": len(check.faults),
        "scored": len(evaluation.sections),
        "iou": evaluation.pooled.macro["iou"],
        "foreign": str(out / FOREIGN),
        "results": str(segmented.out),
        "mistake": None if mistake is None else asdict(mistake),
    }
    told = [
        f"{document['sections']} sections drawn and checked, {document['faults']} faults found.",
        f"bundled model on {document['scored']} of them: mean IoU {document['iou']:.3f}",
        f"the dataset: {page.resolve().as_uri()}",
        f"the slides:  {(segmented.out / INDEX).resolve().as_uri()}",
        "what the network attended to: in the viewer, Relations, Attention",
    ]
    if mistake is not None:
        told += [f"{mistake.slide_id}: a section made to look like another laboratory's", *mistake.sentences()]
    return document, told


def write_foreign(image: Path, resolution: Resolution, path: Path) -> Path:
    """Write a section as if from a laboratory with weaker, redder stains and a scanner out of focus."""
    changed = read_image(image)
    for degradation in DEGRADATIONS:
        if degradation.name in ("stain: H −40 %, E +60 %", "blur: σ 2 px"):
            changed = degradation(changed)
    write_image(path, changed, resolution)
    return path


def find_mistake(results: Path, slide_id: str, slide: Path, truth: Mask, progress: Progress = SILENT) -> Mistake | None:
    """The largest wrong region, and what a click in its middle would do; None where all is right.

    ``truth`` is at the µm/px of the model.
    """
    from scipy import ndimage

    corrections = SlideCorrections(results / slide_id)
    labels, schema = corrections.mask.labels(), corrections.mask.schema
    known = (labels != IGNORE) & (truth != IGNORE)
    wrong = known & (labels != truth)
    if not wrong.any():
        return None
    corrections.engine.prepare(corrections.mask, SlideInput(slide, slide.name), progress=progress)
    regions = []
    for tissue in np.unique(truth[wrong]):
        numbers, count = ndimage.label(wrong & (truth == tissue))
        pixels = np.bincount(numbers.ravel(), minlength=count + 1)[1:]
        regions.append((int(pixels.max()), np.pad(numbers == pixels.argmax() + 1, 1)))
    area, region = max(regions, key=lambda found: found[0])
    depth = ndimage.distance_transform_edt(region)[1:-1, 1:-1]
    row, column = (int(place) for place in np.unravel_index(depth.argmax(), depth.shape))
    right = schema.tissues[truth[row, column]]
    proposal = corrections.propose(Name(version=0, points=[corrections.point((row, column))], tissue=right.name))
    after = corrections.state(0).with_step(proposal.step(schema, corrections.pixel_mm2)).paint(labels)

    def mean_iou(mask: Mask) -> float:
        return float(overlap(confusion(truth[known], mask[known], len(schema)), schema).macro["iou"])

    return Mistake(
        slide_id=slide_id,
        x=column,
        y=row,
        called=schema.tissues[labels[row, column]].title,
        tissue=right.name,
        title=right.title,
        area_mm2=area * corrections.pixel_mm2,
        changed_mm2=proposal.pixels * corrections.pixel_mm2,
        before=mean_iou(labels),
        after=mean_iou(after),
    )
