import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree

from ntrm.phantom.noise import derive, hash_uniform
from ntrm.phantom.texture.canvas import _JITTER, cells_at


def centres(seed, reach):
    rows, columns = np.meshgrid(np.arange(-3, reach), np.arange(-3, reach), indexing="ij")
    y = rows + 0.5 + _JITTER * (hash_uniform(derive(seed, "y"), rows, columns) - 0.5)
    x = columns + 0.5 + _JITTER * (hash_uniform(derive(seed, "x"), rows, columns) - 0.5)
    return np.stack([y.ravel(), x.ravel()], axis=1)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**63), st.floats(5, 100))
def test_cells_agree_with_a_search_through_all_centres(seed, spacing):
    places = np.random.default_rng(seed).uniform(0, 10 * spacing, (2, 500))
    found = cells_at(seed, *places, spacing)
    distance, _ = cKDTree(centres(seed, 14) * spacing).query(places.T, k=2)
    first = np.isclose(found.centre_um, distance[:, 0], rtol=1e-3, atol=1e-3)
    wall = np.isclose(found.wall_um, (distance[:, 1] - distance[:, 0]) / 2, rtol=1e-3, atol=2e-3 * spacing)
    assert first.mean() > 0.995, seed
    assert wall.mean() > 0.97, seed


@settings(deadline=None)
@given(st.integers(0, 2**63))
def test_points_of_one_cell_share_its_mark(seed):
    places = np.random.default_rng(seed).uniform(0, 300, (2, 300))
    found = cells_at(seed, *places, 50.0)
    owner = np.stack([found.centre_y_um, found.centre_x_um], axis=1)
    _, which = np.unique(owner, axis=0, return_inverse=True)
    for cell in np.unique(which):
        assert len(np.unique(found.mark[which == cell])) == 1
    assert np.hypot(*(owner.T - places)) == pytest.approx(found.centre_um, abs=1e-2)
