"""A region that the bundled model has named wrongly, and what one click there would do: for the tour.

The model is used to sections like the drawn ones, so one of them is taken to another laboratory: its stain and its
scanner's focus are changed, and everything says so. Its truth is known, so that errors can be looked for: the largest
one is shown that a click mends.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ntrm.core.arrays import BoolMask
from ntrm.core.errors import DataError
from ntrm.core.io import whole_file
from ntrm.core.labels import IGNORE, LabelSchema, Mask
from ntrm.core.progress import SILENT, Progress
from ntrm.correction.engine import Click
from ntrm.correction.engine.graph import RegionGraph
from ntrm.correction.engine.prepare import make_region_graph
from ntrm.correction.engine.propose import propose
from ntrm.correction.mask import SlideMask, open_mask
from ntrm.correction.state import State
from ntrm.data.dataset import Case
from ntrm.data.image_files import read_image, write_image
from ntrm.evaluation.robustness import DEGRADATIONS
from ntrm.inference.predictor import Predictor
from ntrm.metrics.confusion import confusion
from ntrm.metrics.overlap import overlap
from ntrm.models.folders import BUNDLED
from ntrm.models.hub import load
from ntrm.slides.inputs import SlideInput

KEYS = "123456789qyhj"
"""Of the tissues in the viewer, in their order, the background last."""

FOREIGN = tuple(one for one in DEGRADATIONS if one.name in ("stain: H −40 %, E +60 %", "blur: σ 2 px"))
"""What makes a section that of another laboratory."""
SIDE, RING = 900, 22
"""Of the picture, and radius of the ring on it, in pixels."""


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
    key: str
    """That names it in the viewer."""
    area_mm2: float
    changed_mm2: float
    """That one click there would change."""
    before: float
    """Mean IoU of the slide."""
    after: float
    """Once the click is accepted."""

    def sentences(self) -> tuple[str, str]:
        """Where it is and which key to press; what that would change."""
        return (
            f"a wrong region of {self.slide_id}: labelled {self.called}, but it is {self.title}. "
            f"In the viewer press e, click there, press {self.key}, then Enter",
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
    """A wrong region of a slide; None where all is right. The slide's region graph is made and kept.

    Args:
        results: what the bundled model made of the slide, among others.
        slide_id: its name there.
        slide: its file.
        truth: at the µm/px of the model.
        progress: of making the region graph.

    """
    mask = open_mask(results / slide_id)
    wrong = _wrong_regions(mask.labels(), truth)
    if not wrong:
        return None
    graph = make_region_graph(mask, SlideInput(slide, slide.name), Predictor(load(BUNDLED)), progress)
    clicked = [_clicked(mask, graph, truth, region) for region in wrong]
    return max(clicked, key=lambda mistake: (mistake.after > mistake.before, mistake.area_mm2))


def mark_place(mistake: Mistake, slide: Path, picture: Path) -> Path:
    """Write a picture of the slide with a ring around the wrong place: the viewer shows no coordinates."""
    from PIL import Image, ImageDraw

    section = Image.fromarray(read_image(slide))
    factor = min(SIDE / max(section.size), 1.0)
    section = section.resize((round(section.width * factor), round(section.height * factor)), Image.Resampling.BOX)
    pen, x, y = ImageDraw.Draw(section), mistake.x * factor, mistake.y * factor
    for radius, colour, width in ((RING + 2, "white", 7), (RING, "black", 3)):
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), outline=colour, width=width)
    with whole_file(picture) as partial:
        section.save(partial, format="PNG")
    return picture


def _wrong_regions(labels: Mask, truth: Mask) -> list[BoolMask]:
    """The largest connected region of each true tissue that was given another name."""
    from scipy import ndimage

    wrong, found = (labels != truth) & (labels != IGNORE) & (truth != IGNORE), []
    for tissue in np.unique(truth[wrong]):
        numbers, count = ndimage.label(wrong & (truth == tissue))
        found.append(numbers == np.bincount(numbers.ravel(), minlength=count + 1)[1:].argmax() + 1)
    return found


def _clicked(mask: SlideMask, graph: RegionGraph, truth: Mask, region: BoolMask) -> Mistake:
    """What naming the middle of the region would do."""
    row, column = _middle(region)
    labels, schema = mask.labels(), mask.schema
    right = schema.tissues[truth[row, column]]
    corrections = State(mask.shape, schema)
    proposal = propose(graph, corrections, Click(((row, column),), right.name))
    after = corrections.with_step(proposal.step("tour")).paint(labels)
    return Mistake(
        slide_id=mask.summary.slide_id,
        x=column,
        y=row,
        called=schema.tissues[labels[row, column]].title,
        tissue=right.name,
        title=right.title,
        key=key_of(schema, right.name),
        area_mm2=float(region.sum()) * mask.resolution.pixel_area_um2 / 1e6,
        changed_mm2=proposal.area_mm2,
        before=_mean_iou(truth, labels, schema),
        after=_mean_iou(truth, after, schema),
    )


def _middle(region: BoolMask) -> tuple[int, int]:
    """The pixel that is farthest from the region's border."""
    from scipy import ndimage

    depth = ndimage.distance_transform_edt(np.pad(region, 1))[1:-1, 1:-1]
    row, column = np.unravel_index(int(depth.argmax()), depth.shape)
    return int(row), int(column)


def key_of(schema: LabelSchema, name: str) -> str:
    """The key of a tissue in the viewer."""
    ordered = sorted(schema.names, key=lambda each: each == schema.background)
    return KEYS[ordered.index(name)] if ordered.index(name) < len(KEYS) else ""


def _mean_iou(truth: Mask, labels: Mask, schema: LabelSchema) -> float:
    known = (truth != IGNORE) & (labels != IGNORE)
    return float(overlap(confusion(truth[known], labels[known], len(schema)), schema).macro["iou"])
