import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ntrm.phantom import noise

seeds = st.integers(0, 2**63)


def test_a_field_is_the_same_at_every_resolution(seed):
    fine = noise.field(seed, (500, 400), 1.0, 60.0)
    coarse = noise.field(seed, (100, 80), 5.0, 60.0)
    averaged = fine.reshape(100, 5, 80, 5).mean(axis=(1, 3))
    assert np.abs(averaged - coarse).max() < 0.08
    assert np.corrcoef(averaged.ravel(), coarse.ravel())[0, 1] > 0.999


def test_a_crop_of_a_field_is_the_field_of_the_crop(seed):
    whole = noise.field(seed, (60, 70), 2.0, 25.0)
    part = noise.field(seed, (20, 30), 2.0, 25.0, origin_um=(2.0 * 15, 2.0 * 22))
    np.testing.assert_allclose(part, whole[15:35, 22:52], atol=1e-5)


def test_arbitrary_positions_agree_with_the_grid(seed):
    y, x = noise.pixel_centres(30, 3.0)[:, None], noise.pixel_centres(40, 3.0)[None, :]
    np.testing.assert_allclose(noise.field_at(seed, y, x, 40.0), noise.field(seed, (30, 40), 3.0, 40.0), atol=1e-5)


def test_fields_have_mean_zero_and_unit_variance(seed):
    field = noise.field(seed, (600, 600), 1.0, 6.0)
    # 40,000 lattice values: the mean of a draw has a standard deviation of 0.0105, the bound lies at six of them.
    assert abs(field.mean()) < 0.063
    assert abs(field.std() - 1) < 0.06
    line = noise.profile(seed, np.arange(0, 60000, 0.7), 10.0)
    assert abs(line.mean()) < 0.08
    assert abs(line.std() - 1) < 0.08


@given(seeds, st.floats(5, 40))
def test_points_are_one_per_cell_inside_the_extent_and_stay_where_they_are(seed, spacing):
    y, x, mark, identity = noise.points(seed, (200.0, 300.0), spacing)
    assert ((y >= 0) & (y < 200) & (x >= 0) & (x < 300) & (mark >= 0) & (mark < 1)).all()
    assert len(np.unique(identity)) == len(identity)
    cells = np.stack([y // spacing, x // spacing])
    assert len(np.unique(cells, axis=1).T) == len(y)
    inner = noise.points(seed, (100.0, 100.0), spacing, origin_um=(50.0, 80.0))
    assert set(inner[3]) <= set(identity)


@given(seeds)
def test_hashes_are_uniform_and_depend_on_every_part(seed):
    rows, columns = np.arange(200)[:, None], np.arange(200)[None, :]
    drawn = noise.hash_uniform(seed, rows, columns)
    assert ((drawn >= 0) & (drawn < 1)).all()
    assert abs(drawn.mean() - 0.5) < 0.01
    assert abs(np.corrcoef(drawn[:, :-1].ravel(), drawn[:, 1:].ravel())[0, 1]) < 0.03
    assert noise.derive(seed, "a", 1) != noise.derive(seed, "a", 2)
    assert noise.derive(seed, "a") != noise.derive(seed, "b")
