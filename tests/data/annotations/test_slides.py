import os
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import tifffile
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from ntrm.data.annotations import slides
from ntrm.data.annotations.rasterise import Grid
from ntrm.data.annotations.slides import OpenSlideSlide, PlainImage, area_mean, open_slide, read_grid
from ntrm.data.shrink import area_average
from ntrm.errors import DataError
from ntrm.resolution import Resolution

REAL = os.environ.get("NTRM_REAL_DATA")
needs_real = pytest.mark.skipif(not REAL, reason="NTRM_REAL_DATA names no folder with real slides")

seeds = st.integers(0, 2**32 - 1)


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
        patch.setattr(slides, "BLOCK", block)
        image = read_grid(PlainImage(pixels, None), Grid(left, top, factor, factor, width, height))
    assert np.array_equal(image, area_average(cut, factor, factor))


@pytest.mark.parametrize("step", [Fraction(24, 25), Fraction(21, 20), Fraction(5, 2)])
def test_steps_near_one_are_averaged_as_well(step, random):
    pixels = random.integers(0, 256, (50, 50, 3), dtype=np.uint8)
    count = int(48 / step)
    image = read_grid(PlainImage(pixels, None), Grid(0, 0, float(step), float(step), count, count))
    fine = step.denominator
    slivers = np.repeat(np.repeat(pixels.astype(float), fine, axis=0), fine, axis=1)[: count * step.numerator]
    cells = slivers[:, : count * step.numerator].reshape(count, step.numerator, count, step.numerator, 3)
    assert np.abs(image - cells.mean(axis=(1, 3))).max() <= 0.5 + 1e-6


def test_reading_never_leaves_the_slide():
    class Strict(PlainImage):
        def read(self, left, top, width, height):
            assert left >= 0
            assert top >= 0
            assert left + width <= self.size[0]
            assert top + height <= self.size[1]
            return super().read(left, top, width, height)

    step = 0.1 + 0.2  # 0.30000000000000004: sums of it exceed the true border
    slide = Strict(np.full((30, 30, 3), 77, dtype=np.uint8), None)
    assert (read_grid(slide, Grid(0, 0, step, step, 100, 100)) == 77).all()


def write_tiff(path: Path, **options) -> Path:
    tifffile.imwrite(path, np.full((20, 30, 3), 200, dtype=np.uint8), photometric="rgb", **options)
    return path


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"resolution": (20000, 20000), "resolutionunit": "CENTIMETER", "metadata": None}, Resolution(0.5, 0.5)),
        ({"resolution": (25400, 12700), "resolutionunit": "INCH", "metadata": None}, Resolution(1.0, 2.0)),
        ({"resolution": (20000, 20000), "resolutionunit": "NONE", "metadata": None}, None),
        ({"resolution": (72, 72), "resolutionunit": "INCH", "metadata": None}, None),
        ({"resolution": (96, 96), "resolutionunit": "INCH", "metadata": None}, None),
        ({"resolution": (0, 0), "resolutionunit": "INCH", "metadata": None}, None),
        ({"metadata": None}, None),
        ({"ome": True, "metadata": {"PhysicalSizeX": 0.25, "PhysicalSizeY": 0.26}}, Resolution(0.25, 0.26)),
        ({"ome": True, "metadata": {"PhysicalSizeX": 0.25, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.25}}, 0.25),
        ({"ome": True, "metadata": {"PhysicalSizeX": 250, "PhysicalSizeXUnit": "nm", "PhysicalSizeY": 250}}, None),
        ({"ome": True, "metadata": {"PhysicalSizeX": 0.25}}, None),
    ],
    ids=["cm", "inch", "no-unit", "72dpi", "96dpi", "zero", "none", "ome", "ome-unit", "ome-nm", "ome-x-only"],
)
def test_only_credible_resolution_tags_count(tmp_path, options, expected):
    with open_slide(write_tiff(tmp_path / "a.tif", **options)) as slide:
        found = slide.resolution
        assert slide.size == (30, 20)
    if expected is None:
        assert found is None
    else:
        assert found.same_as(expected if isinstance(expected, Resolution) else Resolution.square(expected), 1e-6)


def test_a_png_carries_no_resolution(tmp_path):
    Image.new("RGB", (8, 6), (1, 2, 3)).save(tmp_path / "a.png", dpi=(25400, 25400))
    with open_slide(tmp_path / "a.png") as slide:
        assert slide.resolution is None
        assert slide.read(2, 1, 4, 3).tolist() == [[[1, 2, 3]] * 4] * 3


class PartlyScanned:
    """Stands in for a slide of which OpenSlide states that only a part was scanned."""

    dimensions = (100, 80)

    def __init__(self, **properties):
        bounds = {"bounds-x": "10", "bounds-y": "20", "bounds-width": "50", "bounds-height": "40"}
        self.properties = {f"openslide.{key}": value for key, value in {**bounds, **properties}.items()}

    def read_region(self, corner, level, size):
        assert level == 0
        self.corner = corner
        return Image.new("RGBA", size, (0, 0, 0, 0))


def test_pixels_count_from_the_scanned_part_as_in_qupath():
    handle = PartlyScanned(**{"mpp-x": "0.25", "mpp-y": "0.25", "background-color": "0A0B0C"})
    slide = OpenSlideSlide(handle, Path("a.mrxs"))
    assert slide.size == (50, 40)
    assert slide.origin == (10, 20)
    assert slide.resolution == Resolution(0.25, 0.25)
    assert slide.read(1, 2, 3, 4).tolist() == [[[10, 11, 12]] * 3] * 4
    assert handle.corner == (11, 22)


@pytest.mark.parametrize("mpp", [{}, {"mpp-x": "352.8", "mpp-y": "352.8"}, {"mpp-x": "?", "mpp-y": "0.5"}])
def test_incredible_metadata_is_no_resolution(mpp):
    assert OpenSlideSlide(PartlyScanned(**mpp), Path("a.mrxs")).resolution is None


@needs_real
@pytest.mark.parametrize("name", ["broken.svs", "unopenable.tiff", "nowhere.svs"])
def test_unreadable_slides_are_refused(name):
    with pytest.raises(DataError) as caught, open_slide(Path(REAL, "slides", name)):
        pass
    assert name in str(caught.value)
    assert caught.value.mend


@needs_real
def test_a_printers_resolution_in_a_real_slide_is_none():
    with open_slide(Path(REAL, "slides", "boxes.tiff")) as slide:
        assert slide.size == (300, 250)
        assert slide.resolution is None


def test_plain_images_need_no_openslide(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openslide", None)
    with open_slide(write_tiff(tmp_path / "a.tif", metadata=None)) as slide:
        assert (slide.read(0, 0, 30, 20) == 200).all()
