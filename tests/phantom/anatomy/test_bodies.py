"""Bodies against their formulas."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ntrm.phantom.anatomy.bodies import Blob, Streak, Structure
from ntrm.phantom.anatomy.frame import BKG, FOL, GLD, Axis, Frame, PhantomGrid, Skin, Wobble


@pytest.fixture(scope="module")
def flat_skin() -> Skin:
    """A flat piece of skin without any noise, 1200 µm square at 4 µm/px, the surface along its middle."""
    axis, still = Axis(800.0), Wobble(fine_um=1e-6, sway_um=1e-6)
    grid = PhantomGrid((300, 300), 4.0, (-600.0, -600.0))
    return Skin(grid, Frame(1, 0.0, 1e6, warp_um=0.0), axis, np.zeros(len(axis.u), dtype=np.float32), still)


def painted(skin: Skin, body, tissue, over=(BKG,)):
    """Where the body is painted on empty skin."""
    skin.mask[:] = BKG
    Structure("test", [body], tissue, over).paint(skin)
    return skin.mask == tissue


@settings(max_examples=20)
@given(
    u=st.floats(-250, 250),
    v=st.floats(-250, 250),
    radius=st.floats(40, 150),
    flatness=st.floats(0.4, 2.5),
    tilt=st.floats(-90, 90),
)
def test_blob_has_the_area_and_centre_of_its_ellipse(flat_skin, u, v, radius, flatness, tilt):
    rows, columns = np.nonzero(painted(flat_skin, Blob(u, v, radius, flatness, tilt, roughness=0.0), GLD))
    assert rows.size * 16.0 == pytest.approx(math.pi * radius**2, rel=0.06)
    assert (columns.mean() + 0.5) * 4 - 600 == pytest.approx(u, abs=3.0)
    assert (rows.mean() + 0.5) * 4 - 600 == pytest.approx(v, abs=3.0)


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), roughness=st.floats(0.0, 0.25), lean=st.floats(-120, 120), bend=st.floats(-0.3, 0.3))
def test_nothing_is_lost_beyond_the_reach(seed, roughness, lean, bend):
    """Drawn through its window or over the whole picture, a body is the same."""
    axis = Axis(1500.0)
    grid = PhantomGrid((150, 150), 14.0, (-1050.0, -1050.0))
    skin = Skin(grid, Frame(seed, 40.0, 5000.0), axis, np.zeros(len(axis.u), dtype=np.float32))
    body = Streak(50.0, 100.0, 500.0, lean, (60.0, 30.0, 70.0), bend, roughness)
    whole = body.outside(skin.patch(slice(None), slice(None))) < 0
    np.testing.assert_array_equal(painted(skin, body, FOL), whole)
