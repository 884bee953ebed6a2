"""What a slide looks like: each number against literal loops, whatever the tiles and the size of the mask."""

import math

import numpy as np
import pytest
import torch
from tests.segment.small import write_slide

from ntrm.core.errors import DataError
from ntrm.core.mpp import Resolution
from ntrm.correct import texture
from ntrm.correct.texture import Texture, blurred, blurred_by_torch, is_tissue, numbers_of, read_texture, texture_at
from ntrm.data.image_files import write_image
from ntrm.slides.grid import SlideGrid
from ntrm.slides.isolated import open_isolated


def noise(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture
def grid(tmp_path):
    """A slide of 1 µm/px and its grid at 7 µm/px."""
    write_image(tmp_path / "slide.tif", noise(1, 210, 280, 3), Resolution.square(1.0))
    reader = open_isolated(tmp_path / "slide.tif")
    yield SlideGrid(reader, 7.0)
    reader.close()


def weights(sigma):
    radius = int(3 * sigma + 0.5)
    plain = [math.exp(-0.5 * (k / sigma) ** 2) for k in range(-radius, radius + 1)]
    return np.array(plain) / sum(plain), radius


def literal_blur(values, sigma):
    own, radius = weights(sigma)
    out = np.zeros_like(values)
    for y, x in np.ndindex(values.shape):
        for i, j in np.ndindex(2 * radius + 1, 2 * radius + 1):
            row, column = np.clip([y + i - radius, x + j - radius], 0, np.array(values.shape) - 1)
            out[y, x] += own[i] * own[j] * values[row, column]
    return out


def test_each_filter_is_its_formula():
    pixels = noise(2, 20, 20, 3)
    found = texture_at(pixels, (1.0,), 2, 6)
    density = -np.log10((pixels[..., 1].astype(float) + 1) / 256)
    smooth = literal_blur(density, 1.0)
    deviation = np.sqrt(literal_blur((density - smooth) ** 2, 2.0))
    expected = np.zeros((4, 4, 4))
    for row, column in np.ndindex(4, 4):
        for y, x in np.ndindex(2, 2):
            at, to = 6 + 2 * row + y, 6 + 2 * column + x
            down, across = smooth[at + 1, to] - smooth[at - 1, to], smooth[at, to + 1] - smooth[at, to - 1]
            around = smooth[at + 1, to] + smooth[at - 1, to] + smooth[at, to + 1] + smooth[at, to - 1]
            own = [smooth[at, to], math.hypot(down, across) / 2, abs(around - 4 * smooth[at, to]), deviation[at, to]]
            expected[row, column] += np.array(own) / 4
    np.testing.assert_allclose(found.reshape(4, 4, 4, 3)[..., 1], expected, atol=2e-6)


@pytest.mark.parametrize("sigma", [1.0, 2.0, 8.0])
def test_both_blurs_are_the_same(sigma):
    values = np.random.default_rng(3).random((2, 30, 41), dtype=np.float32)
    by_torch = blurred_by_torch(torch.from_numpy(values), sigma).numpy()
    np.testing.assert_allclose(by_torch, blurred(values, sigma), atol=1e-6)


def test_texture_does_not_depend_on_the_tiles(grid, monkeypatch):
    labels = np.zeros((30, 40), dtype=np.uint8)
    whole = read_texture(grid, labels, None)
    monkeypatch.setattr(texture, "TILE", 8)
    tiled = read_texture(grid, labels, None)
    assert whole.zooms == tiled.zooms == (7, 4)
    assert whole.basis.shape == (texture.COMPONENTS, numbers_of(whole.zooms))
    # Components may differ in what rounding makes of nearly equal ones; what they span does not.
    np.testing.assert_allclose(tiled.singles @ tiled.basis, whole.singles @ whole.basis, atol=0.05)


def test_numbers_are_standardised_over_the_tissue_and_smoothed(grid, monkeypatch):
    monkeypatch.setattr(texture, "COMPONENTS", 48)
    monkeypatch.setattr(texture, "SMOOTH", 0.0)
    labels = np.zeros((30, 40), dtype=np.uint8)
    labels[:, :9] = 2
    found = read_texture(grid, labels, 2)
    numbers = (found.singles @ found.basis)[(labels != 2).ravel()]
    np.testing.assert_allclose(numbers.mean(axis=0), 0, atol=1e-3)
    deviation = numbers.std(axis=0)
    np.testing.assert_allclose(deviation, deviation[0], rtol=2e-3)
    # In the unit of the first component's deviation.
    assert found.singles[(labels != 2).ravel(), 0].std() == pytest.approx(1, rel=2e-3)


def test_blocks_without_tissue_are_not_read(grid, monkeypatch):
    monkeypatch.setattr(texture, "TILE", 8)
    labels = np.full((30, 40), 2, dtype=np.uint8)
    labels[9:14, 17:20] = 0
    found = read_texture(grid, labels, 2)
    assert np.argwhere(found.known).tolist() == [[1, 2]]
    np.testing.assert_array_equal(np.argwhere(found.is_known())[[0, -1]], [[8, 16], [15, 23]])
    assert is_tissue(np.full((2, 2), 2, np.uint8), 2).all()


def test_large_masks_have_coarser_features(grid, monkeypatch):
    labels = np.zeros((30, 40), dtype=np.uint8)
    fine = read_texture(grid, labels, None)
    monkeypatch.setattr(texture, "MOST_PIXELS", 400)
    coarse = read_texture(grid, labels, None)
    assert (fine.step, coarse.step, coarse.values.shape[:2]) == (1, 2, (15, 20))
    assert coarse.at(np.array([41])).shape == (1, numbers_of(coarse.zooms))
    np.testing.assert_array_equal(coarse.at(np.array([0])), coarse.at(np.array([41])))


def test_a_slide_without_finer_pixels_is_read_as_it_is(tmp_path):
    write_slide(tmp_path / "a.tif", np.zeros((64, 64), dtype=np.uint8))
    reader = open_isolated(tmp_path / "a.tif")
    found = read_texture(SlideGrid(reader, 6.7), np.zeros((64, 64), dtype=np.uint8), None)
    reader.close()
    assert found.zooms == (1,)
    assert np.isfinite(found.values).all()


def test_what_was_kept_is_read_and_damage_is_refused(grid, tmp_path):
    found = read_texture(grid, np.zeros((30, 40), dtype=np.uint8), None)
    path = tmp_path / "texture.npz"
    found.save(path, "mask")
    again = Texture.read(path, "mask")
    np.testing.assert_array_equal(again.values, found.values)
    assert (again.shape, again.step, again.zooms) == (found.shape, found.step, found.zooms)
    with pytest.raises(DataError, match="texture"):
        Texture.read(path, "another mask")
    whole = path.read_bytes()
    for content in (b"", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(DataError):
            Texture.read(path, "mask")
    Texture((30, 40), 2, found.zooms, found.known, found.basis, found.values).save(path, "mask")
    with pytest.raises(DataError, match="texture"):
        Texture.read(path, "mask")
