"""A section measured for painting: maps on coarser grids, cells, distances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import RegularGridInterpolator

from ntrm.core.labels import SKIN
from ntrm.phantom.anatomy.frame import PhantomGrid
from ntrm.phantom.texture.scene import CoarseMap, Geometry
from ntrm.phantom.texture.table import texture_table

SEEDS = st.integers(0, 2**32)


@given(SEEDS, st.integers(2, 12), st.integers(2, 12), st.floats(0.5, 20), st.floats(0.5, 20), st.floats(-30, 60))
def test_over_and_at_are_bilinear(seed, height, width, map_mpp, mpp, origin):
    values = np.random.default_rng(seed).normal(size=(height, width)).astype(np.float32)
    window = PhantomGrid((7, 9), mpp, (origin, origin / 2))
    centres = [(np.arange(n) + 0.5) * map_mpp for n in (height, width)]
    y, x = (np.clip(um, axis[0], axis[-1]) for um, axis in zip((window.y_um, window.x_um), centres, strict=True))
    grid = np.meshgrid(y, x, indexing="ij")
    expected = RegularGridInterpolator(centres, values.astype(np.float64))(np.stack(grid, axis=-1))
    assert CoarseMap(values, map_mpp).over(window) == pytest.approx(expected, abs=1e-4)
    assert CoarseMap(values, map_mpp).at(*grid) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("mpp", [1.34, 3.35, 6.7, 13.4])
def test_distances_and_shares_are_right_at_a_straight_border(mpp):
    rows = round(536 / mpp) // 2 * 2
    mask = np.repeat(np.array([SKIN.index("KER"), SKIN.index("PAP")], dtype=np.uint8), rows // 2)
    geometry = Geometry(np.repeat(mask[:, None], 40, axis=1), mpp, texture_table(0.5))
    border, x = rows // 2 * mpp, np.array([100.0 if mpp > 3 else 25.0])
    for below in (-100.0, 60.0, 150.0):
        assert geometry.from_keratin_um.at(np.array([border + below]), x)[0] == pytest.approx(below, abs=15)
    near = geometry.dermis_near.at(np.array([border - 60, border, border + 60]), np.repeat(x, 3))
    assert near == pytest.approx([0, 0.5, 1], abs=0.06)
