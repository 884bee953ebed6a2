import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from ntrm.core.errors import UsageError
from ntrm.phantom.render import Artefacts, expose

GREY = np.full((300, 200, 3), 128, dtype=np.float32)
EDGE = np.where(np.arange(200)[None, :, None] < 100, 60.0, 200.0).astype(np.float32) * np.ones((120, 1, 3), np.float32)
SEEDS = st.integers(0, 2**63)


@given(hnp.arrays(np.float32, (5, 4, 3), elements=st.floats(0, 255, width=32)), SEEDS)
def test_without_artefacts_only_rounding_is_left(picture, seed):
    assert np.abs(expose(picture, 6.7, seed, Artefacts.none()) - picture).max() <= 0.5


@given(SEEDS)
def test_drawn_artefacts_are_mild_and_repeatable(seed):
    drawn = Artefacts.draw(seed)
    assert drawn == Artefacts.draw(seed)
    assert drawn.uneven_light <= 0.04
    assert drawn.jpeg_quality >= 75


def test_half_of_the_sections_carry_ink():
    assert 0.4 < np.mean([Artefacts.draw(seed).ink > 0 for seed in range(400)]) < 0.6


@given(SEEDS)
def test_sensor_noise_has_its_strength(seed):
    noisy = expose(GREY, 6.7, seed, Artefacts(sensor_noise=4.0))
    assert noisy.std() == pytest.approx(4.0, rel=0.05)
    assert noisy.mean() == pytest.approx(128, abs=0.1)


@given(SEEDS)
def test_light_falls_by_its_strength(seed):
    lit = expose(GREY, 6.7, seed, Artefacts(uneven_light=0.25)).astype(float)
    assert lit.max() == pytest.approx(128, abs=1)
    assert lit.min() == pytest.approx(96, abs=1)


def test_defocus_is_a_gaussian_in_micrometres():
    blurred = expose(EDGE, 2.0, 1, Artefacts(blur_um=8.0)).astype(float)
    assert np.abs(np.diff(blurred[60, :, 0])).max() < 20
    slope = np.diff(blurred[60, :, 0])
    centre = (np.arange(slope.size) * slope).sum() / slope.sum()
    sigma_px = np.sqrt(((np.arange(slope.size) - centre) ** 2 * slope).sum() / slope.sum())
    assert sigma_px == pytest.approx(4.0, rel=0.05)


def test_jpeg_is_a_real_one():
    picture = np.random.default_rng(3).integers(0, 256, (40, 50, 3)).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(picture).save(stream, format="JPEG", quality=60)
    expected = np.asarray(Image.open(stream))
    assert np.array_equal(expose(picture.astype(np.float32), 6.7, 1, Artefacts(jpeg_quality=60)), expected)


def test_pictures_larger_than_a_jpeg_tile_come_back_whole():
    picture = np.full((30, 5000, 3), (200, 120, 180), dtype=np.float32)
    out = expose(picture, 6.7, 1, Artefacts(jpeg_quality=90))
    assert np.abs(out - picture).max() <= 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"uneven_light": 0.6},
        {"blur_um": -1},
        {"sensor_noise": float("nan")},
        {"ink": 1.1},
        {"jpeg_quality": 0},
        {"jpeg_quality": 96},
    ],
)
def test_strengths_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError, match="expected"):
        Artefacts(**wrong)
