"""Small slides that a network has segmented and a person has corrected."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tests.evaluation.small import ByColour
from tests.segment.small import paint, write_slide

from ntrm.correct.log import Step, append
from ntrm.correct.mask import open_mask
from ntrm.correct.pixels import PixelSet
from ntrm.segment.batch import segment_slides


class Unsure(ByColour):
    """Says the same with less confidence: of a network that is sure of everything, nothing follows."""

    def _logits(self, rgb):
        return super()._logits(rgb) / 15


class Corrected(NamedTuple):
    """A folder of slides, what is painted on each, and the results."""

    slides: Path
    painted: dict[str, NDArray[np.uint8]]
    results: Path


def segmented(folder, names="ab", rows=()):
    """Slides ``a``, ``b``, … and their results; ``rows`` are those of a table with covariates."""
    painted = {name: paint(np.random.default_rng(number)) for number, name in enumerate(names)}
    for name, mask in painted.items():
        write_slide(folder / "slides" / f"{name}.tif", mask)
    inputs = folder / "slides"
    if rows:
        inputs = folder / "slides.csv"
        inputs.write_text("\n".join(rows) + "\n")
    segment_slides([inputs], out=folder / "out", model=ByColour(), device="cpu", batch=2, tissue_mask=False)
    return Corrected(folder / "slides", painted, folder / "out")


def step(shape, tissue, named, **followed):
    """A person names a box (top, bottom, left, right); boxes of other tissues follow."""
    texts = {name: _box(shape, box).text for name, box in followed.items()}
    return Step(action="name", tissue=tissue, named=_box(shape, named).text, followed=texts, regions=1 + len(texts))


def _box(shape, box):
    top, bottom, left, right = box
    return PixelSet.of_window(np.ones((bottom - top, right - left), dtype=bool), top, left, shape[1])


def correct(results, name, *steps):
    """Write steps into the log of a slide."""
    mask = open_mask(results / name)
    for one in steps:
        append(mask.folder, mask.record, one)
