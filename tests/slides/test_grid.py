"""The model's grid: the same pixels however windows are cut, exact places, no guessed µm/px."""

import numpy as np
import pytest
from tests.slides import making

from ntrm.core.errors import RefusedError
from ntrm.core.mpp import Resolution
from ntrm.data.resample import area_average, shrunk_length
from ntrm.slides import grid as grid_module
from ntrm.slides.grid import SlideGrid, best_level, check_cost, thumbnail
from ntrm.slides.readers.formats import open_slide
from ntrm.slides.readers.reader import SlideInfo, SlideLevel


def whole(grid):
    return grid.read(0, 0, grid.height, grid.width)


@pytest.mark.parametrize("write", [making.write_strips, making.write_png])
@pytest.mark.parametrize("model", [0.5, 1.0, 2.0, 1.34, 6.7])
def test_every_pixel_is_the_mean_over_its_area(write, model, tmp_path, random):
    image = making.tissue(random, 301, 211)
    grid = SlideGrid(open_slide(write(tmp_path / "a", image)), model, Resolution(0.5, 0.5))
    factor = model / 0.5
    wanted = area_average(image, factor, factor)
    assert (grid.height, grid.width) == wanted.shape[:2] == (shrunk_length(301, factor), shrunk_length(211, factor))
    apart = np.abs(whole(grid).astype(int) - wanted)
    # Borders of areas lie on 1/64 of a pixel; where the factor is whole, nothing is rounded but the result.
    assert apart.max() <= (0 if float(factor).is_integer() else 2)


def test_windows_show_the_same_pixels_however_they_are_cut(tmp_path, random, monkeypatch):
    monkeypatch.setattr(grid_module, "BLOCK_PIXELS", 90 * 90)
    slide = open_slide(making.write_tiled(tmp_path / "a.tif", making.tissue(random, 433, 577)))
    for model in (0.5, 1.34, 3.3):
        wanted = whole(SlideGrid(slide, model))
        padded = np.pad(wanted, ((10, 120), (10, 120), (0, 0)), constant_values=255)
        grid = SlideGrid(slide, model)
        for _ in range(30):
            top, left = (int(random.integers(-10, side)) for side in wanted.shape[:2])
            height, width = (int(number) for number in random.integers(1, 120, 2))
            found = grid.read(top, left, height, width)
            np.testing.assert_array_equal(found, padded[10 + top :, 10 + left :][:height, :width])


def test_oblong_pixels_become_square(tmp_path, random):
    image = making.tissue(random, 100, 300)
    grid = SlideGrid(open_slide(making.write_ome(tmp_path / "a", image, (0.25, 0.5), levels=1)), 1.0)
    assert (grid.height, grid.width) == (50, 75)
    assert grid.to_level0 == (4.0, 2.0, 0.0, 0.0)
    np.testing.assert_array_equal(whole(grid), area_average(image, 2, 4))


def test_the_grid_covers_the_scanned_part(tmp_path, random):
    image = making.tissue(random, 200, 260)
    slide = open_slide(making.write_scn(tmp_path / "a.scn", image, offset=(300, 200)))
    for model, factor in ((0.5, 1), (2.0, 4)):
        grid = SlideGrid(slide, model)
        assert grid.to_level0 == (factor, factor, 300.0, 200.0)
        assert (grid.height, grid.width) == (200 // factor, 260 // factor)
        apart = np.abs(whole(grid).astype(int) - area_average(image, factor, factor))
        assert apart.max() <= (0 if factor == 1 else 1)  # the level's own rounding


def test_the_best_level_is_read_and_gives_nearly_the_same(tmp_path, random):
    image = making.tissue(random, 512, 768)
    slide = open_slide(making.write_ome(tmp_path / "a", image))
    assert [best_level(slide.info, factor, factor) for factor in (0.9, 1, 1.99, 2, 3.9, 4, 30)] == [0, 0, 0, 1, 1, 2, 2]
    assert best_level(slide.info, 4, 2) == 1
    for model in (1.0, 1.7, 2.0, 3.1):
        grid = SlideGrid(slide, model)
        factor = model / 0.5
        apart = np.abs(whole(grid).astype(float) - area_average(image, factor, factor))
        assert apart.mean() < 1.0
        assert apart.max() <= 8


def test_a_coarser_slide_is_interpolated_and_a_far_coarser_one_refused(tmp_path, random):
    line = random.integers(0, 256, 40, dtype=np.uint8)
    image = np.ascontiguousarray(np.broadcast_to(line[None, :, None], (30, 40, 3)))
    slide = open_slide(making.write_png(tmp_path / "a.png", image))
    grid = SlideGrid(slide, 6.0, Resolution(8.0, 8.0))
    assert (grid.height, grid.width) == (40, 53)
    centres = (np.arange(53) + 0.5) * 0.75 - 0.5
    np.testing.assert_allclose(whole(grid)[7, :, 0], np.interp(centres, np.arange(40), line), atol=0.5 + 255 / 64)
    with pytest.raises(RefusedError, match="too coarse"):
        SlideGrid(slide, 1.34, Resolution(8.0, 8.0))


def test_no_resolution_is_ever_guessed(tmp_path, random):
    image = making.tissue(random, 40, 50)
    silent = open_slide(making.write_png(tmp_path / "a.png", image))
    with pytest.raises(RefusedError, match="does not state its µm per pixel") as caught:
        SlideGrid(silent, 6.7)
    assert caught.value.exit_code == 3
    assert "--mpp" in caught.value.hint
    absurd = open_slide(making.write_strips(tmp_path / "a.tif", image, 352.8))
    with pytest.raises(RefusedError, match="not plausible") as caught:
        SlideGrid(absurd, 6.7)
    assert "352.8" in caught.value.got
    assert caught.value.expected == "0.05 to 20 µm/px in the file's metadata, or 0.05 to 100 µm/px given"
    assert SlideGrid(absurd, 6.7, Resolution(6.7, 6.7)).record().slide_mpp_from == "given"


def test_what_is_given_counts_before_what_the_file_says(tmp_path, random):
    slide = open_slide(making.write_strips(tmp_path / "a.tif", making.tissue(random, 40, 50), 0.5))
    grid = SlideGrid(slide, 2.0, Resolution(1.0, 1.0))
    assert (grid.height, grid.width, grid.to_level0[:2]) == (20, 25, (2.0, 2.0))
    assert grid.warnings == ("the file says 0.5 µm/px, but 1 µm/px was given and used",)
    for same in (None, Resolution(0.5, 0.51)):
        assert SlideGrid(slide, 2.0, same).warnings == ()
    silent = open_slide(making.write_png(tmp_path / "a.png", making.tissue(random, 40, 50)))
    assert SlideGrid(silent, 2.0, Resolution(1.0, 1.0)).warnings == ()


def test_rounded_tags_do_not_blur(tmp_path, random):
    image = making.tissue(random, 200, 300)
    grid = SlideGrid(open_slide(making.write_strips(tmp_path / "a.tif", image, 6.7001)), 6.7)
    assert grid.to_level0 == (1.0, 1.0, 0.0, 0.0)
    assert grid.resolution.x == pytest.approx(6.7001)
    np.testing.assert_array_equal(whole(grid), image)
    assert SlideGrid(open_slide(making.write_strips(tmp_path / "b.tif", image, 6.6)), 6.7).to_level0[0] > 1.01


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (3, 2), (70, 1)])
def test_tiny_slides(size, tmp_path, random):
    image = making.tissue(random, *size)
    grid = SlideGrid(open_slide(making.write_png(tmp_path / "a.png", image)), 6.7, Resolution(0.5, 0.5))
    found = grid.read(0, 0, 64, 64)
    assert found.shape == (64, 64, 3)
    wanted = area_average(image, 13.4, 13.4)
    np.testing.assert_allclose(found[: grid.height, : grid.width], wanted[:64, :64], atol=2)
    assert (found[grid.height :] == 255).all()


