"""Pillow reads what was written: pixels, palettes and transparency, whatever the number of threads."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from ntrm.core import png
from ntrm.core.errors import UsageError
from ntrm.core.png import palette_pngs, photo_png


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    flat = np.full((height, width, 3), 243, dtype=np.uint8)
    flat[height // 3 :, width // 4 :] = rng.integers(0, 256, (height - height // 3, width - width // 4, 3))
    return flat


@pytest.mark.parametrize("size", [(1, 1), (1, 7), (9, 1), (40, 33)])
def test_pillow_reads_the_very_pixels_of_a_picture(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(png, "BAND_BYTES", 500)
    pixels = picture(*size)
    with Image.open(BytesIO(photo_png(pixels, threads=2))) as read:
        assert read.mode == "RGB"
        assert np.array_equal(np.asarray(read), pixels)


def test_a_view_of_a_picture_is_written_as_it_is_seen():
    pixels = picture(30, 20)[::2, ::-1]
    with Image.open(BytesIO(photo_png(pixels))) as read:
        assert np.array_equal(np.asarray(read), pixels)


def test_the_bytes_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(png, "BAND_BYTES", 1000)
    pixels = picture(60, 50)
    assert len({photo_png(pixels, threads=count) for count in (1, 2, 5)}) == 1


def test_labels_have_the_colours_of_each_palette_and_are_transparent_where_asked():
    labels = np.array([[0, 1], [2, 1]], dtype=np.uint8)
    palettes = [[(0, 0, 0), (255, 0, 0), (0, 255, 0)], [(0, 0, 0), (1, 2, 3), (4, 5, 6)]]
    for content, palette in zip(palette_pngs(labels, palettes, bytes([0, 255, 255])), palettes, strict=True):
        with Image.open(BytesIO(content)) as read:
            assert np.array_equal(np.asarray(read), labels)
            rgba = np.asarray(read.convert("RGBA"))
        assert np.array_equal(rgba[..., :3], np.array(palette, dtype=np.uint8)[labels])
        assert np.array_equal(rgba[..., 3], np.where(labels == 0, 0, 255))


@pytest.mark.parametrize("wrong", [np.zeros((3, 3), np.uint8), np.zeros((3, 3, 3)), np.zeros((0, 3, 3), np.uint8)])
def test_what_is_no_picture_is_refused(wrong: np.ndarray):
    with pytest.raises(UsageError, match="no pixels for a PNG file"):
        photo_png(wrong)
