import errno
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ntrm.core.errors import DataError, RefusedError
from ntrm.slides.object_store import Address, ObjectStore
from ntrm.slides.remote_slides import RemoteSlide, RemoteSlides

ROOT = Path(__file__).parents[2]


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
from ntrm.slides.object_store import Address
from ntrm.slides.object_store import ObjectStore
from ntrm.slides.remote_slides import RemoteSlide, RemoteSlides

def half(self, address, to, stopped):
    to.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)

ObjectStore.fetch = half
address = Address.parse(sys.argv[2])
with RemoteSlides(lambda: Path(sys.argv[1])).holding(RemoteSlide(address, (ObjectStore("s3").stat(address),))):
    pass
"""


def test_killed_while_fetching_nothing_half_is_taken_for_whole(cache, put):
    slide = put("a.svs", b"12345")
    command = [sys.executable, "-c", KILLED, str(cache.folder), str(slide.address)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert kept(cache) == ["a.svs"]
    with cache.holding(slide) as path:
        assert path.read_bytes() == b"12345"
    other = put("b.svs", b"1")
    assert subprocess.run([*command[:-1], str(other.address)], cwd=ROOT, check=False).returncode == -signal.SIGKILL
    with cache.holding(slide):
        assert kept(cache) == ["a.svs"]
    assert kept(cache) == []
