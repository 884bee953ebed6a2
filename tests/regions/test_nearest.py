"""Nearest points against all pairs."""

import numpy as np
import pytest
from tests.regions.blocks import far_apart

from ntrm.regions.nearest import farthest, nearest_of
from ntrm.regions.runs import runs_of


def clouds(random, places, asked, spread):
    """Points of a grid, so that many distances are equal."""
    return (random.integers(0, spread, (count, 2)) * 6.7 - 100.0 for count in (places, asked))


def test_the_nearest_is_that_of_all(random):
    places, asked = clouds(random, 50, 30, 40)
    distances, indices = nearest_of(places, asked)
    every = far_apart(asked, places, (1, 1))
    np.testing.assert_allclose(distances, every.min(axis=1))
    np.testing.assert_allclose(every[np.arange(30), indices], distances)


@pytest.mark.parametrize("scale", [(6.7, 6.7), (0.5, 0.8), (40.0, 3.0), (90.0, 120.0)])
@pytest.mark.parametrize("share", [0.02, 0.97])
def test_the_farthest_pixel_is_that_of_all(random, scale, share):
    inside = random.random((90, 140)) < share
    inside[random.integers(90), random.integers(140)] = True
    scale, places = np.array(scale), random.uniform(-20, 160, (random.integers(1, 40), 2))
    every, _ = nearest_of(places * scale, np.argwhere(inside) * scale)
    distance, pixel, place = farthest(places * scale, runs_of(inside), scale)
    assert distance == every.max()
    assert inside[tuple(pixel)]
    assert distance == pytest.approx(float(np.hypot(*((pixel - places[place]) * scale))))
