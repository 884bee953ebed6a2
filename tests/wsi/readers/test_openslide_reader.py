"""What is read from tiles is what OpenSlide gives, to the last bit; where that is not so, OpenSlide reads."""

import numpy as np
import pytest
import tifffile
from tests.helpers import real_data
from tests.wsi import making
from tests.wsi.readers.test_formats import openslide_pixels

from ntrm.core.errors import DataError, UsageError
from ntrm.wsi.readers import openslide_reader
from ntrm.wsi.readers.formats import open_slide
from ntrm.wsi.readers.openslide_reader import OpenSlideReader

pytest.importorskip("openslide")
MIXED = "openslide+tifffile"


def agrees(path, random, windows=12):
    """Compare random windows of every level, also those that lie between its pixels or reach beyond it."""
    slide, own = open_slide(path), OpenSlideReader(path)
    assert slide.info.levels == own.info.levels
    assert (slide.info.resolution, slide.info.bounds) == (own.info.resolution, own.info.bounds)
    for level, size in enumerate(slide.info.levels):
        for number in range(windows):
            column, row = (int(random.integers(-10, side)) for side in (size.width, size.height))
            x, y = round(column * size.downsample), round(row * size.downsample)
            region = (x + number % 3, y, *(int(n) for n in random.integers(1, 90, 2)), level)
            np.testing.assert_array_equal(slide.read(*region), own.read(*region))
    slide.close()
    own.close()
    return slide


@pytest.mark.parametrize("size", [(256, 384), (301, 403)], ids=["even", "odd"])
@pytest.mark.parametrize("compression", [None, "zlib", "lzw", "jpeg"])
def test_tiles_give_the_pixels_of_openslide(size, compression, tmp_path, random):
    image = making.tissue(random, *size)
    slide = agrees(making.write_tiled(tmp_path / "a.tif", image, compression=compression), random)
    assert slide.info.reader == MIXED
    assert (slide.info.vendor, slide.info.resolution.x) == ("generic-tiff", pytest.approx(0.5, rel=1e-3))


def test_an_aperio_file_and_its_associated_images(tmp_path, random):
    path = making.write_svs(tmp_path / "a.svs", making.tissue(random, 256, 384))
    slide = agrees(path, random)
    assert (slide.info.reader, slide.info.vendor, len(slide.info.levels)) == (MIXED, "aperio", 2)
    region = (17, 5, 90, 80, 0)
    np.testing.assert_array_equal(open_slide(path).read(*region), openslide_pixels(path, *region))


@pytest.mark.parametrize("name", ["cmu-1-small-region.svs", "boxes.tiff", "small.svs"])
def test_real_slides(name, random):
    assert agrees(real_data("slides", name), random).info.reader == MIXED


def test_missing_tiles_are_left_to_openslide(tmp_path, random):
    path = making.write_tiled(tmp_path / "a.tif", making.tissue(random, 256, 384))
    with tifffile.TiffFile(path, mode="r+") as tif:
        for name in ("TileOffsets", "TileByteCounts"):
            tag = tif.pages[0].tags[name]
            tag.overwrite([0, *tag.value[1:]])
    assert agrees(path, random).info.reader == MIXED, "the other levels are whole"
    with tifffile.TiffFile(path, mode="r+") as tif:
        for page in tif.pages[1:]:
            for name in ("TileOffsets", "TileByteCounts"):
                tag = page.tags[name]
                tag.overwrite([*tag.value[:-1], 0])
    assert agrees(path, random).info.reader == "openslide"


def test_scanned_parts_and_jpeg_2000_are_left_to_openslide(tmp_path, random):
    image = making.tissue(random, 256, 384)
    assert agrees(making.write_scn(tmp_path / "a.scn", image), random).info.reader == "openslide"
    text = "Aperio Image Library v11.2.1 \r\n384x256 [0,0 384x256] (64x64) J2K/KDU Q=70|AppMag = 20|MPP = 0.5"
    common = {"description": text, "photometric": "rgb", "metadata": None}
    with tifffile.TiffWriter(tmp_path / "b.svs") as tif:
        tif.write(image, tile=(64, 64), compression=33005, **common)
        tif.write(image[::8, ::8], rowsperstrip=16, **common)
    assert agrees(tmp_path / "b.svs", random).info.reader == "openslide"


def write_subifds(path, images, **options):
    """Further images in SubIFDs of the first, without OME's description."""
    return making.write_levels(path, images, subifds=True, **making.per_cm(0.5), **options)


def test_a_pyramid_that_openslide_does_not_see_is_tifffiles(tmp_path, random):
    image = making.tissue(random, 301, 403)
    images = making.pyramid(image, 3)
    path = write_subifds(tmp_path / "a.tif", images, compression="zlib")
    assert len(OpenSlideReader(path).info.levels) == 1
    slide = open_slide(path)
    assert (slide.info.reader, slide.info.resolution.x) == ("tifffile", pytest.approx(0.5, rel=1e-3))
    for level, wanted in enumerate(images):
        height, width = wanted.shape[:2]
        np.testing.assert_array_equal(slide.read(0, 0, width, height, level), wanted)
    np.testing.assert_array_equal(slide.read(17, 5, 90, 80, 0), openslide_pixels(path, 17, 5, 90, 80, 0))


def test_a_picture_of_another_shape_is_no_level(tmp_path, random):
    """A label or a preview may lie in a SubIFD, too."""
    image = making.tissue(random, 256, 384)
    path = write_subifds(tmp_path / "a.tif", [image, np.full((100, 100, 3), 7, dtype=np.uint8)])
    slide = agrees(path, random)
    assert (slide.info.reader, len(slide.info.levels)) == (MIXED, 1)


