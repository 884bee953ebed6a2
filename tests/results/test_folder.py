import io
import os
import socket
import struct
import zipfile

import numpy as np
import pytest
from PIL import Image
from tests.helpers import memory_below

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.io import write_arrays
from ntrm.results import folder as results_folder
from ntrm.results.folder import MOST_PIXELS, MOST_SCANS, ResultsFolder, SlideFolder
from ntrm.results.paths import TABLES
from ntrm.results.tables import COLUMNS


def link(path, target):
    path.symlink_to(target)


def pipe(path, _):
    os.mkfifo(path)


def socket_file(path, _):
    # The path of a socket may be short only.
    with socket.socket(socket.AF_UNIX) as one:
        here = os.open(path.parent, os.O_RDONLY)
        one.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)


def folder(path, _):
    path.mkdir()


STRANGE = (link, pipe, socket_file, folder)


@pytest.fixture
def slide(tmp_path):
    (tmp_path / "out" / "a" / ".ntrm").mkdir(parents=True)
    return SlideFolder(tmp_path / "out" / "a")


@pytest.fixture(params=[True, False], ids=["by descriptors", "by paths"])
def either_way(request, monkeypatch):
    """Systems without descriptors of folders, such as Windows, go by paths."""
    monkeypatch.setattr(results_folder, "WITH_DESCRIPTORS", request.param)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("plant", STRANGE)
def test_only_plain_files_are_opened(slide, tmp_path, plant):
    (tmp_path / "secret").write_text("secret")
    for names in (("summary.json",), (".ntrm", "done.json")):
        plant(slide.path.joinpath(*names), tmp_path / "secret")
        assert not slide.has(*names)
        with pytest.raises(OSError, match="is a link or no plain file"):
            slide.read(*names)
    plant(tmp_path / "out" / "run.json", tmp_path / "secret")
    with pytest.raises(OSError, match="is a link or no plain file"):
        ResultsFolder(tmp_path / "out").open("run.json", most=100)


@pytest.mark.usefixtures("either_way")
def test_no_link_is_followed_below_the_folder(slide, tmp_path, monkeypatch):
    (slide.path / ".ntrm" / "done.json").write_bytes(b"{}")
    link(slide.path / "corrected", slide.path / ".ntrm")
    link(tmp_path / "out" / "b", slide.path)
    for where, names in ((slide, ("corrected", "done.json")), (SlideFolder(tmp_path / "out" / "b"), ("done.json",))):
        assert not where.has(*names)
        with pytest.raises(OSError, match="is a link or no folder"):
            where.read(*names)
    # The folder itself may be reached through one, and may be where the program runs.
    link(tmp_path / "elsewhere", tmp_path / "out")
    assert SlideFolder(tmp_path / "elsewhere" / "a").read(".ntrm", "done.json") == b"{}"
    monkeypatch.chdir(slide.path)
    assert SlideFolder(tmp_path.__class__(".")).has(".ntrm", "done.json")


def test_files_that_are_missing_or_too_large(slide):
    (slide.path / "summary.json").write_bytes(b"x" * 100)
    assert slide.read("summary.json", most=100) == b"x" * 100
    with pytest.raises(OSError, match="at most 0 MB are read"):
        slide.read("summary.json", most=99)
    with pytest.raises(FileNotFoundError):
        slide.read("graph.json")


