from pathlib import Path

import numpy as np
import pytest
import tifffile

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution
from ntrm.export.ome_tiff import SCHEMA, write_confidence_ome_tiff, write_mask_ome_tiff
from ntrm.export.pyramid import halve

MPP = Resolution(6.7, 6.5)


@pytest.fixture
def written(tmp_path, block_mask):
    path = tmp_path / "mask.ome.tif"
    write_mask_ome_tiff(path, block_mask, SKIN, MPP, metadata={"a": "<b"})
    return path


def parse_valid(xml):
    """The document, which follows the schema of OME."""
    ome_types = pytest.importorskip("ome_types")
    etree = pytest.importorskip("lxml.etree")
    document = etree.fromstring(xml.encode())
    schema = etree.XMLSchema(etree.parse(Path(ome_types.__file__).parent / "ome-2016-06.xsd"))
    assert schema.validate(document), schema.error_log
    return document


def test_tifffile_reads_every_level(written, block_mask):
    level = np.where(block_mask == IGNORE, 0, block_mask + 1.0).astype(np.uint8)
    with tifffile.TiffFile(written) as tiff:
        (series,) = tiff.series
        assert tiff.is_ome
        assert series.axes == "YX"
        assert len(series.levels) == 4
        for stored in series.levels:
            assert stored.keyframe.is_tiled
            assert np.array_equal(stored.asarray(), level)
            level = halve(level)


def test_colours_are_those_of_the_schema_and_nothing_is_white(written):
    with tifffile.TiffFile(written) as tiff:
        colours = (tiff.pages.first.colormap // 257).T
    assert colours[1:13].tolist() == SKIN.palette.tolist()
    assert colours[0].tolist() == [255, 255, 255]


def test_openslide_opens_it_in_its_colours(written, block_mask):
    openslide = pytest.importorskip("openslide")
    with openslide.OpenSlide(written) as slide:
        assert slide.dimensions == block_mask.shape[::-1]
        shown = np.asarray(slide.read_region((0, 0), 0, slide.dimensions))
    assert np.array_equal(shown[..., :3], SKIN.colourise(block_mask, (255, 255, 255)))


def test_the_xml_follows_the_ome_schema(written):
    with tifffile.TiffFile(written) as tiff:
        document = parse_valid(tiff.ome_metadata)
    maps = {
        node.get("Namespace"): {m.get("K"): m.text for m in node.iter(f"{{{SCHEMA}}}M")}
        for node in document.iter(f"{{{SCHEMA}}}MapAnnotation")
    }
    assert maps["ntrm/classes"] == {str(t.index + 1): t.name for t in SKIN.tissues}
    assert maps["ntrm/about"]["a"] == "<b"


def test_characters_that_xml_cannot_hold_do_not_spoil_the_file(tmp_path):
    etree = pytest.importorskip("lxml.etree")
    odd = {"na\x00me": "a\x1b \ud800 & é"}
    write_mask_ome_tiff(tmp_path / "m.ome.tif", np.zeros((2, 2), np.uint8), SKIN, MPP, name='"<\x07', metadata=odd)
    with tifffile.TiffFile(tmp_path / "m.ome.tif") as tiff:
        document = etree.fromstring(tiff.ome_metadata.encode())
    (entry,) = (m for m in document.iter(f"{{{SCHEMA}}}M") if m.get("K").startswith("na"))
    assert entry.text == "a\ufffd \ufffd & é"


def test_a_failure_in_the_middle_leaves_the_old_file_alone(written, block_mask, tmp_path):
    before = written.read_bytes()
    with pytest.raises(DataError, match="schema does not know"):
        write_mask_ome_tiff(written, np.full_like(block_mask, 77), SKIN, MPP)
    assert written.read_bytes() == before
    assert list(tmp_path.iterdir()) == [written]
    write_mask_ome_tiff(tmp_path / "b.ome.tif", block_mask, SKIN, MPP, metadata={"a": "<b"})
    assert (tmp_path / "b.ome.tif").read_bytes() == before


def test_confidences_are_a_pyramid_of_means(tmp_path, random):
    values = random.integers(0, 256, (590, 701), dtype=np.uint8)
    write_confidence_ome_tiff(tmp_path / "c.ome.tif", values, MPP, metadata={"a": "<b"})
    level = values.astype(int)
    with tifffile.TiffFile(tmp_path / "c.ome.tif") as tiff:
        (series,) = tiff.series
        assert tiff.is_ome
        assert len(series.levels) == 3
        for stored in series.levels:
            assert stored.keyframe.is_tiled
            assert np.array_equal(stored.asarray(), level)
            even = np.pad(level, ((0, level.shape[0] % 2), (0, level.shape[1] % 2)), mode="edge")
            level = (even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2] + 2) // 4
        assert "255 = certainty 1" in tiff.ome_metadata
        assert tiff.pages.first.photometric == tifffile.PHOTOMETRIC.MINISBLACK
        parse_valid(tiff.ome_metadata)
