import numpy as np
import pytest
from tests.wsi.pictures import MPP, clean

from ntrm.core.errors import DataError
from ntrm.core.mpp import Resolution
from ntrm.wsi.quality.thumbnail import Thumbnail, optical_density


def test_the_coarser_grid_holds_means_of_blocks(seed):
    picture = clean(seed)[:219, :327]
    seen = Thumbnail.of(picture, MPP)
    assert seen.factors == (2, 2)
    assert seen.coarse == Resolution.square(2 * MPP)
    density = optical_density(picture)
    for k, plane in enumerate(seen.planes):
        assert plane.shape == (110, 164)
        whole = density[:218, :326, k].reshape(109, 2, 163, 2).mean(axis=(1, 3))
        np.testing.assert_allclose(plane[:109, :163], whole, atol=1e-6)


def test_an_average_keeps_the_mean_and_loses_detail(seed):
    seen = Thumbnail.of(clean(seed), MPP)
    for plane, averaged in zip(seen.planes, seen.averaged, strict=True):
        assert averaged.mean() == pytest.approx(plane.mean(), abs=1e-3)
        assert averaged.std() < plane.std()


def test_places_go_to_the_coarser_grid_and_back(random):
    seen = Thumbnail.of(np.full((31, 45, 3), 240, dtype=np.uint8), Resolution(10.0, 14.0))
    assert seen.factors == (2, 3)
    blocks = random.random((16, 15)) < 0.5
    places = seen.spread(blocks)
    assert places.shape == (31, 45)
    assert all(places[y, x] == blocks[y // 2, x // 3] for y, x in zip(range(31), range(14, 45), strict=True))
    np.testing.assert_array_equal(seen.shrunk(places), blocks)


def test_a_coarse_picture_is_its_own_grid():
    seen = Thumbnail.of(np.full((5, 6, 3), 240, dtype=np.uint8), 30.0)
    assert seen.factors == (1, 1)
    assert seen.coarse == seen.scale
    with pytest.raises(DataError, match="must be RGB"):
        Thumbnail.of(np.zeros((5, 6), dtype=np.uint8), 30.0)
