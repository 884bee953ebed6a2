import os
from pathlib import PurePosixPath

import pytest

from ntrm.core.errors import DataError
from ntrm.slides.inputs import find_by_content, find_inputs, source_fingerprint
from ntrm.slides.slide_folders import LeftOut


@pytest.fixture
def folder(tmp_path):
    for name in ("a.svs", "patient/b.svs"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.fixture
def forbid(monkeypatch):
    """Take the permission to list folders of these names; root may do everything, so the system is asked no more."""
    scandir = os.scandir

    def forbid(*names):
        def refusing(path="."):
            if os.path.basename(path) in names:  # noqa: PTH119 - as os.walk has it
                raise PermissionError(13, "Permission denied", path)
            return scandir(path)

        monkeypatch.setattr("os.scandir", refusing)

    return forbid


def test_a_folder_that_cannot_be_looked_into_is_an_error_not_a_missing_patient(folder, forbid):
    forbid("patient")
    for given in (folder, folder / "patient"):
        with pytest.raises(DataError, match=r"cannot read the folder .*patient(.|\n)*Permission denied") as refused:
            find_inputs([given])
        assert "permissions" in refused.value.hint


def test_so_is_one_whose_names_can_be_listed_and_no_more(folder, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, _: path.name != "patient")
    with pytest.raises(DataError, match=r"cannot read the folder .*patient(.|\n)*Permission denied"):
        find_inputs([folder])


def test_hidden_folders_and_those_of_the_system_hold_no_slides_whoever_may_read_them(folder, forbid):
    for name in (".Trash-0", "lost+found"):
        (folder / name).mkdir()
        (folder / name / "x.svs").touch()
    forbid(".Trash-0", "lost+found")
    assert [slide.name for slide in find_inputs([folder])] == ["a.svs", "patient/b.svs"]


def test_an_original_is_looked_for_in_all_folders_that_can_be_read(folder, forbid):
    wanted = {source_fingerprint(folder / name) for name in ("a.svs", "patient/b.svs")}
    assert {path.name for _, path in find_by_content(wanted, [folder])} == {"a.svs", "b.svs"}
    assert [path.name for _, path in find_by_content(wanted, [folder / "a.svs", folder / "none"])] == ["a.svs"]
    forbid("patient")
    assert [path.name for _, path in find_by_content(wanted, [folder])] == ["a.svs"]


def slides_among(*names):
    left_out = LeftOut()
    return [str(name) for name in left_out.slides_among(map(PurePosixPath, names))], left_out


def test_files_that_could_be_images_and_end_otherwise_are_told():
    beside = (
        "a.csv",
        "a.txt",
        "s/Data0001.dat",
        "README",
        "1.2.840.10008",
        "Doe, Jane. born 1950",
        "._s.mrxs",
        "g.zip",
    )
    slides, left_out = slides_among("a.svs", "b.CZI", "x/c.czi", "d.vsi", "e.bmp", ".e.gif", ".x/f.webp", *beside)
    assert slides == ["a.svs"]
    expected = "left out by their endings: 4 files (.bmp, .czi, .vsi); convert those that are slides to OME-TIFF"
    assert left_out.notes(names=True) == left_out.notes(names=False) == [expected]
