from collections import Counter
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.labels import IGNORE
from ntrm.data import resample
from ntrm.data.resample import area_average, area_weights, majority_vote, shrunk_length

SIDES = st.integers(1, 14)
FACTORS = st.sampled_from(
    [Fraction(1), Fraction(2), Fraction(3), Fraction(5, 2), Fraction(10, 3), Fraction(7, 5), Fraction(20)]
)
SEEDS = st.integers(0, 2**32 - 1)


def covered(length, factor):
    """For every output pixel, input pixels with the exact length of them that it covers."""
    for index in range(max(1, floor(Fraction(length) / factor + Fraction(1, 2)))):
        start, stop = index * factor, min((index + 1) * factor, Fraction(length))
        inside = ((pixel, min(stop, Fraction(pixel + 1)) - max(start, Fraction(pixel))) for pixel in range(length))
        yield [(pixel, part) for pixel, part in inside if part > 0]


def slow_average(image, factor_y, factor_x):
    return [
        [
            floor(
                sum(wy * wx * int(image[y, x]) for y, wy in rows for x, wx in columns)
                / sum(wy * wx for _, wy in rows for _, wx in columns)
                + Fraction(1, 2)
            )
            for columns in covered(image.shape[1], factor_x)
        ]
        for rows in covered(image.shape[0], factor_y)
    ]


def slow_vote(mask, rows, columns):
    votes = Counter()
    for y, wy in rows:
        for x, wx in columns:
            votes[int(mask[y, x])] += wy * wx
    return min(votes, key=lambda label: (-votes[label], label))


@given(SIDES, SIDES, FACTORS, FACTORS, SEEDS)
def test_averages_equal_exact_areas(height, width, factor_y, factor_x, seed):
    image = np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)
    assert area_average(image, factor_y, factor_x).tolist() == slow_average(image, factor_y, factor_x)


@given(SIDES, SIDES, FACTORS, FACTORS, SEEDS)
def test_votes_equal_exact_areas(height, width, factor_y, factor_x, seed):
    mask = np.random.default_rng(seed).choice(np.array([0, 1, 2, IGNORE], dtype=np.uint8), (height, width))
    expected = [
        [slow_vote(mask, rows, columns) for columns in covered(width, factor_x)] for rows in covered(height, factor_y)
    ]
    assert majority_vote(mask, factor_y, factor_x, classes=3).tolist() == expected


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 6), SEEDS)
def test_whole_factors_equal_the_mean_of_blocks(rows, columns, factor, seed):
    image = np.random.default_rng(seed).integers(0, 256, (rows * factor, columns * factor, 3), dtype=np.uint8)
    means = image.reshape(rows, factor, columns, factor, 3).mean(axis=(1, 3))
    assert np.array_equal(area_average(image, factor, factor), np.floor(means + 0.5))


@given(st.integers(1, 3000), st.integers(1, 30), st.integers(1, 30))
def test_lengths_round_half_up_and_every_output_pixel_covers_something(length, numerator, denominator):
    factor = Fraction(numerator + denominator, denominator)
    out = shrunk_length(length, factor)
    assert out == max(1, floor(length / factor + Fraction(1, 2)))
    weights = area_weights(length, factor)
    assert weights.shape == (out, length)
    assert weights.sum(axis=1).min() > 0
    assert weights.data.min() > 0


def test_two_steps_equal_one_where_sizes_divide(seed):
    image = np.random.default_rng(seed).integers(0, 2, (40, 60, 3), dtype=np.uint8) * 250
    once, twice = area_average(image, 10, 10), area_average(area_average(image, 2, 2), 5, 5)
    assert np.abs(once.astype(int) - twice).max() <= 1


def test_a_constant_stays_constant_and_a_factor_of_one_changes_nothing(seed):
    image = np.random.default_rng(seed).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    assert np.array_equal(area_average(image, 1, 1), image)
    assert np.array_equal(majority_vote(image[..., 0] % 3, 1, 1, 3), image[..., 0] % 3)
    assert set(area_average(np.full((33, 47), 201, np.uint8), Fraction(10, 3), 2.5).ravel().tolist()) == {201}


def test_a_float_factor_means_the_same_as_its_fraction(seed):
    image = np.random.default_rng(seed).integers(0, 256, (31, 44), dtype=np.uint8)
    assert np.array_equal(area_average(image, 10 / 3, 2.5), area_average(image, Fraction(10, 3), Fraction(5, 2)))


def test_bands_leave_no_seam(monkeypatch, seed):
    random = np.random.default_rng(seed)
    image = random.integers(0, 256, (53, 20, 3), dtype=np.uint8)
    mask = random.integers(0, 5, (53, 20), dtype=np.uint8)
    whole = area_average(image, 2.5, 2.5), majority_vote(mask, 2.5, 2.5, 5)
    monkeypatch.setattr(resample, "_BAND_PIXELS", 60)
    assert np.array_equal(area_average(image, 2.5, 2.5), whole[0])
    assert np.array_equal(majority_vote(mask, 2.5, 2.5, 5), whole[1])


def test_ties_go_to_the_lowest_index_and_never_to_ignore():
    mask = np.array([[3, 1, 2, IGNORE, IGNORE, IGNORE]], dtype=np.uint8)
    assert majority_vote(mask, 1, 2, classes=4).tolist() == [[1, 2, IGNORE]]


def test_enlarging_and_unknown_indices_are_refused():
    with pytest.raises(RefusedError, match="shrunk"):
        area_average(np.zeros((4, 4), np.uint8), 0.5, 1)
    with pytest.raises(DataError, match="no class"):
        majority_vote(np.full((4, 4), 7, np.uint8), 2, 2, classes=3)
