"""The surface along an outline: its best arc, the corners at its ends, and the plugs that it bridges."""

import numpy as np
import pytest

from ntrm.regions.surface import best_arc, bridge_plugs, two_lines


def test_the_best_arc_is_that_of_all_arcs(random):
    for _ in range(20):
        values = random.normal(size=random.integers(2, 12))
        size, twice = len(values), np.concatenate([values, values])
        every = [twice[a : a + length].sum() for a in range(size) for length in range(size + 1)]
        start, stop, total = best_arc(values)
        assert total == pytest.approx(max(every))
        assert twice[start:stop].sum() == pytest.approx(total)


@pytest.mark.parametrize("turn", [40, 90, 150])
def test_the_corner_of_two_lines(turn, random):
    angle, lengths = np.radians(turn), (30, 25)
    way = np.array([[0.0, 1.0]] * lengths[0] + [[np.sin(angle), np.cos(angle)]] * lengths[1])
    points = np.cumsum(way, axis=0) + random.normal(scale=0.05, size=(sum(lengths), 2))
    at, found = two_lines(points)
    assert abs(at - lengths[0]) <= 1
    assert found == pytest.approx(turn, abs=2)


def path(*ways):
    """Points in µm along straight ways, each a step and how often it is taken."""
    return np.cumsum(np.concatenate([np.tile(way, (count, 1)) for way, count in ways]), axis=0).astype(float)


@pytest.mark.parametrize("upside_down", [False, True])
def test_plugs_are_bridged_at_their_mouths_and_bumps_are_not(upside_down):
    flip = np.array([-1.0 if upside_down else 1.0, 1.0])
    # Along the top of a body from left to right, rows growing downward: its outline has a negative area.
    plug = flip * path(((0, 5), 40), ((5, 0), 60), ((0, 5), 40), ((-5, 0), 60), ((0, 5), 40))
    bump = flip * path(((0, 5), 40), ((-4, 4), 60), ((0, 5), 40), ((4, 4), 60), ((0, 5), 40))
    covered = np.ones(240, dtype=bool)
    ((first, last),) = bridge_plugs(plug, covered, upside_down)
    assert abs(first - 40) <= 6
    assert abs(last - 200) <= 6
    assert bridge_plugs(bump, covered, upside_down) == []
    assert bridge_plugs(plug, ~covered, upside_down) == []
