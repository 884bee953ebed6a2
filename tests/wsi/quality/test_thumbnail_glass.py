import numpy as np
import pytest

from ntrm.core.errors import DataError
from ntrm.core.mpp import Resolution
from ntrm.wsi.quality.thumbnail import as_resolution, check_picture, glass_colour, green_density, optical_density


def test_glass_is_found_beside_tissue_and_beside_what_was_not_scanned(random):
    picture = np.full((60, 90, 3), 255, dtype=np.uint8)
    picture[:, 30:] = np.clip(random.normal((238, 240, 243), 1.0, (60, 60, 3)), 0, 255).astype(np.uint8)
    picture[10:50, 50:80] = (200, 120, 170)
    assert np.abs(glass_colour(picture) - (238, 240, 243)).max() <= 1


def test_pale_fat_is_not_taken_for_glass(random):
    picture = np.empty((60, 60, 3), dtype=np.uint8)
    picture[:40] = (247, 233, 243)
    picture[40:] = (250, 249, 250)
    assert glass_colour(picture).tolist() == [250, 249, 250]


def test_the_lamp_is_taken_to_be_white_where_no_glass_is_seen():
    picture = np.full((40, 40, 3), (240, 150, 210), dtype=np.uint8)
    assert glass_colour(picture).tolist() == [240, 240, 240]
    assert glass_colour(np.zeros((4, 4, 3), dtype=np.uint8)).tolist() == [180, 180, 180]


def test_optical_density_is_that_of_the_formula(random):
    picture = random.integers(0, 256, (30, 40, 3)).astype(np.uint8)
    picture[:20] = (245, 246, 247)
    expected = -np.log10((picture.astype(float) + 1) / (np.array([245.0, 246.0, 247.0]) + 1))
    assert np.allclose(optical_density(picture), expected, atol=1e-6)
    assert optical_density(picture).dtype == np.float32


def test_green_alone_and_a_known_glass(random):
    picture = random.integers(0, 256, (30, 40, 3)).astype(np.uint8)
    assert np.array_equal(green_density(picture), optical_density(picture)[..., 1])
    known = np.array([200.0, 210.0, 220.0], dtype=np.float32)
    expected = -np.log10((picture.astype(float) + 1) / (known + 1))
    assert np.allclose(optical_density(picture, known), expected, atol=1e-6)
    assert np.allclose(green_density(picture, known), expected[..., 1], atol=1e-6)


def test_a_large_picture_tells_the_same_glass_as_its_parts(random):
    picture = np.clip(random.normal((238, 240, 243), 1.5, (900, 1300, 3)), 0, 255).astype(np.uint8)
    picture[200:700, 300:1000] = (200, 120, 170)
    assert np.abs(glass_colour(picture) - glass_colour(picture[:200])).max() <= 1
    assert np.abs(glass_colour(picture) - (238, 240, 243)).max() <= 1


def test_a_number_stands_for_square_pixels():
    assert as_resolution(2.0) == Resolution(2.0, 2.0)
    assert as_resolution(Resolution(1.0, 2.0)) == Resolution(1.0, 2.0)


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 4), (0, 4, 3)])
def test_refuses_what_is_no_picture(shape):
    with pytest.raises(DataError, match="must be RGB"):
        check_picture(np.zeros(shape, dtype=np.uint8))
    with pytest.raises(DataError, match="must be RGB"):
        check_picture(np.zeros((4, 4, 3), dtype=np.float32))
