import numpy as np
import pytest
from scipy import ndimage

from ntrm.evaluation import robustness
from ntrm.evaluation.robustness import DEGRADATIONS, robustness_rows
from ntrm.metrics.overlap import pooled
from ntrm.models.config import schema_for


def tissue(random, height, width):
    """A smooth picture, so that compression and blur act as on tissue."""
    noise = ndimage.gaussian_filter(random.random((height, width, 3)), (3, 3, 0))
    noise = (noise - noise.min()) / (noise.max() - noise.min())
    return (60 + 170 * noise).astype(np.uint8)


@pytest.mark.parametrize("degradation", DEGRADATIONS, ids=lambda each: each.name)
def test_pieces_make_the_same_picture_as_the_whole(degradation, random, monkeypatch):
    image = tissue(random, 150, 101)
    whole = degradation(image)
    monkeypatch.setattr(robustness, "BLOCK", 48)
    pieces = degradation(image)
    assert whole.dtype == np.uint8
    assert whole.shape == image.shape
    assert np.abs(whole.astype(int) - pieces).max() <= 1
    assert (whole == pieces).mean() > 0.99  # a rounding here and there
    assert not np.array_equal(whole, image)
    assert np.array_equal(degradation(image), pieces)


def test_rows_pool_the_sections(random):
    schema = schema_for(3)
    sections = [[random.integers(1, 50, (3, 3)) for _ in range(len(DEGRADATIONS) + 1)] for _ in range(4)]
    rows = robustness_rows(sections, schema)
    assert [row.name for row in rows] == ["as it is", *(each.name for each in DEGRADATIONS)]
    for index, row in enumerate(rows):
        expected = pooled([section[index] for section in sections], schema)
        assert row.pixel_accuracy == pytest.approx(expected.pixel_accuracy)
        assert (row.iou, row.dice) == pytest.approx((expected.macro["iou"], expected.macro["dice"]))
        assert row.iou_change == pytest.approx(row.iou - rows[0].iou)
