import struct
import zlib

import numpy as np
import pytest
import tifffile
from tests.evaluation.small import MPP, schema_of

from ntrm.core.labels import IGNORE
from ntrm.core.mpp import Resolution
from ntrm.export.ome_tiff import write_mask_ome_tiff
from ntrm.results.mask_file import MOST_LEVELS, MOST_TILE, Pyramid


@pytest.fixture
def path(tmp_path, random):
    labels = random.integers(0, 4, (700, 1300)).astype(np.uint8)
    labels[random.random(labels.shape) < 0.1] = IGNORE
    write_mask_ome_tiff(tmp_path / "mask.ome.tif", labels, schema_of(), Resolution.square(MPP))
    return tmp_path / "mask.ome.tif"


def read_whole(stream):
    mask = Pyramid(stream)
    return [mask.pixels(number) for number in range(len(mask.levels))]


def test_pixels_colours_and_words_are_those_that_another_library_reads(path):
    with tifffile.TiffFile(path) as tif, path.open("rb") as stream:
        mask, series = Pyramid(stream), tif.series[0]
        assert len(mask.levels) == len(series.levels) > 1
        for number, level in enumerate(series.levels):
            np.testing.assert_array_equal(mask.pixels(number), level.asarray())
        np.testing.assert_array_equal(mask.colours.T, tif.pages.first.colormap)
        assert mask.description == tif.pages.first.description


@pytest.mark.parametrize("options", [{}, {"bigtiff": True}])
def test_both_kinds_of_tiff_are_read(tmp_path, random, options):
    values = random.integers(0, 255, (100, 200)).astype(np.uint8)
    with tifffile.TiffWriter(tmp_path / "x.tif", **options) as writer:
        writer.write(values, tile=(64, 32), compression="zlib", description="words", metadata=None)
    with (tmp_path / "x.tif").open("rb") as stream:
        mask = Pyramid(stream)
        np.testing.assert_array_equal(mask.pixels(), values)
        assert (mask.description, len(mask.colours)) == ("words", 0)


WRONG = {
    "no tiles": {},
    "a large tile": {"tile": (16, 2 * MOST_TILE), "compression": "zlib"},
    "not compressed": {"tile": (64, 64)},
    "another compression": {"tile": (64, 64), "compression": "lzw"},
    "a predictor": {"tile": (64, 64), "compression": "zlib", "predictor": True},
    "big-endian": {"tile": (64, 64), "compression": "zlib"},
    "many levels": {"tile": (64, 64), "compression": "zlib"},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_mask_of_ours_is_refused(tmp_path, wrong):
    path, values, options = tmp_path / "x.tif", np.zeros((100, 100), np.uint8), WRONG[wrong]
    with tifffile.TiffWriter(path, byteorder=">" if wrong == "big-endian" else "<") as writer:
        levels = MOST_LEVELS if wrong == "many levels" else 0
        writer.write(values, subifds=levels, photometric="minisblack", metadata=None, **options)
        for _ in range(levels):
            writer.write(values, photometric="minisblack", metadata=None, **options)
    with path.open("rb") as stream, pytest.raises(ValueError, match=r"."):
        Pyramid(stream)


def tag(path, name, value, *, number=0):
    """Write another value over one of a tag of the first page."""
    with tifffile.TiffFile(path) as tif:
        found = tif.pages.first.tags[name]
    form, width = {3: ("<H", 2), 4: ("<I", 4), 16: ("<Q", 8)}[found.dtype]
    with path.open("r+b") as stream:
        stream.seek(found.valueoffset + number * width)
        stream.write(struct.pack(form, value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("ImageWidth", value) for value in (0, 10_000, 2**32 - 1)),
        *(("TileOffsets", value) for value in (0, 2**31, 2**32 - 1)),
        *(("TileByteCounts", value) for value in (0, 10, 2**31, 2**32 - 1)),
        *(("BitsPerSample", value) for value in (1, 16)),
    ],
)
def test_a_damaged_header_is_refused(path, name, value):
    tag(path, name, value)
    with path.open("rb") as stream, pytest.raises((ValueError, zlib.error), match=r"."):
        read_whole(stream)


def test_tiles_that_share_their_place_are_refused(path):
    with tifffile.TiffFile(path) as tif:
        page = tif.pages.first
        count = len(page.dataoffsets)
        largest = max(page.databytecounts)
        at = page.dataoffsets[page.databytecounts.index(largest)]
    for number in range(count):
        tag(path, "TileOffsets", at, number=number)
        tag(path, "TileByteCounts", 2 * 512 * 512, number=number)
    with path.open("rb") as stream, pytest.raises(ValueError, match="share their place"):
        Pyramid(stream)


def test_every_cut_is_noticed(path):
    content = path.read_bytes()
    for length in range(0, len(content) - 1, len(content) // 50):
        path.write_bytes(content[:length])
        with path.open("rb") as stream, pytest.raises(ValueError, match=r"."):
            read_whole(stream)
