"""A slide brings along regular files of its own folder, and none at all where it has to be one file."""

import os
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image
from tests.slides import making

from ntrm.core.errors import DataError
from ntrm.slides.readers import openslide_reader
from ntrm.slides.readers.formats import MAX_INDEX_BYTES, check_companions, open_slide

openslide = pytest.importorskip("openslide")


@pytest.fixture
def private(tmp_path, random):
    """A picture that no slide may show."""
    image = making.tissue(random, 64, 96)
    # OpenSlide reads such JPEG files only that can be entered anywhere.
    Image.fromarray(image).save(tmp_path / "private.jpg", quality=95, subsampling=0, restart_marker_rows=1)
    return np.asarray(Image.open(tmp_path / "private.jpg"))


def refused(path: Path, **options) -> str:
    with pytest.raises(DataError) as caught:
        open_slide(path, **options).read(0, 0, 16, 16, 0)
    assert "private" not in str(caught.value)
    return str(caught.value)


def test_openslide_itself_shows_whatever_a_text_names(tmp_path, private):
    # What all this guards against.
    with openslide.OpenSlide(making.write_vms(tmp_path / "slides" / "a", "../private.jpg")) as slide:
        shown = np.asarray(slide.read_region((0, 0), 0, (96, 64)))[..., :3]
    np.testing.assert_array_equal(shown, private)


@pytest.mark.parametrize(
    "way", ["../private.jpg", "../slides/../private.jpg", "/../private.jpg", "link.jpg", " ../private.jpg"]
)
@pytest.mark.parametrize("alone", [True, False])
def test_a_file_outside_the_slides_folder_is_never_shown(tmp_path, private, way, alone):
    path = making.write_vms(tmp_path / "slides" / "a", way)
    (tmp_path / "slides" / "link.jpg").symlink_to(tmp_path / "private.jpg")
    assert ("several files" if alone else "outside its own folder") in refused(path, alone=alone)


@pytest.mark.parametrize("key", ["MapFile", "MacroImage", "OptimisationFile", "ImageFile(0,0)", " ImageFile "])
def test_every_key_that_names_a_file_is_looked_at(tmp_path, private, key):
    (tmp_path / "slides").mkdir()
    (tmp_path / "private.jpg").rename(tmp_path / "slides" / "own.jpg")
    assert "outside" in refused(making.write_vms(tmp_path / "slides" / "a.vms", "own.jpg", **{key: "../private.jpg"}))


def test_a_slide_of_several_files_is_read_where_they_lie_together(tmp_path, private):
    path = making.write_vms(tmp_path / "a.vms", "private.jpg")
    slide = open_slide(path)
    np.testing.assert_array_equal(slide.read(0, 0, 96, 64, 0), private)
    slide.close()
    # Links to the slide and to its files, side by side, lead to one folder as well.
    (tmp_path / "links").mkdir()
    for name in ("a.vms", "private.jpg"):
        (tmp_path / "links" / name).symlink_to(tmp_path / name)
    open_slide(tmp_path / "links" / "a.vms").close()
    assert "a slide that is one file" in refused(path, alone=True)


def test_pipes_among_the_named_files_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    assert "a device" in refused(making.write_vms(tmp_path / "a.vms", "pipe.jpg"))


@pytest.mark.parametrize("name", ["a\\\\b.jpg", "a\0b.jpg"])
def test_names_that_openslide_may_read_otherwise_are_refused(tmp_path, name):
    path = making.write_vms(tmp_path / "a.vms", name)
    with pytest.raises(DataError, match="cannot read the slide"):
        check_companions(path, "hamamatsu", tiff=False, alone=False)


def test_an_index_without_end_is_refused(tmp_path):
    (tmp_path / "a.vms").write_bytes(b"\n" * (MAX_INDEX_BYTES + 1))
    with pytest.raises(DataError, match="too large"):
        check_companions(tmp_path / "a.vms", "hamamatsu", tiff=False, alone=False)