def test_thumbnails(tmp_path, random):
    image = making.tissue(random, 402, 600)
    slide = open_slide(making.write_ome(tmp_path / "a", image))
    small, resolution = thumbnail(SlideGrid(slide, 0.7), 8.0)
    assert small.shape == (25, 38, 3)
    assert resolution == Resolution(8.0, 8.0)
    np.testing.assert_allclose(small[:, :-1], area_average(image, 16, 16)[:, :-1], atol=3)
    again, _ = thumbnail(SlideGrid(slide, 1.0), 8.0)
    np.testing.assert_array_equal(again, small)
    own, resolution = thumbnail(SlideGrid(slide, 0.7), 0.1)  # never finer than the slide
    np.testing.assert_array_equal(own, image)
    assert resolution == Resolution(0.5, 0.5)
    png = open_slide(making.write_png(tmp_path / "b", image))
    given, resolution = thumbnail(SlideGrid(png, 6.7, Resolution(5.0, 5.0)), 10.0)
    assert (given.shape, resolution) == ((201, 300, 3), Resolution(10.0, 10.0))


FINE, MODEL = Resolution.square(0.25), 6.7
GB = 10**9


def slide(width, height, factors=(1,), vendor="tiff", bounds=None):
    levels = tuple(SlideLevel(-(-width // k), -(-height // k), float(k)) for k in factors)
    return SlideInfo("tifffile", vendor, levels, (0.25, 0.25), bounds)


PYRAMID = (1, 2, 4, 8, 16, 32)


@pytest.mark.parametrize(
    ("info", "mpp", "model_mpp", "size"),
    [
        pytest.param(slide(200_000, 100_000, PYRAMID), FINE, MODEL, GB, id="a glass at 40x"),
        pytest.param(slide(200_000, 100_000), FINE, MODEL, GB, id="without coarse levels"),
        pytest.param(slide(262_144, 262_144, PYRAMID), FINE, MODEL, 10**5, id="nearly all glass, with its levels"),
        pytest.param(slide(200_000, 100_000, PYRAMID, "mirax"), FINE, 0.25, 10**5, id="in several files"),
        pytest.param(slide(262_144, 262_144, bounds=(5, 5, 9_000, 9_000)), FINE, MODEL, 10**5, id="a scanned part"),
        pytest.param(slide(15_000, 15_000), Resolution.square(6.7), MODEL, 10**5, id="a section of ten centimetres"),
    ],
)
def test_slides_as_scanners_make_them_are_not_refused(info, mpp, model_mpp, size):
    check_cost(info, mpp, model_mpp, size)


@pytest.mark.parametrize(
    ("info", "mpp", "size", "what"),
    [
        pytest.param(slide(262_144, 262_144), FINE, 66_000, "would have to be read", id="66 kB, every pixel to read"),
        pytest.param(slide(100_000, 100_000), FINE, 10**6, "more than its file", id="few bytes"),
        pytest.param(slide(2**24, 2**24, PYRAMID), FINE, GB, "larger than any glass", id="4 m wide"),
    ],
)
def test_what_would_take_minutes_for_nothing_is_refused_with_a_hint(info, mpp, size, what):
    with pytest.raises(RefusedError, match=what) as caught:
        check_cost(info, mpp, MODEL, size)
    assert caught.value.got
    assert caught.value.expected
    assert caught.value.hint
