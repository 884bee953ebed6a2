"""Killed with -9 anywhere, or on a full disk: the same command ends with the same bytes."""

import errno
import os
from importlib.util import find_spec

import numpy as np
import pytest
from tests.segment.small import fingerprints, paint, run, speckled, write_slide

pytestmark = pytest.mark.usefixtures("quick_readers")

BEGIN = """
import os, signal, sys
from tests.evaluation.small import ByColour
from tests.segment.small import InProcess
from ntrm.segment import predict
from ntrm.segment.batch import segment_slides
from ntrm.slides import isolated
predict.IN_MEMORY, isolated.ReadingProcess = 0, InProcess
"""
KILLED = """
def dying(function, times):
    def wrapped(*arguments, **more):
        nonlocal times
        times -= 1
        if times < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **more)
    return wrapped

slide, out, where, times = sys.argv[1:]
if where == "rows":
    predict.Maps.fill = dying(predict.Maps.fill, int(times))
elif where == "renaming":
    # One count for both.
    os.replace = os.rename = dying(os.replace, int(times))
else:
    os.fsync = dying(os.fsync, int(times))
more = {} if where == "rows" else {"maps": True, "probabilities": True, "min_area_um2": 400}
segment_slides(slide, out=out, model=ByColour(), device="cpu", batch=2, **more)
"""
MOST = {"rows": 8, "renaming": 35, "anywhere": 22}  # Calls in a whole run, about


def whole(slide, out, **options):
    assert run(slide, out, **options).exit_code == 0
    return fingerprints(out)


def test_killed_at_any_moment_the_same_command_ends_with_the_same_bytes(tmp_path, random, forks):
    slide = write_slide(tmp_path / "a.tif", speckled(random, paint(random, pieces=2)))
    places = MOST if find_spec("zarr") else ["rows"]
    times = {where: int(random.integers(0, MOST[where])) for where in places}
    print("killed after", times)  # noqa: T201 - shown with a failure
    for where, moment in times.items():
        ended = forks.run(BEGIN + KILLED, slide, tmp_path / "out" / where, where, moment)
        assert ended.status in (-9, 0), ended.errors
    for options in ({}, {"maps": True, "probabilities": True, "min_area_um2": 400}):
        so_run = [where for where in places if (where == "rows") == (not options)]
        expected = whole(slide, tmp_path / f"whole {len(options)}", **options) if so_run else {}
        for where in so_run:
            assert whole(slide, tmp_path / "out" / where, **options) == expected, where


FULL = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
large, small, out = sys.argv[1:]
found = segment_slides([large, small], out=out, model=ByColour(), device="cpu", batch=2)
print([each.status for each in found.slides], found.exit_code, found.slides[0].reason)
"""


def test_a_disk_that_takes_no_more_is_one_slides_error(tmp_path, random, forks):
    """No file may exceed 150 kB: the maps of the large slide do not fit."""
    large = write_slide(tmp_path / "large.tif", paint(random, height=420, width=500))
    small = write_slide(tmp_path / "small.tif", paint(random, height=150, width=110))
    ended = forks.run(BEGIN + FULL, large, small, tmp_path / "out")
    assert ended.status == 0, ended.errors
    assert ended.output.startswith("['failed', 'done'] 1")
    assert "cannot write a map of" in ended.output
    assert "cannot write a map of" in (tmp_path / "out" / "slides.csv").read_text()
    # With room, the same command goes on.
    again = run([large, small], tmp_path / "out")
    assert [each.status for each in again.slides] == ["done", "kept"]


def test_whichever_write_fails_the_slide_is_told_and_the_next_one_goes_on(tmp_path, random, monkeypatch):
    pytest.importorskip("zarr")
    options = {"maps": True, "probabilities": True, "zarr": True, "gzip": True}
    slides = [write_slide(tmp_path / f"{name}.tif", paint(random)) for name in "ab"]
    expected = whole(slides, tmp_path / "whole", **options)
    real, left = os.fsync, [0]

    def full(file):
        left[0] -= 1
        if left[0] == -1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file)

    for number in random.choice(np.arange(2, 25), 4, replace=False):
        out = tmp_path / str(number)
        left[0] = int(number)
        monkeypatch.setattr(os, "fsync", full)
        found = run(slides, out, **options)
        monkeypatch.setattr(os, "fsync", real)
        # The first one's files are written while the second is predicted: it may be either.
        assert sorted(each.status for each in found.slides) == ["done", "failed"], number
        assert found.exit_code == 1
        assert "No space left on device" in found.failed[0].reason
        assert whole(slides, out, **options) == expected