def write_mirax(folder: Path, index: str) -> Path:
    Image.new("RGB", (40, 30)).save(folder / "a.mrxs", format="JPEG")
    (folder / "a").mkdir(exist_ok=True)
    (folder / "a" / "Slidedat.ini").write_text(index)
    return folder / "a.mrxs"


@pytest.mark.parametrize("name", ["../../private.jpg", "link.dat", "pipe.dat"])
@pytest.mark.parametrize("key", ["INDEXFILE", "FILE_0"])
def test_the_index_of_a_mirax_slide_names_only_files_of_its_folder(tmp_path, name, key):
    path = write_mirax(tmp_path, f"[HIERARCHICAL]\r\n{key} = {name}\r\n")
    (tmp_path / "a" / "link.dat").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / "a" / "pipe.dat")
    assert "a slide that names" in refused(path)


def test_a_mirax_slide_is_judged_before_openslide_looks_for_its_index(tmp_path, monkeypatch):
    path = write_mirax(tmp_path, "")
    monkeypatch.setattr(openslide_reader, "openslide_vendor", None)
    index = tmp_path / "a" / "Slidedat.ini"
    index.unlink()
    os.mkfifo(index)
    assert "a device" in refused(path)
    index.unlink()
    index.symlink_to("/etc/hostname")
    assert "outside" in refused(path)
    assert "a slide that is one file" in refused(path, alone=True)


def test_all_that_lies_beside_a_dicom_slide_is_looked_at(tmp_path):
    path = tmp_path / "a.dcm"
    path.write_bytes(b"")
    (tmp_path / "folder").mkdir()
    (tmp_path / "b.dcm").symlink_to(path)
    check_companions(path, "dicom", tiff=False, alone=False)
    with pytest.raises(DataError, match="several files"):
        check_companions(path, "dicom", tiff=False, alone=True)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="a device"):
        check_companions(path, "dicom", tiff=False, alone=False)
    (tmp_path / "pipe").unlink()
    (tmp_path / "c.dcm").symlink_to("/etc/hostname")
    with pytest.raises(DataError, match="outside"):
        check_companions(path, "dicom", tiff=False, alone=False)


def test_the_picture_beside_a_trestle_slide_counts_as_a_file(tmp_path):
    check_companions(tmp_path / "a.tif", "trestle", tiff=True, alone=True)
    os.mkfifo(tmp_path / "a.Full")
    for alone in (True, False):
        with pytest.raises(DataError):
            check_companions(tmp_path / "a.tif", "trestle", tiff=True, alone=alone)


def test_formats_that_nobody_judged_are_refused(tmp_path):
    with pytest.raises(DataError, match="not known to be safe"):
        check_companions(tmp_path / "a", "synthetic", tiff=False, alone=False)


@pytest.mark.parametrize(
    "write", [making.write_tiled, making.write_svs, making.write_ome, making.write_scn, making.write_png]
)
def test_slides_that_are_one_file_are_read_alone(write, tmp_path, random):
    path = write(tmp_path / "a", making.tissue(random, 128, 192))
    alone, beside = open_slide(path, alone=True), open_slide(path)
    assert alone.info == beside.info
    left, top, *_ = alone.info.bounds or (0, 0)
    shown = alone.read(left, top, 192, 128, 0)
    assert shown.std() > 1, "tissue, not glass"
    np.testing.assert_array_equal(shown, beside.read(left, top, 192, 128, 0))
    alone.close()
    beside.close()


def test_stacks_and_indices_beside_a_tiff_are_not_opened(tmp_path, random, monkeypatch):
    image = making.tissue(random, 64, 64)
    path = making.write_strips(tmp_path / "a_MMStack_1.tif", image)
    os.mkfifo(tmp_path / "NDTiff.index")
    os.mkfifo(tmp_path / "a_MMStack_2.tif")
    for version in (0, 3):
        facts = {"MajorVersion": version, "Summary": {"MicroManagerVersion": "2", "Frames": 9}}
        facts["IndexMap"] = np.zeros((1, 5), dtype=np.uint32)
        monkeypatch.setattr(tifffile.TiffFile, "micromanager_metadata", facts)
        np.testing.assert_array_equal(open_slide(path).read(0, 0, 64, 64, 0), image)
