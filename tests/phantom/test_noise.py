import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ntrm.phantom import noise

seeds = st.integers(0, 2**63)


def test_a_crop_of_a_field_is_the_field_of_the_crop(seed):
    whole = noise.field(seed, (60, 70), 2.0, 25.0)
    part = noise.field(seed, (20, 30), 2.0, 25.0, origin_um=(2.0 * 15, 2.0 * 22))
    np.testing.assert_allclose(part, whole[15:35, 22:52], atol=1e-5)


def test_arbitrary_positions_agree_with_the_grid(seed):
    y, x = noise.pixel_centres(30, 3.0)[:, None], noise.pixel_centres(40, 3.0)[None, :]
    np.testing.assert_allclose(noise.field_at(seed, y, x, 40.0), noise.field(seed, (30, 40), 3.0, 40.0), atol=1e-5)


@given(seeds, st.floats(5, 40))
def test_points_are_one_per_cell_inside_the_extent_and_stay_where_they_are(seed, spacing):
    y, x, mark, identity = noise.points(seed, (200.0, 300.0), spacing)
    assert ((y >= 0) & (y < 200) & (x >= 0) & (x < 300) & (mark >= 0) & (mark < 1)).all()
    assert len(np.unique(identity)) == len(identity)
    cells = np.stack([y // spacing, x // spacing])
    assert len(np.unique(cells, axis=1).T) == len(y)
    inner = noise.points(seed, (100.0, 100.0), spacing, origin_um=(50.0, 80.0))
    assert set(inner[3]) <= set(identity)
