"""Runs against the pixels they stand for."""

import numpy as np
import pytest
from scipy import ndimage
from tests.analysis.patches import patchy

from ntrm.analysis import runs as module
from ntrm.analysis.runs import CONNECTIVITY, components, runs_of, sides_of

FOUR = ndimage.generate_binary_structure(2, 1)


@pytest.fixture(params=range(5))
def random(request, seed):
    return np.random.default_rng((seed, request.param))


@pytest.fixture
def mask(random):
    return patchy(random)


def test_runs_are_the_mask(mask):
    runs = runs_of(mask)
    np.testing.assert_array_equal(runs.dense(), mask)
    np.testing.assert_array_equal(mask[runs.row, runs.left], runs.value)
    assert runs.length.sum() == mask.size
    same_row = runs.row[1:] == runs.row[:-1]
    assert (runs.value[1:][same_row] != runs.value[:-1][same_row]).all()
    odd = runs.relabelled(runs.value % 2)
    np.testing.assert_array_equal(odd.dense(), mask % 2)
    np.testing.assert_array_equal(odd.start, runs_of(mask % 2).start)
    places = np.arange(mask.size)
    np.testing.assert_array_equal(runs.value[runs.at(places)], mask.ravel())


def test_a_window_of_the_runs_is_one_of_the_mask(mask, random):
    top, left = (int(random.integers(0, size)) for size in mask.shape)
    height, width = (int(random.integers(1, size - at + 1)) for size, at in zip(mask.shape, (top, left), strict=True))
    stride = int(random.integers(1, 5))
    expected = mask[top : top + height, left : left + width][::stride, ::stride]
    found = runs_of(mask).window(top, left, height, width, stride)
    np.testing.assert_array_equal(found.dense(), expected)
    np.testing.assert_array_equal(found.start, runs_of(expected).start)


def test_overlaps_are_those_of_the_pixels(mask, random):
    runs = runs_of(mask)
    number = np.repeat(np.arange(len(runs)), runs.length).reshape(mask.shape)
    top = int(random.integers(1, len(mask) + 1))
    for first, last in ((1, len(mask)), (top, len(mask)), (1, top)):
        found = module.overlaps(runs, first, last)
        pixels = module.stretched(found.start, found.length)
        np.testing.assert_array_equal(pixels, np.arange(first * mask.shape[1], last * mask.shape[1]))
        np.testing.assert_array_equal(np.repeat(found.above, found.length), number[first - 1 : last - 1].ravel())
        np.testing.assert_array_equal(np.repeat(found.below, found.length), number[first:last].ravel())


def test_components_are_those_of_scipy_in_reading_order(mask, monkeypatch):
    monkeypatch.setattr(module, "STRIP_RUNS", 20)
    assert FOUR.sum() == CONNECTIVITY + 1
    runs = runs_of(mask)
    part, count = components(runs, runs.value != 0)
    found = np.repeat(part, runs.length).reshape(mask.shape)
    assert (found[mask == 0] == -1).all()
    total = 0
    for value in (1, 2, 3):
        expected, number = ndimage.label(mask == value, FOUR)
        total += number
        pairs = {*zip(found[mask == value].tolist(), expected[mask == value].tolist(), strict=True)}
        assert len(pairs) == number == len({one for one, _ in pairs})
    assert count == total
    first = [int(np.flatnonzero(found.ravel() == part)[0]) for part in range(count)]
    assert first == sorted(first)


def test_sides_are_those_of_every_pixel(mask):
    runs = runs_of(mask)
    framed, expected = np.pad(mask, 1), []
    for row, column in np.argwhere(mask):
        for down, right in ((0, -1), (0, 1), (-1, 0), (1, 0)):
            if framed[row + 1 + down, column + 1 + right] != mask[row, column]:
                expected.append((int(row * mask.shape[1] + column), down, right))
    pixels, ways = sides_of(runs, runs.value)
    assert sorted(zip(pixels.tolist(), *ways.T.tolist(), strict=True)) == sorted(expected)
