"""Skin coordinates and the strips that cover a section."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ntrm.phantom.anatomy.frame import Fold, Frame, Outline, PhantomGrid

ANGLES = st.floats(0.0, 359.9)
SEEDS = st.integers(0, 2**32)


@settings(max_examples=15)
@given(seed=SEEDS, angle=ANGLES, radius=st.floats(4000.0, 40000.0), hollow=st.booleans())
def test_to_picture_inverts_to_skin(seed, angle, radius, hollow):
    frame = Frame(seed, angle, -radius if hollow else radius, warp_um=150.0)
    grid = PhantomGrid((40, 50), 50.0, (-900.0, -1200.0))
    u, w = frame.to_skin(grid)
    y, x = frame.to_picture(u.ravel().astype(np.float64), w.ravel().astype(np.float64))
    there_y, there_x = np.broadcast_arrays(grid.y_um[:, None], grid.x_um)
    np.testing.assert_allclose(y, there_y.ravel(), atol=1.0)
    np.testing.assert_allclose(x, there_x.ravel(), atol=1.0)


@pytest.mark.parametrize(("angle", "out_y", "out_x"), [(0, -1, 0), (90, 0, 1), (180, 1, 0), (270, 0, -1)])
def test_angle_counts_clockwise_from_the_top(angle, out_y, out_x):
    frame = Frame(1, float(angle), 1e6, warp_um=0.0)
    y, x = frame.to_picture(0.0, -100.0)  # a point outside the skin, straight above its middle
    assert (y[0], x[0]) == pytest.approx((100 * out_y, 100 * out_x), abs=0.01)


def test_fold_hides_a_strip_of_skin():
    flat = Frame(3, 0.0, 1e6, warp_um=0.0)
    folded = Frame(3, 0.0, 1e6, warp_um=0.0, fold=Fold(0.0, 120.0, 0.0, lean=0.0, wave_um=0.0))
    grid = PhantomGrid((4, 400), 5.0, (0.0, -1000.0))
    difference = folded.to_skin(grid)[0] - flat.to_skin(grid)[0]
    assert set(np.rint(difference).ravel().tolist()) == {0.0, 120.0}
    _, x = folded.to_picture(500.0, 10.0)
    assert x[0] == pytest.approx(380.0, abs=0.1)


@given(
    height=st.integers(1, 60),
    width=st.integers(1, 60),
    pixels=st.integers(1, 600),
    points=st.lists(st.tuples(st.floats(-20, 80), st.floats(-20, 80)), min_size=1, max_size=6),
    reach=st.floats(0.5, 15.0),
)
def test_strips_hold_everything_near_the_outline(height, width, pixels, points, reach):
    y, x = np.array(points).T
    grid = PhantomGrid((height, width), 1.0)
    covered = np.zeros(grid.shape, dtype=int)
    for at, strip in grid.strips(Outline(y, x, reach), pixels):
        assert covered[at].shape == strip.shape
        assert strip.origin_um == (at[0].start, at[1].start)
        covered[at] += 1
    assert covered.max(initial=0) <= 1
    rows, columns = np.mgrid[:height, :width] + 0.5
    near = np.min(np.hypot(rows[..., None] - y, columns[..., None] - x), axis=-1) < reach - 1.0
    assert covered[near].all()
