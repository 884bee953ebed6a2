"""Bodies against their formulas: area, place, what they may cover."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ntrm.phantom.anatomy.frame import BKG, FOL, GLD, RET, Axis, Frame, Grid, Skin, Wobble
from ntrm.phantom.anatomy.shapes import Blob, Streak, paint


def canvas(mpp: float = 4.0) -> Skin:
    """A flat piece of skin without any noise, 1200 µm square, the surface along its middle."""
    axis = Axis(800.0)
    grid = Grid((round(1200 / mpp), round(1200 / mpp)), mpp, (-600.0, -600.0))
    still = Wobble(fine_um=1e-6, sway_um=1e-6)
    return Skin(grid, Frame(1, 0.0, 1e6, warp_um=0.0), axis, np.zeros(len(axis.u), dtype=np.float32), still)


@settings(deadline=None, max_examples=20)
@given(
    u=st.floats(-250, 250),
    v=st.floats(-250, 250),
    radius=st.floats(40, 150),
    flatness=st.floats(0.4, 2.5),
    tilt=st.floats(-90, 90),
)
def test_blob_has_the_area_and_centre_of_its_ellipse(u, v, radius, flatness, tilt):
    skin = canvas()
    paint(skin, [Blob(u, v, radius, flatness, tilt, roughness=0.0)], GLD, over=(BKG,))
    rows, columns = np.nonzero(skin.mask == GLD)
    assert rows.size * 16.0 == pytest.approx(math.pi * radius**2, rel=0.06)
    assert (columns.mean() + 0.5) * 4 - 600 == pytest.approx(u, abs=3.0)
    assert (rows.mean() + 0.5) * 4 - 600 == pytest.approx(v, abs=3.0)


def test_streak_has_the_area_of_its_capsule():
    skin = canvas()
    paint(skin, [Streak(0.0, -100.0, 300.0, 25.0, (40.0, 40.0), roughness=0.0)], FOL, over=(BKG,))
    expected = 300.0 * 80.0 + math.pi * 40.0**2
    assert (skin.mask == FOL).sum() * 16.0 == pytest.approx(expected, rel=0.03)


def test_only_the_allowed_tissues_are_covered():
    skin = canvas()
    skin.mask[:, :150] = RET
    paint(skin, [Blob(0.0, 0.0, 200.0, roughness=0.0)], GLD, over=(RET,))
    assert (skin.mask[:, :150] == GLD).any()
    assert (skin.mask[:, 150:] == BKG).all()


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), roughness=st.floats(0.0, 0.25), lean=st.floats(-120, 120), bend=st.floats(-0.3, 0.3))
def test_nothing_is_lost_beyond_the_reach(seed, roughness, lean, bend):
    """Drawn through its window or over the whole picture, a body is the same."""
    axis = Axis(1500.0)
    grid = Grid((150, 150), 14.0, (-1050.0, -1050.0))
    skin = Skin(grid, Frame(seed, 40.0, 5000.0), axis, np.zeros(len(axis.u), dtype=np.float32))
    body = Streak(50.0, 100.0, 500.0, lean, (60.0, 30.0, 70.0), bend, roughness)
    whole = body.outside(skin._window(slice(None), slice(None))) < 0
    paint(skin, [body], FOL, over=(BKG,))
    np.testing.assert_array_equal(skin.mask == FOL, whole)
