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


def refused(path: Path, **options) -> str:
    with pytest.raises(DataError) as caught:
        open_slide(path, **options).read(0, 0, 16, 16, 0)
    assert "private" not in str(caught.value)
    return str(caught.value)


def write_mirax(folder: Path, index: str) -> Path:
    Image.new("RGB", (40, 30)).save(folder / "a.mrxs", format="JPEG")
    (folder / "a").mkdir(exist_ok=True)
    (folder / "a" / "Slidedat.ini").write_text(index)
    return folder / "a.mrxs"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("../../private.jpg", "outside its own folder"),
        ("/../../private.jpg", "outside its own folder"),
        ("link.dat", "outside its own folder"),
        ("pipe.dat", "a device"),
        ("a\\b.dat", "in a way no scanner does"),
        ("a\0b.dat", "in a way no scanner does"),
        ("x" * MAX_INDEX_BYTES, "too large"),
    ],
    ids=["up", "up from the root", "link", "pipe", "backslash", "zero", "endless"],
)
@pytest.mark.parametrize("key", ["INDEXFILE", " FILE_0"])
def test_the_index_of_a_mirax_slide_names_only_files_of_its_folder(tmp_path, name, key, found):
    path = write_mirax(tmp_path, f"[HIERARCHICAL]\r\n{key} = {name}\r\n")
    (tmp_path / "a" / "link.dat").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / "a" / "pipe.dat")
    assert found in refused(path)
    assert "a slide that is one file" in refused(path, alone=True)


def test_files_that_lie_together_may_be_read(tmp_path):
    path = write_mirax(tmp_path, "FILE_0 = Data0000.dat\nFILE_1 = /sub/Data0001.dat\nFILE_2 =\n")
    check_companions(path, "mirax", alone=False)
    # Links to the slide and to its folder, side by side, lead to one folder as well.
    (tmp_path / "links").mkdir()
    for name in ("a.mrxs", "a"):
        (tmp_path / "links" / name).symlink_to(tmp_path / name)
    check_companions(tmp_path / "links" / "a.mrxs", "mirax", alone=False)


def test_a_text_that_may_name_any_file_is_not_read(tmp_path, random):
    Image.fromarray(making.tissue(random, 64, 96)).save(tmp_path / "private.jpg", restart_marker_rows=1)
    assert "VMS" in refused(making.write_vms(tmp_path / "slides" / "a", "../private.jpg"))


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
    check_companions(path, "dicom", alone=False)
    with pytest.raises(DataError, match="several files"):
        check_companions(path, "dicom", alone=True)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="a device"):
        check_companions(path, "dicom", alone=False)
    (tmp_path / "pipe").unlink()
    (tmp_path / "c.dcm").symlink_to("/etc/hostname")
    with pytest.raises(DataError, match="outside"):
        check_companions(path, "dicom", alone=False)


def test_formats_that_nobody_judged_are_refused(tmp_path):
    with pytest.raises(DataError, match="not known to be safe"):
        check_companions(tmp_path / "a", "synthetic", alone=False)


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
