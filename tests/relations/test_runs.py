"""Runs against the pixels they stand for: scipy's labels, distances and holes."""

import numpy as np
import pytest
from scipy import ndimage

from ntrm.relations.runs import combined, components, covering, framed, grown, runs_of

FOUR, EIGHT = ndimage.generate_binary_structure(2, 1), np.ones((3, 3))


@pytest.fixture(params=range(5))
def random(request, seed):
    return np.random.default_rng((seed, request.param))


@pytest.fixture
def mask(random):
    """Patches of 4 values; now and then a single row or column, or one value only."""
    shape = tuple(int(n) for n in random.integers(1, 24, 2))
    coarse = random.integers(0, 4, shape)
    return np.kron(coarse, np.ones((2, 1))).astype(np.uint8)[: shape[0] + 1]


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


def test_neighbours_are_those_of_the_pixels(mask):
    runs = runs_of(mask)
    number = np.repeat(np.arange(len(runs)), runs.length).reshape(mask.shape)

    def pairs(one, other, counted=None):
        counted = np.ones(one.size, int) if counted is None else counted
        found = {}
        for a, b, n in zip(one.ravel().tolist(), other.ravel().tolist(), counted.ravel().tolist(), strict=True):
            if a != b:
                found[a, b] = found.get((a, b), 0) + n
        return found

    touching = runs.touching
    assert pairs(touching.left, touching.right) == pairs(number[:, :-1], number[:, 1:])
    assert pairs(touching.above, touching.below, touching.shared) == pairs(number[:-1], number[1:])
    beside = {*pairs(number[:-1], number[1:])}
    crosswise = {*pairs(number[:-1, :-1], number[1:, 1:]), *pairs(number[:-1, 1:], number[1:, :-1])}
    assert {*pairs(touching.corner_above, touching.corner_below)} | beside == crosswise | beside


@pytest.mark.parametrize(("eight", "structure"), [(False, FOUR), (True, EIGHT)])
def test_components_are_those_of_scipy_in_reading_order(mask, eight, structure):
    runs = runs_of(mask)
    parts, count = components(runs, outside=0, eight=eight)
    found = np.repeat(parts, runs.length).reshape(mask.shape)
    assert (found[mask == 0] == 0).all()
    total = 0
    for value in (1, 2, 3):
        expected, number = ndimage.label(mask == value, structure)
        total += number
        pairs = {*zip(found[mask == value].tolist(), expected[mask == value].tolist(), strict=True)}
        assert len(pairs) == number == len({one for one, _ in pairs})
    assert count == total
    first = [int(np.flatnonzero(found.ravel() == part)[0]) for part in range(1, count + 1)]
    assert first == sorted(first)


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
