"""Painted slides, segmented with a model that knows such sections."""

from tests.familiarity import small
from tests.segment.small import rows_of

from ntrm.core.mpp import Resolution
from ntrm.data.image_files import write_image


def write(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    write_image(path, pixels, Resolution.square(small.MPP))
    return path


def row_of(out):
    """Of the only slide."""
    (row,) = rows_of(out)
    return row
