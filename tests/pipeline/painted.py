"""Painted slides, segmented with a model that knows such sections."""

import csv

from tests.familiarity import small

from ntrm.core.mpp import Resolution
from ntrm.data.image_files import write_image
from ntrm.pipeline.batch import segment_slides


def write(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    write_image(path, pixels, Resolution.square(small.MPP))
    return path


def run(slide, out, model, **options):
    return segment_slides(slide, out=out, model=model, device="cpu", batch=3, **options)


def row_of(out):
    """Of the only slide."""
    with (out / "slides.csv").open(newline="", encoding="utf-8") as stream:
        (row,) = csv.DictReader(stream)
    return row
