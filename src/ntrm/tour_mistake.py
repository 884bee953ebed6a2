"""A region that the bundled model has named wrongly, and what one click there would do: for the tour.

The drawn sections have an exact truth, so that errors can be looked for. Nothing is made wrong on purpose: of the slide
with the largest error, the click that mends most is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ntrm.core.labels import IGNORE, LabelSchema, Mask
from ntrm.core.progress import SILENT, Progress
from ntrm.correction.corrections import Corrections
from ntrm.correction.graph import RegionGraph
from ntrm.correction.proposals import Click, propose
from ntrm.inference.predictor import Predictor
from ntrm.metrics.confusion import confusion
from ntrm.metrics.overlap import overlap
from ntrm.models.folders import BUNDLED
from ntrm.models.hub import load
from ntrm.pipeline.correcting import SlideMask, make_region_graph, open_mask
from ntrm.wsi.inputs import SlideInput

KEYS = "123456789qyhj"
"""Of the tissues in the viewer, in their order, the background last."""

Where = NDArray[np.bool_]


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
    regions: int
    """Parts that one click there would change."""
    changed_mm2: float
    before: float
    """Mean IoU of the slide."""
    after: float
    """Once the click is accepted."""

    def sentences(self) -> tuple[str, str]:
        """Where it is and which key to press; what that would change."""
        return (
            f"a wrong region: {self.slide_id}, x {self.x}, y {self.y}: {self.called}, but it is {self.title}. "
            f"In the viewer press e, click there, press {self.key}, then Enter",
            f"one click would change {self.regions} parts, {self.changed_mm2:.2f} mm²: "
            f"mean IoU of the slide {self.before:.3f} → {self.after:.3f}",
        )


def find_mistake(
    results: Path, slides: Mapping[str, Path], truths: Mapping[str, Mask], progress: Progress = SILENT
) -> Mistake | None:
    """A wrong region of some slides; None where all is right. The region graph of its slide is made and kept.

    Args:
        results: what the bundled model made of the slides.
        slides: their files, by id.
        truths: their truth at the µm/px of the model, by id.
        progress: of making the region graph.

    """
    wrong = {name: _wrong_regions(open_mask(results / name).labels(), truth) for name, truth in truths.items()}
    worst = max(wrong, key=lambda name: max((region.sum() for region in wrong[name]), default=0), default="")
    if not worst or not wrong[worst]:
        return None
    mask = open_mask(results / worst)
    slide = SlideInput(slides[worst], slides[worst].name)
    graph = make_region_graph(mask, slide, Predictor(load(BUNDLED)), progress)
    clicked = [_clicked(mask, graph, truths[worst], region) for region in wrong[worst]]
    return max(clicked, key=lambda mistake: mistake.after)


def _wrong_regions(labels: Mask, truth: Mask) -> list[Where]:
    """The largest connected region of each true tissue that was given another name."""
    from scipy import ndimage

    wrong, found = (labels != truth) & (labels != IGNORE) & (truth != IGNORE), []
    for tissue in np.unique(truth[wrong]):
        numbers, count = ndimage.label(wrong & (truth == tissue))
        found.append(numbers == np.bincount(numbers.ravel(), minlength=count + 1)[1:].argmax() + 1)
    return found


def _clicked(mask: SlideMask, graph: RegionGraph, truth: Mask, region: Where) -> Mistake:
    """What naming the middle of the region would do."""
    row, column = _middle(region)
    labels, schema = mask.labels(), mask.schema
    right = schema.tissues[truth[row, column]]
    corrections = Corrections(mask.shape, schema)
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
        regions=proposal.regions,
        changed_mm2=proposal.area_mm2,
        before=_mean_iou(truth, labels, schema),
        after=_mean_iou(truth, after, schema),
    )


def _middle(region: Where) -> tuple[int, int]:
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