def test_the_tile_of_most_bytes_is_tried(tmp_path, random, monkeypatch):
    """Glass looks the same in many ways; decoders are told apart where there is something to decode."""
    image = np.full((320, 384, 3), 243, dtype=np.uint8)
    image[64:128, 256:320] = making.tissue(random, 64, 64)
    path = making.write_tiled(tmp_path / "a.tif", image, compression="zlib", levels=1)
    honest = openslide_reader.TiffReader.read

    def dishonest(self, x, y, width, height, level):
        pixels = honest(self, x, y, width, height, level).copy()
        pixels[pixels < 240] += 1
        return pixels

    monkeypatch.setattr(openslide_reader.TiffReader, "read", dishonest)
    assert open_slide(path).info.reader == "openslide"
    monkeypatch.undo()
    assert open_slide(path).info.reader == MIXED


def test_pixels_that_differ_anywhere_in_the_trial_are_not_trusted(tmp_path, random, monkeypatch):
    path = making.write_tiled(tmp_path / "a.tif", making.tissue(random, 256, 384))
    honest = openslide_reader.TiffReader.read

    def dishonest(self, x, y, width, height, level):
        pixels = honest(self, x, y, width, height, level).copy()
        pixels[-1, -1, 2] ^= x > 300 and level == 0
        return pixels

    monkeypatch.setattr(openslide_reader.TiffReader, "read", dishonest)
    slide = open_slide(path)
    monkeypatch.undo()
    assert slide._levels == {1, 2}
    np.testing.assert_array_equal(slide.read(320, 0, 60, 60, 0), openslide_pixels(path, 320, 0, 60, 60, 0))


def test_a_damaged_tile_is_met_where_it_is_read(tmp_path, random):
    path = making.write_tiled(tmp_path / "a.tif", making.tissue(random, 256, 384), compression="zlib", levels=1)
    with tifffile.TiffFile(path, mode="r+") as tif:
        start = tif.pages[0].dataoffsets[0]
    with path.open("r+b") as stream:
        stream.seek(start)
        stream.write(bytes(40))
    slide = open_slide(path)
    with pytest.raises(DataError, match="cannot read the slide"):
        slide.read(0, 0, 60, 60, 0)


def test_tiles_that_openslide_would_die_of_never_reach_it(tmp_path, random):
    path = making.write_tiled(tmp_path / "a.tif", making.tissue(random, 150, 211), levels=1)
    with tifffile.TiffFile(path, mode="r+") as tif:
        tif.pages[0].tags["TileLength"].overwrite(2**15 * 64)
    with pytest.raises(DataError, match="tiles of 64 × 2097152 pixels"):
        OpenSlideReader(path)
    with pytest.raises(DataError, match="cannot read the slide"):
        open_slide(path).read(0, 0, 200, 100, 0)


def test_impossible_requests_and_a_closed_slide(tmp_path, random):
    slide = open_slide(making.write_tiled(tmp_path / "a.tif", making.tissue(random, 128, 128)))
    assert slide.info.reader == MIXED
    with pytest.raises(UsageError):
        slide.read(0, 0, 5, 5, 3)
    slide.close()
    slide.close()
    with pytest.raises(DataError, match="cannot read the slide"):
        slide.read(0, 0, 5, 5, 0)


@pytest.mark.parametrize("compression", [33005, "jpeg"])
@pytest.mark.parametrize("region", [(0, 0, 400, 380, 0), (37, 101, 200, 250, 0), (64, 32, 90, 170, 1), (8, 8, 9, 9, 1)])
def test_strips_read_side_by_side_are_the_region_read_whole(compression, region, tmp_path, random):
    image = making.tissue(random, 400, 400)
    path = tmp_path / "a.svs"
    text = "Aperio Image Library v11.2.1 \r\n400x400 [0,0 400x400] (64x64) |MPP = 0.5"
    with tifffile.TiffWriter(path) as tif:
        for level in (image, image[::4, ::4]):
            tif.write(level, tile=(64, 64), description=text, photometric="rgb", metadata=None, compression=compression)
    slide = OpenSlideReader(path)
    slide._threads = 3
    x, y, width, height, level = region
    strips = [*slide._strips((x, y), slide.info.levels[level], (width, height))]
    assert sum(tall for _, tall in strips) == height
    assert len(strips) <= 4
    np.testing.assert_array_equal(slide.read(*region), openslide_pixels(path, *region))
    slide.close()


def test_jpeg_2000_is_what_another_decoder_reads(tmp_path, random):
    image = making.tissue(random, 256, 320)
    text = "Aperio Image Library v11.2.1 \r\n320x256 [0,0 320x256] (64x64) |MPP = 0.5"
    about = {"tile": (64, 64), "description": text, "photometric": "rgb", "metadata": None, "compression": 33005}
    tifffile.imwrite(tmp_path / "a.svs", image, **about, compressionargs={"level": 40})
    slide = OpenSlideReader(tmp_path / "a.svs")
    slide._threads = 2
    found = slide.read(0, 0, 320, 256, 0)
    slide.close()
    # imagecodecs has an OpenJPEG of its own, which rounds a few values differently.
    other = tifffile.imread(tmp_path / "a.svs", key=0)
    assert np.abs(found.astype(int) - other).max() <= 1
    assert np.abs(found.astype(int) - image).mean() > 0  # lossy: it was decoded, not copied


def test_without_memory_for_threads_one_reads_alone(tmp_path, random, monkeypatch):
    path = making.write_scn(tmp_path / "a.scn", making.tissue(random, 300, 300))
    slide = OpenSlideReader(path)
    slide._threads = 3
    whole = slide.read(0, 0, 300, 300, 0)

    def no_thread(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(slide._pool, "submit", no_thread)
    np.testing.assert_array_equal(slide.read(0, 0, 300, 300, 0), whole)
    slide.close()
