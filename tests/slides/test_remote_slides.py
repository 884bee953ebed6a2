import errno
import json
import signal
import threading
from pathlib import Path

import pytest

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.results.manifest import FORMAT
from ntrm.slides.inputs import find_inputs
from ntrm.slides.object_store import Address, ObjectStore, RemoteSlide, RemoteSlides
from ntrm.slides.slide_folders import LeftOut
from ntrm.slides.slide_ids import slide_ids, without_name

KEYS = [
    "slides/b.svs", "slides/a.mrxs", "slides/a/Slidedat.ini", "slides/a/Data0000.dat", "slides/ab/Data0000.dat",
    "slides/d/2.dcm", "slides/d/1.dcm", "slides/notes.txt", "slides/.hidden/x.svs", "slides/10x/Images/s.png",
    "slides/10x/Masks/s.png", "slides/out/r/overlay.png",
]  # fmt: skip


@pytest.fixture
def remote(bucket, tmp_path):
    for key in KEYS:
        bucket.put(key, key.encode())
    return RemoteSlides(lambda: tmp_path / "cache", Address.parse(f"s3://{bucket.name}/slides/out"))


def test_the_slides_of_an_address_are_those_of_the_same_folder_on_a_disk(remote, bucket, tmp_path):
    local = bucket.download("slides/", tmp_path / "slides")
    on_disk = find_inputs([local], out=local / "out")
    there = find_inputs([f"s3://{bucket.name}/slides"], out=tmp_path / "work", remote=remote)
    assert [slide.name for slide in there] == [slide.name for slide in on_disk]
    assert [slide.name for slide in there] == ["10x/Images/s.png", "a.mrxs", "b.svs", "d/1.dcm"]
    assert slide_ids(there) == slide_ids(on_disk)
    files = {slide.name: [file.name for file in slide.remote.files] for slide in there}
    assert files["a.mrxs"] == ["a.mrxs", "a/Data0000.dat", "a/Slidedat.ini"]
    assert files["d/1.dcm"] == ["1.dcm", "2.dcm"]
    for slide in there:
        with remote.holding(slide.remote):
            for file in slide.remote.files:
                expected = (local / slide.name).parent / file.name
                assert (slide.path.parent / file.name).read_bytes() == expected.read_bytes()


def test_pictures_of_earlier_results_at_an_address_are_no_slides(remote, bucket):
    at, left_out = f"s3://{bucket.name}/slides", LeftOut()
    before = [slide.name for slide in find_inputs([at], remote=remote)]
    for key, content in (("first/run.json", json.dumps({"format": FORMAT})), ("first/b/slide.jpg", "")):
        bucket.put(f"slides/{key}", content.encode())
    anew = RemoteSlides(lambda: remote.folder, remote.out)
    assert [slide.name for slide in find_inputs([at], remote=anew, left_out=left_out)] == before
    assert left_out.results == [f"{at}/first"]
    bucket.put("slides/first/run.json", b"{}")
    assert "first/b/slide.jpg" in [slide.name for slide in find_inputs([at], remote=anew)]


def test_a_slide_may_be_named_itself(remote, bucket):
    names = ["a.mrxs", "b.svs"]
    found = find_inputs([f"s3://{bucket.name}/slides/{name}" for name in names], remote=remote)
    assert [slide.name for slide in found] == names
    assert [len(slide.remote.files) for slide in found] == [3, 1]
    below = find_inputs([f"s3://{bucket.name}/slides"], remote=remote)
    assert {slide.path for slide in found} < {slide.path for slide in below}
    with pytest.raises(UsageError, match="nothing found at"):
        find_inputs([f"s3://{bucket.name}/slides/none.svs"], remote=remote)
    with pytest.raises(RefusedError, match="folder of the results"):
        find_inputs([f"s3://{bucket.name}/slides/out/r/overlay.png"], remote=remote)


def test_tables_may_name_addresses_and_lie_at_one(remote, bucket, tmp_path):
    (tmp_path / "here.svs").touch()
    rows = f"slide,slide_id,age\nhere.svs,h,1\ns3://{bucket.name}/slides/b.svs,b,2\ns3://{bucket.name}/no.svs,n,3\n"
    (tmp_path / "list.csv").write_text(rows)
    here, there, missing = find_inputs([tmp_path / "list.csv"], remote=remote)
    assert (here.remote, there.covariates, missing.remote.files) == (None, {"age": "2"}, ())
    bucket.put("slides/list.csv", b"slide\nb.svs\na.mrxs\n")
    found = find_inputs([f"s3://{bucket.name}/slides/list.csv"], remote=remote)
    assert found[0].path == there.path
    assert [len(slide.remote.files) for slide in found] == [1, 3]
    (tmp_path / "list.csv").write_text("slide\ns3://key:secret@bucket/a.svs\n")
    with pytest.raises(RefusedError, match=r"list.csv, row 2: .*credentials") as caught:
        find_inputs([tmp_path / "list.csv"], remote=remote)
    assert "secret" not in str(caught.value)


