import io

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage

from ntrm.evaluation import robustness
from ntrm.evaluation.robustness import DEGRADATIONS, robustness_rows
from ntrm.models.config import schema_for

BY_NAME = {each.name: each for each in DEGRADATIONS}


def tissue(random, height, width):
    """A smooth picture, so that compression and blur act as on tissue."""
    noise = ndimage.gaussian_filter(random.random((height, width, 3)), (3, 3, 0))
    noise = (noise - noise.min()) / (noise.max() - noise.min())
    return (60 + 170 * noise).astype(np.uint8)


@pytest.mark.parametrize("degradation", DEGRADATIONS, ids=lambda each: each.name)
def test_pieces_make_the_same_picture_as_the_whole(degradation, random, monkeypatch):
    image = tissue(random, 150, 101)
    whole = degradation(image)
    monkeypatch.setattr(robustness, "BLOCK", 48)
    pieces = degradation(image)
    assert whole.dtype == np.uint8
    assert whole.shape == image.shape
    assert np.abs(whole.astype(int) - pieces).max() <= 1
    assert (whole == pieces).mean() > 0.99  # a rounding here and there
    assert not np.array_equal(whole, image)
    assert np.array_equal(degradation(image), pieces)


@pytest.mark.parametrize("sigma", [1, 2])
def test_blur_is_a_gaussian(sigma, random):
    image = tissue(random, 60, 50)
    expected = ndimage.gaussian_filter(image.astype(float), (sigma, sigma, 0), mode="nearest", truncate=4)
    assert np.abs(BY_NAME[f"blur: σ {sigma} px"](image) - expected).max() < 1.5


@pytest.mark.parametrize("quality", [30, 10])
def test_jpeg_is_what_a_file_would_be(quality, random):
    image = tissue(random, 64, 96)
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, "JPEG", quality=quality, subsampling=2)
    expected = np.asarray(Image.open(stream)).astype(int)
    found = BY_NAME[f"JPEG: quality {quality}"](image).astype(int)
    assert np.abs(found - expected).mean() < 2
    assert np.abs(found - expected).mean() < np.abs(found - image).mean()


def test_stains_change_concentrations_and_leave_glass():
    glass = np.full((8, 8, 3), 255, dtype=np.uint8)
    haematoxylin = np.array([0.650, 0.704, 0.286])
    pixel = 256 * np.exp(-haematoxylin / np.linalg.norm(haematoxylin)) - 1
    image = np.tile(pixel.round().astype(np.uint8), (8, 8, 1))
    stronger = BY_NAME["stain: H +40 %, E −40 %"]
    assert np.array_equal(stronger(glass), glass)
    expected = 256 * np.exp(-1.4 * haematoxylin / np.linalg.norm(haematoxylin)) - 1
    np.testing.assert_allclose(stronger(image)[0, 0], expected, atol=2)


def test_rows_pool_the_sections(random):
    schema = schema_for(3)
    sections = [[random.integers(1, 50, (3, 3)) for _ in range(len(DEGRADATIONS) + 1)] for _ in range(4)]
    rows = robustness_rows(sections, schema)
    assert [row.name for row in rows] == ["as it is", *BY_NAME]
    for index, row in enumerate(rows):
        counts = sum(section[index] for section in sections).astype(float)
        hits, true, called = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
        assert row.pixel_accuracy == pytest.approx(hits.sum() / counts.sum())
        assert row.iou == pytest.approx((hits / (true + called - hits)).mean())
        assert row.dice == pytest.approx((2 * hits / (true + called)).mean())
        assert row.iou_change == pytest.approx(row.iou - rows[0].iou)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_gpu_degrades_alike(random):
    image = tissue(random, 150, 101)
    for degradation in DEGRADATIONS:
        assert np.abs(degradation(image).astype(int) - degradation(image, "cuda")).max() <= 2
