import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import RegularGridInterpolator
from skimage.measure import block_reduce

from ntrm.phantom.texture.canvas import CoarseMap, Window, block_mean

SEEDS = st.integers(0, 2**32)


@settings(deadline=None)
@given(SEEDS, st.integers(2, 12), st.integers(2, 12), st.floats(0.5, 20), st.floats(0.5, 20), st.floats(-30, 60))
def test_over_and_at_are_bilinear(seed, height, width, map_mpp, mpp, origin):
    values = np.random.default_rng(seed).normal(size=(height, width)).astype(np.float32)
    window = Window((origin, origin / 2), (7, 9), mpp)
    centres = [(np.arange(n) + 0.5) * map_mpp for n in (height, width)]
    y, x = (np.clip(um, axis[0], axis[-1]) for um, axis in zip((window.y_um, window.x_um), centres, strict=True))
    grid = np.meshgrid(y, x, indexing="ij")
    expected = RegularGridInterpolator(centres, values.astype(np.float64))(np.stack(grid, axis=-1))
    assert CoarseMap(values, map_mpp).over(window) == pytest.approx(expected, abs=1e-4)
    assert CoarseMap(values, map_mpp).at(*grid) == pytest.approx(expected, abs=1e-4)


@given(SEEDS, st.integers(1, 30), st.integers(1, 30), st.integers(1, 6))
def test_block_mean_agrees_with_scikit_image(seed, rows, columns, factor):
    values = np.random.default_rng(seed).normal(size=(rows * factor, columns * factor, 3)).astype(np.float32)
    expected = block_reduce(values, (factor, factor, 1), np.mean)
    assert block_mean(values, factor) == pytest.approx(expected, abs=1e-5)


@given(st.floats(-3, 3))
def test_uphill_points_where_values_grow(angle):
    y, x = np.meshgrid(np.arange(20.0), np.arange(20.0), indexing="ij")
    tilted = CoarseMap((np.sin(angle) * y + np.cos(angle) * x).astype(np.float32), 4.0)
    assert tilted.uphill_at(np.array([40.0]), np.array([37.0]))[0] == pytest.approx(angle, abs=1e-3)


def test_a_map_of_one_value_is_flat():
    flat = CoarseMap(np.full((1, 1), 2.5, dtype=np.float32), 10.0)
    assert (flat.over(Window((-5.0, 3.0), (4, 3), 2.0)) == 2.5).all()