def test_pseudonyms_are_explained_by_addresses_and_names_stay_out_of_reasons(remote, bucket, tmp_path):
    bucket.put("slides/Jane Doe.svs", b"1")
    (slide,) = find_inputs([f"s3://{bucket.name}/slides/Jane Doe.svs"], remote=remote)
    (name,) = slide_ids([slide], key_file=tmp_path / "key.csv", out=tmp_path / "out")
    assert f"{name},s3://{bucket.name}/slides/Jane Doe.svs" in (tmp_path / "key.csv").read_text()
    assert "Jane" not in without_name(f"nothing found at {slide.remote.address}", slide, name)


@pytest.fixture
def cache(tmp_path):
    return RemoteSlides(lambda: tmp_path / "slides")


@pytest.fixture
def put(bucket):
    """Puts a slide into the bucket, and says what it consists of."""

    def put(name, content):
        bucket.put(name, content)
        address = Address.parse(f"s3://{bucket.name}/{name}")
        return RemoteSlide(address, (ObjectStore("s3").stat(address),))

    return put


def kept(cache):
    """Names of slides that are there, without locks."""
    return sorted(path.name for folder in cache.folder.iterdir() if folder.is_dir() for path in folder.iterdir())


def test_a_slide_is_there_while_it_is_held(cache, put):
    slide = put("a.svs", b"first")
    with cache.holding(slide) as path:
        assert path == cache.path(slide)
        assert (path.name, path.read_bytes()) == ("a.svs", b"first")
    assert kept(cache) == []
    other = put("a.svs", b"other")
    assert other.version != slide.version
    with cache.holding(other) as path:
        assert path.read_bytes() == b"other"


def test_a_full_disk_leaves_nothing_behind(cache, put, monkeypatch):
    slide = put("a.svs", b"12345")

    def full(_remote, to, **_):
        Path(to).write_bytes(b"123")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(cache.store(slide.address)._fs, "get_file", full)
        with pytest.raises(DataError, match="cannot write"), cache.holding(slide):
            pass
    assert kept(cache) == []
    with cache.holding(slide) as path:
        assert path.read_bytes() == b"12345"


def test_an_object_that_changed_or_came_short_is_refused(cache, put, bucket, monkeypatch):
    slide = put("a.svs", b"12345")
    bucket.put("a.svs", b"54321")
    with pytest.raises(DataError, match="changed while it was read"), cache.holding(slide):
        pass
    slide = put("b.svs", b"12345")
    monkeypatch.setattr(ObjectStore, "fetch", lambda self, address, to, stopped: to.write_bytes(b"123"))
    with pytest.raises(DataError, match="was not downloaded completely") as caught, cache.holding(slide):
        pass
    assert caught.value.got == "3 bytes"
    assert kept(cache) == []


def test_others_wait_for_a_slide_unless_they_may_never_need_it(cache, put):
    slide, contents = put("a.svs", b"12345"), []

    def read():
        with cache.holding(slide) as path:
            contents.append(path.read_bytes())

    threads = [threading.Thread(target=read) for _ in range(3)]
    with cache.holding(slide):
        with pytest.raises(RefusedError, match="another process"), cache.holding(slide, lambda: False):
            pass
        for thread in threads:
            thread.start()
        assert contents == []
    for thread in threads:
        thread.join()
    assert contents == [b"12345"] * 3


KILLED = """
import os, signal, sys
from pathlib import Path
from ntrm.slides.object_store import Address, ObjectStore, RemoteSlide, RemoteSlides

def half(self, address, to, stopped):
    to.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)

ObjectStore.fetch = half
address = Address.parse(sys.argv[2])
with RemoteSlides(lambda: Path(sys.argv[1])).holding(RemoteSlide(address, (ObjectStore("s3").stat(address),))):
    pass
"""


def test_killed_while_fetching_nothing_half_is_taken_for_whole(cache, put, forks):
    slide = put("a.svs", b"12345")
    assert forks.run(KILLED, cache.folder, slide.address).status == -signal.SIGKILL
    assert kept(cache) == ["a.svs"]
    with cache.holding(slide) as path:
        assert path.read_bytes() == b"12345"
    other = put("b.svs", b"1")
    assert forks.run(KILLED, cache.folder, other.address).status == -signal.SIGKILL
    with cache.holding(slide):
        assert kept(cache) == ["a.svs"]
    assert kept(cache) == []
