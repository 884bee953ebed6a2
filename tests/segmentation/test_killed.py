"""Killed with -9 anywhere, or on a full disk: the same command ends with the same bytes."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.evaluation.small import ByColour
from tests.segmentation.small import fingerprints, paint, write_slide

from ntrm.segmentation.identity import Options
from ntrm.segmentation.segment import segment
from ntrm.slide.checkpoints import Checkpoints

ROOT = Path(__file__).parents[2]

KILLED = """
import os, signal, sys
from tests.evaluation.small import ByColour
from ntrm.slide.bands import BandStore
from ntrm.slide.checkpoints import Checkpoints
from ntrm.segmentation.identity import Options
from ntrm.segmentation.segment import segment
slide, out, where, times = *sys.argv[1:4], int(sys.argv[4])
Checkpoints.due = lambda self: True

def dying(function):
    def wrapped(*arguments, **more):
        global times
        times -= 1
        if times < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **more)
    return wrapped

if where == "bands":
    BandStore.append = dying(BandStore.append)
elif where == "checkpoints":
    Checkpoints.save = dying(Checkpoints.save)
elif where == "renaming":
    os.replace = dying(os.replace)
    os.rename = dying(os.rename)
else:
    os.fsync = dying(os.fsync)
import torch; torch.set_num_threads(1)
options = Options(maps=where != "bands", probabilities=where != "bands")
segment(slide, out=out, model=ByColour(), device="cpu", batch=2, options=options)
"""
MOST = {"bands": 8, "checkpoints": 8, "renaming": 60, "anywhere": 70}
"""Calls in a whole run, about."""


def run(slide, out, **options):
    found = segment(slide, out=out, model=ByColour(), device="cpu", batch=2, options=Options(**options))
    assert found.exit_code == 0
    return fingerprints(out)


@pytest.mark.parametrize("where", MOST)
def test_killed_at_any_moment_the_same_command_ends_with_the_same_bytes(tmp_path, random, where):
    if where != "bands":
        pytest.importorskip("zarr")
    options = {} if where == "bands" else {"maps": True, "probabilities": True}
    slide = write_slide(tmp_path / "a.tif", paint(random, pieces=2))
    whole = run(slide, tmp_path / "whole", **options)
    times = int(random.integers(0, MOST[where]))
    print("killed after", times)  # noqa: T201 - shown with a failure
    words = [sys.executable, "-c", KILLED, str(slide), str(tmp_path / "out"), where, str(times)]
    dead = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert dead.returncode in (-9, 0), dead.stderr
    assert run(slide, tmp_path / "out", **options) == whole


FULL = """
import resource, sys
from tests.evaluation.small import ByColour
from ntrm.slide.checkpoints import Checkpoints
from ntrm.segmentation.segment import segment
large, small, out, due = sys.argv[1:]
Checkpoints.due = lambda self: due == "True"
import torch; torch.set_num_threads(1)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
found = segment([large, small], out=out, model=ByColour(), device="cpu", batch=2)
print([each.status for each in found.slides], found.exit_code, found.slides[0].reason)
"""


@pytest.mark.parametrize(("due", "reason"), [(False, "cannot keep finished rows"), (True, "cannot write")])
def test_a_disk_that_takes_no_more_is_one_slides_error(tmp_path, random, due, reason):
    """No file may exceed 300 kB: neither do the rows of the large slide fit, nor a checkpoint of it."""
    large = write_slide(tmp_path / "large.tif", paint(random, height=600, width=800))
    small = write_slide(tmp_path / "small.tif", paint(random, height=150, width=110))
    words = [sys.executable, "-c", FULL, str(large), str(small), str(tmp_path / "out"), str(due)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "['failed', 'done'] 1" in done.stdout
    assert reason in done.stdout
    assert reason in (tmp_path / "out" / "slides.csv").read_text()
    # With room, the same command goes on.
    again = segment([large, small], out=tmp_path / "out", model=ByColour(), device="cpu", batch=2)
    assert [each.status for each in again.slides] == ["done", "kept"]


def test_whichever_write_fails_the_slide_is_told_and_the_next_one_goes_on(tmp_path, random, monkeypatch):
    pytest.importorskip("zarr")
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    options = {"maps": True, "probabilities": True, "zarr": True, "gzip": True}
    slides = [write_slide(tmp_path / f"{name}.tif", paint(random)) for name in "ab"]
    whole = run(slides, tmp_path / "whole", **options)
    real, left = os.fsync, [0]

    def full(file):
        left[0] -= 1
        if left[0] == -1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file)

    for number in random.choice(np.arange(2, 28), 4, replace=False):
        out = tmp_path / str(number)
        left[0] = int(number)
        monkeypatch.setattr(os, "fsync", full)
        found = segment(slides, out=out, model=ByColour(), device="cpu", batch=2, options=Options(**options))
        monkeypatch.setattr(os, "fsync", real)
        # The first one's files are written while the second is predicted: it may be either.
        assert sorted(each.status for each in found.slides) == ["done", "failed"], number
        assert found.exit_code == 1
        assert "No space left on device" in found.failed[0].reason
        assert run(slides, out, **options) == whole
