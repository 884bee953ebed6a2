"""A child process reads: the same pixels, and whatever kills it is one error of ours."""

import io
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from bench.fuzz_readers import fuzz
from tests.slides import making

from ntrm.core.errors import DataError, UsageError
from ntrm.slides.grid import SlideGrid
from ntrm.slides.isolated import ReaderPool, ReadingLimits, ReadingProcess, open_isolated
from ntrm.slides.readers.formats import open_slide
from ntrm.slides.readers.reading_process import receive


@pytest.fixture
def slide(tmp_path, random):
    return making.write_ome(tmp_path / "a.ome.tif", making.tissue(random, 200, 300), compression="zlib")


def child(process):
    return process._child


def test_a_child_reads_what_this_process_would(slide, random):
    here, there = open_slide(slide), open_isolated(slide)
    assert there.info == here.info
    regions = [(*(int(n) for n in random.integers(-20, 300, 2)), 70, 50, level) for level in (0, 1, 2)] * 5
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda region: there.read(*region), regions))
    for region, pixels in zip(regions, found, strict=True):
        np.testing.assert_array_equal(pixels, here.read(*region))
    np.testing.assert_array_equal(SlideGrid(there, 1.34).read(0, 0, 64, 64), SlideGrid(here, 1.34).read(0, 0, 64, 64))
    for impossible in ((0, 0, 0, 5, 0), (0, 0, 5, 5, 3), (0, 0, 2**20, 2**20, 0)):
        with pytest.raises(UsageError):
            there.read(*impossible)
    there.close()
    there.close()
    assert child(there).poll() is not None


def test_errors_arrive_as_they_were_raised(tmp_path):
    (tmp_path / "a.svs").write_bytes(b"no slide at all")
    with pytest.raises(DataError) as here:
        open_slide(tmp_path / "a.svs")
    with pytest.raises(DataError) as there:
        open_isolated(tmp_path / "a.svs")
    assert str(there.value) == str(here.value)


def test_odd_names_reach_the_child(tmp_path, random):
    image = making.tissue(random, 20, 30)
    path = making.write_png(tmp_path / "ä b\n'\".png", image)
    raw = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png"))
    raw.write_bytes(path.read_bytes())
    with ReadingProcess() as process:
        for odd in (path, raw):
            process.open(odd)
            np.testing.assert_array_equal(process.read(0, 0, 30, 20, 0), image)


def test_a_killed_child_is_an_error_and_stays_one(slide):
    reader = open_isolated(slide)
    os.kill(child(reader).pid, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(DataError, match="reading the slide failed") as caught:
            reader.read(0, 0, 50, 50, 0)
        assert "SIGKILL" in caught.value.got


def test_a_child_that_stands_still_is_given_up(slide):
    reader = open_isolated(slide)
    reader.limits = ReadingLimits(seconds=1)  # a busy machine may need longer to open the slide
    os.kill(child(reader).pid, signal.SIGSTOP)
    with pytest.raises(DataError, match="reading the slide failed") as caught:
        reader.read(0, 0, 50, 50, 0)
    assert "no answer within 1 s" in caught.value.got
    assert child(reader).poll() == -signal.SIGKILL


@pytest.mark.parametrize(
    ("does", "found"),
    [
        ("import os; os.abort()", "SIGABRT"),
        ("while True: pass", "no answer within 1 s"),
        ("bytearray(2**31)", "MemoryError"),
        ("raise SystemExit(3)", "exit code 3"),
    ],
)
def test_a_library_that_goes_wrong_harms_nobody(does, found, slide, tmp_path, monkeypatch):
    library = f"""
        class OpenSlideError(Exception):
            pass
        class OpenSlide:
            @staticmethod
            def detect_format(path):
                {does}
    """
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "openslide.py").write_text(textwrap.dedent(library))
    monkeypatch.syspath_prepend(tmp_path / "broken")
    with pytest.raises(DataError) as caught:
        open_isolated(
            slide, process=ReadingProcess(ReadingLimits(memory_mb=256, seconds=1 if "no answer" in found else 60))
        )
    assert found in str(caught.value.got)


