"""Nearest points against all pairs."""

import numpy as np
import pytest
from tests.analysis.blocks import far_apart

from ntrm.analysis.nearest import extreme_of, nearest_of


def clouds(random, places, asked, spread):
    """Points of a grid, so that many distances are equal."""
    return (random.integers(0, spread, (count, 2)) * 6.7 - 100.0 for count in (places, asked))


def test_the_nearest_is_that_of_all(random):
    places, asked = clouds(random, 50, 30, 40)
    distances, indices = nearest_of(places, asked)
    every = far_apart(asked, places, (1, 1))
    np.testing.assert_allclose(distances, every.min(axis=1))
    np.testing.assert_allclose(every[np.arange(30), indices], distances)


def test_what_is_too_far_away_is_infinitely_so(random):
    places, asked = clouds(random, 8, 60, 40)
    least = far_apart(asked, places, (1, 1)).min(axis=1)
    distances, _ = nearest_of(places, asked, within=40.0)
    np.testing.assert_allclose(distances, np.where(least <= 40.0, least, np.inf))
    on_the_line, _ = nearest_of(np.zeros((1, 2)), np.array([[0.0, 40.0]]), within=40.0)
    assert on_the_line.tolist() == [40.0]


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("spread", [4, 60, 900])
def test_the_extreme_is_that_of_all(random, largest, spread):
    places, asked = clouds(random, 12, 200, spread)
    every, _ = nearest_of(places, asked)
    distance, point, place = extreme_of(places, asked, largest=largest)
    assert point == (every.argmax() if largest else every.argmin())
    assert distance == every[point]
    assert distance == pytest.approx(float(np.hypot(*(asked[point] - places[place]))))
