"""A section measured for painting: maps on coarser grids, cells, distances."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import RegularGridInterpolator
from scipy.spatial import cKDTree
from tests.phantom.masks import blobs

from ntrm.core.labels import SKIN
from ntrm.phantom.anatomy.frame import PhantomGrid
from ntrm.phantom.noise import derive, hash_uniform
from ntrm.phantom.texture.scene import _CELL_JITTER, CoarseMap, Geometry, cells_at
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


def centres(seed, reach):
    rows, columns = np.meshgrid(np.arange(-3, reach), np.arange(-3, reach), indexing="ij")
    y = rows + 0.5 + _CELL_JITTER * (hash_uniform(derive(seed, "y"), rows, columns) - 0.5)
    x = columns + 0.5 + _CELL_JITTER * (hash_uniform(derive(seed, "x"), rows, columns) - 0.5)
    return np.stack([y.ravel(), x.ravel()], axis=1)


@given(st.integers(0, 2**63), st.floats(5, 100))
def test_cells_agree_with_a_search_through_all_centres(seed, spacing):
    places = np.random.default_rng(seed).uniform(0, 10 * spacing, (2, 500))
    found = cells_at(seed, *places, spacing)
    distance, _ = cKDTree(centres(seed, 14) * spacing).query(places.T, k=2)
    first = np.isclose(found.centre_um, distance[:, 0], rtol=1e-3, atol=1e-3)
    wall = np.isclose(found.wall_um, (distance[:, 1] - distance[:, 0]) / 2, rtol=1e-3, atol=2e-3 * spacing)
    assert first.mean() > 0.995, seed
    assert wall.mean() > 0.97, seed


def halves(above, below, shape=(80, 60)):
    mask = np.full(shape, SKIN.index(above), dtype=np.uint8)
    mask[shape[0] // 2 :] = SKIN.index(below)
    return mask


@pytest.mark.parametrize("mpp", [1.34, 3.35, 6.7, 13.4])
def test_distances_and_shares_are_right_at_a_straight_border(mpp):
    rows = round(536 / mpp)
    geometry = Geometry(halves("KER", "PAP", (rows, 40)), mpp, texture_table(0.5))
    border, x = rows // 2 * mpp, np.array([100.0 if mpp > 3 else 25.0])
    for below in (-100.0, 60.0, 150.0):
        assert geometry.from_keratin_um.at(np.array([border + below]), x)[0] == pytest.approx(below, abs=15)
    near = geometry.dermis_near.at(np.array([border - 60, border, border + 60]), np.repeat(x, 3))
    assert near == pytest.approx([0, 0.5, 1], abs=0.06)


def test_swapping_look_alikes_leaves_every_map(seed):
    mask = blobs(seed, (90, 70), 6.7, ["PAP", "RET", "BCC", "FOL", "INF", "KER", "BKG"])
    swap = np.arange(256, dtype=np.uint8)
    for one, other in (("PAP", "RET"), ("BCC", "FOL"), ("EPI", "SCC")):
        swap[SKIN.index(one)], swap[SKIN.index(other)] = SKIN.index(other), SKIN.index(one)
    before, after = (Geometry(m, 6.7, texture_table(1.0)) for m in (mask, swap[mask]))
    for name in ("from_keratin_um", "depth_um", "from_nest_um", "dermis_near", "cleft_near", "inflamed", "fatty"):
        assert np.array_equal(getattr(before, name).values, getattr(after, name).values), name