def test_memory_is_limited(tmp_path, random):
    image = np.zeros((4000, 4000, 3), dtype=np.uint8)
    path = making.write_strips(tmp_path / "a.tif", image, rows=4000, compression="zlib")
    with pytest.raises(DataError, match=r"cannot read the slide|reading the slide failed"):
        open_isolated(path, process=ReadingProcess(ReadingLimits(memory_mb=32))).read(0, 0, 100, 100, 0)
    reader = open_isolated(path, process=ReadingProcess(ReadingLimits(memory_mb=512)))
    assert (reader.read(0, 0, 100, 100, 0) == 0).all()
    reader.close()


def test_the_child_ends_with_its_parent(slide):
    process = ReadingProcess()
    process.open(slide)
    process._requests.close()  # what the end of a parent does
    deadline = time.monotonic() + 300
    while child(process).poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert child(process).poll() == 0


SHARED = """
import multiprocessing, sys, threading
import numpy as np
import ntrm

def corner(slide, index, results):
    results.put(slide.read(10 * index, 0, 40, 30, 0))

if __name__ == "__main__":
    for way in ("fork", "spawn"):
        context = multiprocessing.get_context(way)
        with ntrm.open_slide(sys.argv[1]) as slide:
            here, results = slide.read(10, 0, 40, 30, 0), context.Queue()
            slide._lock.acquire()  # as a thread that reads while the fork is made
            threading.Timer(1, slide._lock.release).start()
            other = context.Process(target=corner, args=(slide, 1, results))
            other.start()
            assert np.array_equal(results.get(timeout=300), here), "other pixels"
            other.join()
            assert slide.alive and np.array_equal(slide.read(10, 0, 40, 30, 0), here), "the parent's is gone"
    print("the same")
"""


def test_other_processes_open_the_slide_for_themselves(slide, tmp_path):
    script = tmp_path / "shared.py"
    script.write_text(SHARED)
    done = subprocess.run([sys.executable, script, slide], capture_output=True, text=True, timeout=500, check=False)
    assert (done.returncode, done.stdout) == (0, "the same\n"), done.stderr


def test_a_closed_slide_is_called_so(slide):
    with open_isolated(slide) as reader:
        pass
    for use in (lambda: reader.read(0, 0, 9, 9, 0), lambda: reader.open(slide), lambda: pickle.dumps(reader)):
        with pytest.raises(UsageError, match="the slide is closed") as refused:
            use()
        assert "open" in refused.value.hint


def test_modules_in_the_working_folder_are_not_run(slide, tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    reader = open_isolated(slide)
    assert reader.info.reader == "tifffile"
    reader.close()


def test_an_endless_message_or_half_of_one_is_an_error():
    for sent in (b"x" * 2**21, b"{}", b""):
        with pytest.raises(EOFError):
            receive(io.BytesIO(sent))


def test_damaged_files_of_every_kind_give_our_own_errors(tmp_path, random):
    found = fuzz(tmp_path, random, 252, ReadingLimits(memory_mb=512, seconds=20))
    assert found["failures"] == []
    assert found["outcomes"]["refused"] > 75
    assert found["outcomes"]["read"] > 40


def test_every_slide_has_a_child_of_its_own_and_the_next_one_waits(slide, tmp_path):
    (tmp_path / "b.svs").write_bytes(b"no slide")
    with closing(ReaderPool(3)) as readers:
        first = readers.waiting
        with pytest.raises(DataError):
            readers.open(tmp_path / "b.svs")
        assert child(first).poll() is not None, "a bad slide takes its child along"
        second = readers.waiting
        one = readers.open(slide)
        last = readers.waiting
        assert one is second is not last
        other = readers.open(slide)
        # Three were announced, so that no fourth one waits; a fourth slide is opened all the same.
        assert (other, readers.waiting) == (last, None)
        for reader in (one, other, readers.open(slide)):
            np.testing.assert_array_equal(reader.read(3, 4, 30, 20, 0), open_slide(slide).read(3, 4, 30, 20, 0))
            reader.close()
            assert child(reader).poll() is not None
    with closing(ReaderPool(1)) as readers:
        waiting = readers.waiting
    assert child(waiting).poll() is not None