def zip_of(path, *, header=None, deflated=zipfile.ZIP_DEFLATED, size=0):
    """An NPZ file with one array ``a`` that says of itself what ``header`` says, and ``size`` zeros after it."""
    header = header or b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }\n" % size
    with zipfile.ZipFile(path, "w", deflated) as archive, archive.open("a.npy", "w") as stream:
        stream.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) % 2**16) + header)
        for _ in range(size // 2**20):
            stream.write(bytes(2**20))


BOMBS = {
    "an array of 90 MB": {"size": 90 * 2**20},
    "a header of 90 MB": {"header": b"{" + b" " * (90 * 2**20) + b"}"},
    "a shape without its numbers": {"header": b"{'descr': '<f8', 'fortran_order': False, 'shape': (33554432,), }"},
    "a negative shape": {"header": b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -4), }"},
    "objects": {"header": b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"},
    "no header": {"header": b"__import__('os')"},
    "a compression that unpacks at once": {"deflated": zipfile.ZIP_LZMA, "size": 2**20},
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_arrays_that_promise_too_much_are_refused_before_they_are_unpacked(slide, bomb):
    zip_of(slide.path / "x.npz", **bomb)
    with memory_below(30), pytest.raises(DataError, match=r"cannot read .*x\.npz"):
        slide.arrays("x.npz", hint="again", most=60 * 2**20)


def test_a_list_of_contents_without_end_is_not_read(slide, tmp_path):
    with zipfile.ZipFile(slide.path / "x.npz", "w") as archive:
        for number in range(20_000):
            archive.writestr(f"{number}.npy", b"")
    with pytest.raises(DataError, match=r"cannot read .*x\.npz"):
        slide.arrays("x.npz", hint="again")


def test_arrays_are_read_as_they_were_written(slide):
    arrays = {
        "a": np.arange(6).reshape(2, 3),
        "b": np.asfortranarray(np.eye(3)),
        "c": np.array("words"),
        "d": np.eye(0),
    }
    write_arrays(slide.path / "x.npz", arrays)
    found = slide.arrays("x.npz", hint="")
    assert [*found] == [*arrays]
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


def picture(kind, size=(30, 20), **options):
    stream = io.BytesIO()
    Image.new("RGB", size, (200, 150, 100)).save(stream, format=kind, **options)
    return stream.getvalue()


def test_pictures_are_jpeg_or_png_of_a_bounded_size(slide):
    path = slide.path / "slide.jpg"
    for kind in ("JPEG", "PNG"):
        path.write_bytes(picture(kind))
        content, decoded = slide.picture("slide.jpg")
        assert (content, decoded.size, decoded.getpixel((0, 0))[0] // 10) == (path.read_bytes(), (30, 20), 20)
    many_scans = picture("JPEG").replace(b"\xff\xda", b"\xff\xda\x00\x02" * MOST_SCANS + b"\xff\xda")
    side = int(MOST_PIXELS**0.5) + 1
    large = picture("PNG", (side, side))
    for content in (b"%!PS-Adobe-3.0\n", b"", picture("GIF"), picture("PNG")[:-40], large, many_scans):
        path.write_bytes(content)
        with pytest.raises(OSError, match=r"slide\.jpg is no picture that can be read"):
            slide.picture("slide.jpg")


@pytest.mark.parametrize(
    "name", ["../x", "/abs", "..", "", "a/b", "run.json", "slides.csv", ".service", "a\udcff", "a b"]
)
def test_names_that_are_no_slides(tmp_path, name):
    with pytest.raises(RefusedError, match="cannot be a slide's folder"):
        ResultsFolder(tmp_path)[name]


def test_names_of_tables_are_those_that_are_written():
    assert {*TABLES} == {*COLUMNS}


def test_folders_of_slides_are_listed_and_others_named_in_the_log(tmp_path, caplog):
    for name in ("b", "a", ".service", "A", "a b", os.fsdecode(b"\xff")):
        (tmp_path / name).mkdir()
    (tmp_path / "run.json").write_text("{}")
    link(tmp_path / "c", tmp_path / "b")
    for _ in range(2):
        assert [folder.path.name for folder in ResultsFolder(tmp_path)] == ["A", "b"]
    assert sorted(record.args[0].name for record in caplog.records) == ["a", "a b", "c", os.fsdecode(b"\xff")]
    with pytest.raises(DataError, match="is a link"):
        ResultsFolder(tmp_path)["c"]
    assert ResultsFolder(tmp_path)["later"].path == tmp_path / "later"


def test_the_programs_own_folder_is_made_for_nobody_else(tmp_path):
    own = ResultsFolder(tmp_path / "out").own(".service")
    assert own.path == tmp_path / "out" / ".service"
    own.path.chmod(0o755)
    (own.path / "uploads").mkdir()
    (own.path / "trash" / "a").mkdir(parents=True)
    link(own.path / "trash" / "a" / "mask", tmp_path)
    ResultsFolder(tmp_path / "out").own(".service")
    assert own.path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", [".service", ".service/trash", ".service/service.sqlite", ".service/thumbnails/x.jpg"])
@pytest.mark.parametrize("plant", [link, pipe])
def test_a_link_or_a_pipe_in_the_programs_own_folder_is_refused(tmp_path, name, plant):
    (tmp_path / "home").mkdir()
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    plant(path, tmp_path / "home")
    with pytest.raises(RefusedError, match="is not the program's own") as caught:
        ResultsFolder(tmp_path / "out").own(".service")
    assert "move .service away" in caught.value.hint


@pytest.mark.usefixtures("either_way")
def test_a_folder_is_removed_and_nothing_that_it_links_to(slide, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "kept").write_text("kept")
    trash = SlideFolder(tmp_path / "trash")
    trash.path.mkdir()
    link(slide.path / "mask", tmp_path / "home")
    link(tmp_path / "out" / "b", tmp_path / "home")
    for name in ("a", "b"):
        SlideFolder(tmp_path / "out" / name).remove(trash)
    assert [*slide.path.parent.iterdir(), *trash.path.iterdir()] == []
    assert (tmp_path / "home" / "kept").read_text() == "kept"
    with pytest.raises(FileNotFoundError):
        SlideFolder(tmp_path / "out" / "a").remove(trash)
    link(tmp_path / "to_home", tmp_path / "home")
    slide.path.mkdir()
    with pytest.raises(OSError, match="is a link or no folder"):
        slide.remove(SlideFolder(tmp_path / "to_home"))


def test_nothing_is_written_through_a_link(slide, tmp_path):
    slide.check()
    (slide.path / ".ntrm").rmdir()
    link(slide.path / ".ntrm", tmp_path)
    with pytest.raises(DataError, match="is a link"):
        slide.check()
