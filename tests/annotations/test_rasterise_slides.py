from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wsi import making

from ntrm.annotations import rasterise
from ntrm.annotations.rasterise import Grid, Slide, area_mean, read_grid
from ntrm.core.mpp import Resolution
from ntrm.data.resample import area_average
from ntrm.wsi.readers.formats import open_slide
from ntrm.wsi.readers.reader import SlideInfo, SlideLevel

seeds = st.integers(0, 2**32 - 1)


class InMemory:
    """Stands for a reader, and never lets itself be asked for what lies outside."""

    def __init__(self, pixels):
        height, width, _ = pixels.shape
        self.pixels = pixels
        self.info = SlideInfo("array", "array", (SlideLevel(width, height, 1.0),))

    def read(self, x, y, width, height, level):
        assert level == 0
        part = self.pixels[y : y + height, x : x + width]
        assert (min(x, y) >= 0, part.shape) == (True, (height, width, 3))
        return part


@settings(max_examples=60, deadline=None)
@given(seed=seeds, step=st.fractions(Fraction(1, 2), 5, max_denominator=6), cells=st.integers(1, 8))
def test_means_over_areas_match_counting_fine_cells(seed, step, cells):
    # Cut every value into as many equal slivers as the step's denominator: then borders fall between slivers.
    fine = step.denominator
    values = np.random.default_rng(seed).integers(0, 256, (int(np.ceil(step * cells)) + 1, 2))
    slivers = np.repeat(values, fine, axis=0)[: step.numerator * cells]
    expected = slivers.reshape(cells, step.numerator, 2).mean(axis=1)
    assert np.allclose(area_mean(values, float(step) * np.arange(cells + 1)), expected, atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, factor=st.integers(1, 4), left=st.integers(0, 5), top=st.integers(0, 5), block=st.integers(1, 40))
def test_whole_factors_are_block_means_whatever_is_read_at_once(seed, factor, left, top, block):
    pixels = np.random.default_rng(seed).integers(0, 256, (37, 45, 3), dtype=np.uint8)
    width, height = (45 - left) // factor, (37 - top) // factor
    cut = pixels[top : top + factor * height, left : left + factor * width]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rasterise, "BLOCK", block)
        image = read_grid(Slide(InMemory(pixels)), Grid(left, top, factor, factor, width, height))
    assert np.array_equal(image, area_average(cut, factor, factor))


@pytest.mark.parametrize("step", [Fraction(24, 25), Fraction(21, 20), Fraction(5, 2)])
def test_steps_near_one_are_averaged_as_well(step):
    pixels = np.random.default_rng().integers(0, 256, (50, 50, 3), dtype=np.uint8)
    count = int(48 / step)
    image = read_grid(Slide(InMemory(pixels)), Grid(0, 0, float(step), float(step), count, count))
    fine = step.denominator
    slivers = np.repeat(np.repeat(pixels.astype(float), fine, axis=0), fine, axis=1)[: count * step.numerator]
    cells = slivers[:, : count * step.numerator].reshape(count, step.numerator, count, step.numerator, 3)
    assert np.abs(image - cells.mean(axis=(1, 3))).max() <= 0.5 + 1e-6


def test_reading_never_leaves_the_slide():
    step = 0.1 + 0.2  # 0.30000000000000004: sums of it exceed the true border
    slide = Slide(InMemory(np.full((30, 30, 3), 77, dtype=np.uint8)))
    assert (read_grid(slide, Grid(0, 0, step, step, 100, 100)) == 77).all()


def test_pixels_count_from_the_scanned_part_as_in_qupath(tmp_path, random):
    image = making.tissue(random, 128, 192)
    reader = open_slide(making.write_scn(tmp_path / "a.scn", image, offset=(300, 200)))
    slide = Slide(reader)
    assert (slide.origin, slide.size) == ((300, 200), (192, 128))
    assert slide.resolution == reader.info.resolution
    assert isinstance(slide.resolution, Resolution)
    np.testing.assert_array_equal(slide.read(10, 20, 30, 40), reader.read(310, 220, 30, 40, 0))
    reader.close()
