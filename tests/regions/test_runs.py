"""Runs against the pixels they stand for."""

import numpy as np
import pytest
from scipy import ndimage

from ntrm.core.arrays import ranges
from ntrm.regions import runs as module
from ntrm.regions.runs import CONNECTIVITY, combined, components, dilated, framed, runs_of, sides_of

FOUR = ndimage.generate_binary_structure(2, 1)


@pytest.fixture(params=range(3))
def random(request, seed):
    return np.random.default_rng((seed, request.param))


@pytest.fixture
def mask(random):
    """Patches of 4 values; now and then a single row or column, or one value only."""
    shape = tuple(int(n) for n in random.integers(1, 24, 2))
    values = random.integers(0, 4, shape)
    return np.kron(values, np.ones((2, 1))).astype(np.uint8)[: shape[0] + 1]


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
    np.testing.assert_array_equal(runs.value[runs.at(np.arange(mask.size))], mask.ravel())


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
        pixels = ranges(found.start, found.length)
        np.testing.assert_array_equal(pixels, np.arange(first * mask.shape[1], last * mask.shape[1]))
        np.testing.assert_array_equal(np.repeat(found.above, found.length), number[first - 1 : last - 1].ravel())
        np.testing.assert_array_equal(np.repeat(found.below, found.length), number[first:last].ravel())


def test_components_are_those_of_scipy_in_reading_order(mask, monkeypatch):
    monkeypatch.setattr(module, "STRIP_RUNS", 20)
    assert FOUR.sum() == CONNECTIVITY + 1
    runs = runs_of(mask)
    component, count = components(runs, runs.value != 0)
    found = np.repeat(component, runs.length).reshape(mask.shape)
    assert (found[mask == 0] == -1).all()
    total = 0
    for value in (1, 2, 3):
        expected, number = ndimage.label(mask == value, FOUR)
        total += number
        pairs = {*zip(found[mask == value].tolist(), expected[mask == value].tolist(), strict=True)}
        assert len(pairs) == number == len({one for one, _ in pairs})
    assert count == total
    first = [int(np.flatnonzero(found.ravel() == number)[0]) for number in range(count)]
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


@pytest.mark.parametrize("value", [True, False])
def test_dilation_is_a_distance(mask, random, value):
    where = mask > 2
    step, radius = random.choice([0.5, 1.0, 2.0, 6.7], 2), float(random.choice([1.0, 3.0, 5.0, 13.4, 30.0]))
    found = dilated(runs_of(where), step, radius, value=value).dense()
    seeds = where if value else ~where
    expected = ndimage.distance_transform_edt(~seeds, sampling=step) <= radius if seeds.any() else seeds
    np.testing.assert_array_equal(found, expected)


def test_frames_and_combinations(mask, random):
    rows, columns = (int(n) for n in random.integers(0, 4, 2))
    wide = framed(runs_of(mask), rows, columns, 9)
    np.testing.assert_array_equal(wide.dense(), np.pad(mask, ((rows, rows), (columns, columns)), constant_values=9))
    np.testing.assert_array_equal(framed(wide, -rows, -columns, 9).dense(), mask)
    masks = [mask > 1, mask == 1, random.random(mask.shape) < 0.5]
    every = combined(*map(runs_of, masks)).dense()
    np.testing.assert_array_equal(every, masks[0] + 2 * masks[1] + 4 * masks[2])


def winding(shape, random):
    """Walls with gaps here and there: ways that go up and down, join late and wind through each other."""
    mask = random.random(shape) < 0.6
    mask[::2, 1:-1] = True
    mask[1::4, -1] = mask[3::4, 0] = True
    return mask


@pytest.mark.parametrize("turned", [False, True])
def test_regions_that_wind_join_however_late(random, turned):
    for drawn in (winding((41, 60), random), random.random((60, 60)) < 0.6):
        mask = drawn.T if turned else drawn
        runs = runs_of(mask.astype(np.uint8))
        component, count = components(runs, runs.value != 0)
        expected, expected_count = ndimage.label(mask, FOUR)
        assert count == expected_count
        np.testing.assert_array_equal(np.repeat(component, runs.length).reshape(mask.shape) + 1, expected)
