import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.helpers import wait_for

from ntrm.core.errors import DataError, RefusedError
from ntrm.slides import slide_cache
from ntrm.slides.addresses import Address
from ntrm.slides.object_store import NoSuchObjectError, ObjectStore
from ntrm.slides.slide_cache import RemoteSlide, SlideCache

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cache(tmp_path):
    return SlideCache(tmp_path / "slides", 1000)


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


def test_a_slide_is_fetched_once_and_again_when_it_is_another_one(cache, put, monkeypatch):
    slide = put("a.svs", b"first")
    with cache.holding(slide) as path:
        assert path == cache.path(slide)
        assert (path.name, path.read_bytes()) == ("a.svs", b"first")
    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "fetch", None)
        with cache.holding(slide):
            pass
    other = put("a.svs", b"other")
    assert other.version != slide.version
    with cache.holding(other) as path:
        assert path.read_bytes() == b"other"


def test_the_longest_unused_makes_room_and_what_is_read_stays(cache, put):
    slides = [put(f"{name}.svs", bytes(400)) for name in "abcd"]
    for day, slide in enumerate(slides[:2]):
        with cache.holding(slide):
            pass
        os.utime(cache.path(slide).parent, (day, day))
    with cache.holding(slides[0]):  # used now: no longer the oldest
        with cache.holding(slides[2]):
            assert kept(cache) == ["a.svs", "c.svs"]
            with pytest.raises(DataError, match="no room") as caught, cache.holding(slides[3]):
                pass
        assert "--cache" in caught.value.hint
        with cache.holding(slides[3]):
            assert kept(cache) == ["a.svs", "d.svs"]
    with pytest.raises(RefusedError, match="does not fit"), cache.holding(put("large.svs", bytes(1001))):
        pass


def test_a_full_disk_leaves_nothing_behind(cache, put, monkeypatch):
    slide = put("a.svs", b"12345")
    free = slide_cache.shutil.disk_usage(cache.folder.parent)._replace(free=1)
    with monkeypatch.context() as patched:
        patched.setattr(slide_cache.shutil, "disk_usage", lambda _: free)
        with pytest.raises(DataError, match="no room"), cache.holding(slide):
            pass

    def full(_remote, to, **_):
        Path(to).write_bytes(b"123")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(cache.store(slide.address)._fs, "get_file", full)
        with pytest.raises(DataError, match="disk of the cache is full"), cache.holding(slide):
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
    assert (caught.value.got, caught.value.expected) == ("3 bytes", "5 bytes")
    assert kept(cache) == []


def test_a_slide_that_is_not_there_is_told(cache):
    missing = RemoteSlide(Address.parse("s3://bucket/gone.svs"), ())
    with pytest.raises(NoSuchObjectError, match="nothing found at"), cache.holding(missing):
        pass


def test_one_fetches_and_the_others_wait(cache, put, monkeypatch):
    slide, fetched, begun = put("a.svs", b"12345"), [], threading.Event()
    real = ObjectStore.fetch

    def slow(self, address, to, stopped):
        fetched.append(address)
        begun.wait(60)
        real(self, address, to, stopped)

    def read():
        with cache.holding(slide) as path:
            contents.append(path.read_bytes())

    monkeypatch.setattr(ObjectStore, "fetch", slow)
    contents = []
    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_for("the first", lambda: fetched)
    begun.set()
    for thread in threads:
        thread.join()
    assert contents == [b"12345"] * 4
    assert len(fetched) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from ntrm.slides.addresses import Address
from ntrm.slides.object_store import ObjectStore
from ntrm.slides.slide_cache import RemoteSlide, SlideCache

def half(self, address, to, stopped):
    to.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)

ObjectStore.fetch = half
address = Address.parse(sys.argv[2])
with SlideCache(Path(sys.argv[1]), 1000).holding(RemoteSlide(address, (ObjectStore("s3").stat(address),))):
    pass
"""


def test_killed_while_fetching_nothing_half_is_taken_for_whole(cache, put):
    slide = put("a.svs", b"12345")
    command = [sys.executable, "-c", KILLED, str(cache.folder), str(slide.address)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert kept(cache) == ["a.svs"]
    assert not cache.path(slide).exists()
    with cache.holding(slide) as path:
        assert path.read_bytes() == b"12345"
    assert kept(cache) == ["a.svs"]
    assert [path.name for path in cache.folder.glob(".*")] == []
