"""Scanners' files are what OpenSlide reads; tiles of a plain TIFF have the pixels that it gives."""

from contextlib import closing

import numpy as np
import pytest
import tifffile
from tests.slides import making
from tests.slides.readers.test_formats import openslide_pixels

from ntrm.core.errors import DataError
from ntrm.slides.readers.formats import open_slide
from ntrm.slides.readers.openslide_reader import OpenSlideReader

pytest.importorskip("openslide")


TEXT = "Aperio Image Library v11.2.1 \r\n{w}x{h} [0,0 {w}x{h}] (64x64) |MPP = 0.5"


@pytest.mark.parametrize("size", [(256, 384), (301, 403)], ids=["even", "odd"])
@pytest.mark.parametrize("compression", [None, "jpeg"])
def test_tiles_of_a_plain_tiff_have_the_pixels_of_openslide(size, compression, tmp_path, random):
    path = making.write_tiled(tmp_path / "a.tif", making.tissue(random, *size), compression=compression)
    with closing(open_slide(path)) as ours, closing(OpenSlideReader(path)) as theirs:
        assert (ours.info.reader, ours.info.vendor, ours.info.resolution) == (
            "tifffile",
            "tiff",
            theirs.info.resolution,
        )
        for level, one in enumerate(theirs.info.levels):
            assert (one.width, one.height) == (ours.info.levels[level].width, ours.info.levels[level].height)
            for _ in range(12):
                column, row = (int(random.integers(0, side // 16)) * 16 for side in (one.width, one.height))
                factor = 2**level
                region = column * factor, row * factor, one.width - column, one.height - row, level
                if one.downsample.is_integer():
                    np.testing.assert_array_equal(ours.read(*region), theirs.read(*region))


@pytest.mark.parametrize("compression", [None, "jpeg", 33005])
def test_what_a_scanner_wrote_is_openslides(compression, tmp_path, random):
    image = making.tissue(random, 256, 384)
    about = {"description": TEXT.format(w=384, h=256), "photometric": "rgb", "metadata": None}
    with tifffile.TiffWriter(tmp_path / "a.svs") as tif:
        tif.write(image, tile=(64, 64), compression=compression, **about)
        tif.write(image[::8, ::8], rowsperstrip=16, **about)
    paths = [(tmp_path / "a.svs", "aperio"), (making.write_scn(tmp_path / "a.scn", image), "leica")]
    for path, vendor in paths:
        with closing(open_slide(path)) as slide:
            assert (slide.info.reader, slide.info.vendor) == ("openslide", vendor)
            x, y, *_ = slide.info.area
            for region in ((x + 17, y + 5, 90, 80, 0), (x, y, 384, 256, 0)):
                np.testing.assert_array_equal(slide.read(*region), openslide_pixels(path, *region))


def test_a_grey_tiff_is_left_to_openslide(tmp_path, random):
    image = making.tissue(random, 128, 128)[..., 0]
    tifffile.imwrite(tmp_path / "a.tif", image, tile=(64, 64), photometric="minisblack", metadata=None)
    with closing(open_slide(tmp_path / "a.tif")) as slide:
        assert slide.info.reader == "openslide"
        np.testing.assert_array_equal(slide.read(0, 0, 128, 128, 0), image[..., None].repeat(3, axis=2))


def test_a_pyramid_that_openslide_does_not_see_has_its_levels(tmp_path, random):
    images = making.pyramid(making.tissue(random, 301, 403), 3)
    path = making.write_levels(tmp_path / "a.tif", images, subifds=True, compression="zlib", **making.per_cm(0.5))
    with closing(open_slide(path)) as slide:
        for level, wanted in enumerate(images):
            height, width = wanted.shape[:2]
            np.testing.assert_array_equal(slide.read(0, 0, width, height, level), wanted)


def test_a_picture_of_another_shape_is_no_level(tmp_path, random):
    """A label or a preview may lie in a SubIFD, too."""
    images = [making.tissue(random, 256, 384), np.full((100, 100, 3), 7, dtype=np.uint8)]
    path = making.write_levels(tmp_path / "a.tif", images, subifds=True, **making.per_cm(0.5))
    assert len(open_slide(path).info.levels) == 1


def test_tiles_that_openslide_would_die_of_never_reach_it(tmp_path, random):
    path = making.write_tiled(tmp_path / "a.tif", making.tissue(random, 150, 211), levels=1)
    with tifffile.TiffFile(path, mode="r+") as tif:
        tif.pages[0].tags["TileLength"].overwrite(2**15 * 64)
    with pytest.raises(DataError, match="tiles of 64 × 2097152 pixels"):
        OpenSlideReader(path)
    with pytest.raises(DataError, match="cannot read the slide"):
        open_slide(path).read(0, 0, 200, 100, 0)


@pytest.mark.parametrize(("compression", "region"), [(33005, (37, 101, 200, 250, 0)), ("jpeg", (64, 32, 90, 170, 1))])
def test_strips_read_side_by_side_are_the_region_read_whole(compression, region, tmp_path, random):
    image = making.tissue(random, 400, 400)
    path = tmp_path / "a.svs"
    text = TEXT.format(w=400, h=400)
    with tifffile.TiffWriter(path) as tif:
        for level in (image, image[::4, ::4]):
            tif.write(level, tile=(64, 64), description=text, photometric="rgb", metadata=None, compression=compression)
    slide = OpenSlideReader(path)
    slide._threads = 3
    np.testing.assert_array_equal(slide.read(*region), openslide_pixels(path, *region))
    slide.close()
