"""A region that the bundled model has named wrongly, and what one click there would do: for the tour.

The model is used to sections like the drawn ones, so one of them is taken to another laboratory: its stain and its
scanner's focus are changed, and everything says so. Its truth is known, so that errors can be looked for: the largest
one is shown that a click mends.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, Mask
from ntrm.core.progress import SILENT, Progress
from ntrm.correction.ask import Name
from ntrm.correction.slide import SlideCorrections
from ntrm.data.dataset import Case
from ntrm.data.image_files import read_image, write_image
from ntrm.evaluation.robustness import DEGRADATIONS
from ntrm.inference.predictor import Predictor
from ntrm.metrics.confusion import confusion
from ntrm.metrics.overlap import overlap
from ntrm.models.folders import BUNDLED
from ntrm.models.hub import load
from ntrm.slides.inputs import SlideInput

FOREIGN = tuple(one for one in DEGRADATIONS if one.name in ("stain: H −40 %, E +60 %", "blur: σ 2 px"))
"""What makes a section that of another laboratory."""


@dataclass(frozen=True)
class Mistake:
    """A wrong region of a slide, and what one click would do."""

    slide_id: str
    x: int
    """Of a place inside, in pixels of the mask."""
    y: int
    called: str
    """What the network says, in words."""
    tissue: str
    """What it is: short name."""
    title: str
    """In words."""
    area_mm2: float
    changed_mm2: float
    """That one click there would change."""
    before: float
    """Mean IoU of the slide."""
    after: float
    """Once the click is accepted."""

    def sentences(self) -> tuple[str, str]:
        """Where it is and how it is named; what that would change."""
        return (
            f"a wrong region of {self.slide_id}: at {self.x}, {self.y} labelled {self.called}, but it is {self.title}. "
            f"In the viewer press e, click there, choose {self.tissue}, then Enter",
            f"one click would change {self.changed_mm2:.2f} mm²: "
            f"mean IoU of the slide {self.before:.3f} → {self.after:.3f}",
        )


def write_foreign(case: Case, path: Path) -> Path:
    """Write a section as if from a laboratory with weaker, redder stains and a scanner out of focus."""
    if case.image is None or case.resolution is None:
        raise DataError(f"{case.name} has no image of known µm/px")
    changed = read_image(case.image)
    for degradation in FOREIGN:
        changed = degradation(changed)
    write_image(path, changed, case.resolution)
    return path


def find_mistake(results: Path, slide_id: str, slide: Path, truth: Mask, progress: Progress = SILENT) -> Mistake | None:
    """A wrong region of a slide that the bundled model segmented; None where all is right. Its parts are kept.

    ``truth`` is at the µm/px of the model.
    """
    corrections = SlideCorrections(results / slide_id)
    labels = corrections.mask.labels()
    places = _wrong_places(labels, truth)
    if not places:
        return None
    source = SlideInput(slide, slide.name)
    corrections.engine.prepare(corrections.mask, source, Predictor(load(BUNDLED)), progress)
    clicked = [_clicked(corrections, labels, truth, *place) for place in places]
    return max(clicked, key=lambda mistake: (mistake.after > mistake.before, mistake.area_mm2))


def _wrong_places(labels: Mask, truth: Mask) -> list[tuple[int, int, int]]:
    """Of each true tissue the largest wrong region: row and column of the pixel deepest inside, and its pixels."""
    from scipy import ndimage

    wrong, found = (labels != truth) & (labels != IGNORE) & (truth != IGNORE), []
    for tissue in np.unique(truth[wrong]):
        numbers, count = ndimage.label(wrong & (truth == tissue))
        pixels = np.bincount(numbers.ravel(), minlength=count + 1)[1:]
        depth = ndimage.distance_transform_edt(np.pad(numbers == pixels.argmax() + 1, 1))[1:-1, 1:-1]
        row, column = np.unravel_index(int(depth.argmax()), depth.shape)
        found.append((int(row), int(column), int(pixels.max())))
    return found


def _clicked(corrections: SlideCorrections, labels: Mask, truth: Mask, row: int, column: int, pixels: int) -> Mistake:
    """What naming a place would do."""
    schema = corrections.mask.schema
    right, known = schema.tissues[truth[row, column]], (truth != IGNORE) & (labels != IGNORE)
    proposal = corrections.propose(Name(version=0, points=[corrections.point((row, column))], tissue=right.name))
    after = corrections.state(0).with_step(proposal.step("tour")).paint(labels)

    def mean_iou(mask: Mask) -> float:
        return float(overlap(confusion(truth[known], mask[known], len(schema)), schema).macro["iou"])

    return Mistake(
        slide_id=corrections.mask.summary.slide_id,
        x=column,
        y=row,
        called=schema.tissues[labels[row, column]].title,
        tissue=right.name,
        title=right.title,
        area_mm2=pixels * corrections.pixel_mm2,
        changed_mm2=proposal.area_mm2,
        before=mean_iou(labels),
        after=mean_iou(after),
    )
