"""Masks of runs that grow, shrink and are combined, against the pixels they stand for."""

import numpy as np
import pytest
from scipy import ndimage
from tests.analysis.patches import patchy

from ntrm.analysis import body as module
from ntrm.analysis.body import combined, covering, framed, grown
from ntrm.analysis.runs import runs_of


@pytest.fixture(params=range(5))
def random(request, seed):
    return np.random.default_rng((seed, request.param))


@pytest.fixture
def mask(random):
    return patchy(random)


@pytest.mark.parametrize("value", [True, False])
def test_growing_is_a_distance(mask, random, value):
    where = mask > 2
    step, radius = random.choice([0.5, 1.0, 2.0, 6.7], 2), float(random.choice([1.0, 3.0, 5.0, 13.4, 30.0]))
    found = grown(runs_of(where), step, radius, value=value).dense()
    seeds = where if value else ~where
    expected = ndimage.distance_transform_edt(~seeds, sampling=step) <= radius if seeds.any() else seeds
    np.testing.assert_array_equal(found, expected)


def test_stretches_cover_what_any_of_them_holds(random):
    shape = (9, 14)
    row, left = random.integers(-2, 11, 20), random.integers(-6, 16, 20)
    right = left + random.integers(0, 9, 20)
    expected = np.zeros(shape, dtype=bool)
    for r, start, stop in zip(row, left, right, strict=True):
        if 0 <= r < shape[0]:
            expected[r, max(start, 0) : max(stop, 0)] = True
    found = covering(shape, row, left, right)
    np.testing.assert_array_equal(found.dense(), expected)
    np.testing.assert_array_equal(found.start, runs_of(expected).start)


def test_nothing_covers_nothing():
    none = np.zeros(0, dtype=np.int64)
    assert not covering((3, 4), none, none, none).dense().any()


def test_frames_and_combinations(mask, random):
    rows, columns = (int(n) for n in random.integers(0, 4, 2))
    wide = framed(runs_of(mask), rows, columns, 9)
    np.testing.assert_array_equal(wide.dense(), np.pad(mask, ((rows, rows), (columns, columns)), constant_values=9))
    np.testing.assert_array_equal(framed(wide, -rows, -columns, 9).dense(), mask)
    masks = [mask > 1, mask == 1, random.random(mask.shape) < 0.5]
    every = combined(*map(runs_of, masks)).dense()
    np.testing.assert_array_equal(every, masks[0] + 2 * masks[1] + 4 * masks[2])


def test_growing_in_strips_is_growing_at_once(random, monkeypatch):
    runs = runs_of(random.random((40, 30)) < 0.02)
    whole = [grown(runs, np.array([2.0, 3.0]), 9.0, value=value) for value in (True, False)]
    monkeypatch.setattr(module, "STRETCHES", 40)
    for value, expected in zip((True, False), whole, strict=True):
        found = grown(runs, np.array([2.0, 3.0]), 9.0, value=value)
        np.testing.assert_array_equal(found.start, expected.start)
        np.testing.assert_array_equal(found.value, expected.value)
