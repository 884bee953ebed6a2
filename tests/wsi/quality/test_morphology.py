import numpy as np
from scipy import ndimage

from ntrm.core.mpp import Resolution
from ntrm.wsi.quality import morphology
from ntrm.wsi.quality.morphology import (
    dilated,
    opened,
)

SCALE = Resolution(10.0, 20.0)


def test_dilation_reaches_all_pixels_within_the_distance(random):
    some = random.random((20, 25)) < 0.02
    some[3, 4] = True
    ys, xs = np.nonzero(some)
    y, x = np.mgrid[:20, :25]
    distance = np.min([np.hypot((y - a) * 20.0, (x - b) * 10.0) for a, b in zip(ys, xs, strict=True)], axis=0)
    # A few pixels, many, and none at all.
    for um in (45.0, 130.0, 9.0):
        assert np.array_equal(dilated(some, um, SCALE), distance <= um)
    assert not dilated(np.zeros((3, 3), dtype=bool), 1e9, SCALE).any()


def test_opening_is_that_of_discs_placed_one_by_one(random):
    some = ndimage.gaussian_filter(random.standard_normal((30, 40)), 3) > -0.02
    some[:3, :3] = True
    ys, xs = np.mgrid[:30, :40]
    kept = np.zeros_like(some)
    for y, x in zip(*np.nonzero(some), strict=True):
        disc = np.hypot((ys - y) * 20.0, (xs - x) * 10.0) <= 50.0
        if some[disc].all():
            kept |= disc
    assert np.array_equal(opened(some, 50.0, SCALE), kept & some)


def test_pixels_inside_are_counted_for_every_rectangle(random):
    for _ in range(20):
        height, width = (int(n) for n in random.integers(1, 60, 2))
        mask = random.random((height, width)) < 0.4
        top, bottom = np.sort(random.integers(0, height + 1, (2, 30)), axis=0)
        left, right = np.sort(random.integers(0, width + 1, (2, 30)), axis=0)
        expected = [mask[a:b, c:d].sum() for a, b, c, d in zip(top, bottom, left, right, strict=True)]
        np.testing.assert_array_equal(morphology.pixels_inside(mask, top, bottom, left, right), expected)
