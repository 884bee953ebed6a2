"""Killed with -9 anywhere, or on a full disk: the same command ends with the same bytes."""

import errno
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tests.segment.small import fingerprints, paint, run, speckled, write_slide

pytestmark = pytest.mark.usefixtures("quick_readers")

ROOT = Path(__file__).parents[2]

EACH = """
import os, sys, traceback
import torch; torch.set_num_threads(1)
from tests.evaluation.small import ByColour
from ntrm.segment.options import Options
from ntrm.segment.batch import segment_slides
from ntrm.segment import predict
predict.IN_MEMORY = 0

def each(work, rows):
    # A process for each row that shares what this one has imported, which takes longer than the work.
    for row in rows:
        child = os.fork()
        if child == 0:
            try:
                work(*row)
                sys.stdout.flush()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        print("ended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
KILLED = """
import signal

def dying(function, times):
    def wrapped(*arguments, **more):
        nonlocal times
        times -= 1
        if times < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **more)
    return wrapped

def work(where, times):
    if where == "rows":
        predict.Maps.fill = dying(predict.Maps.fill, int(times))
    elif where == "renaming":
        # One count for both.
        os.replace = os.rename = dying(os.replace, int(times))
    else:
        os.fsync = dying(os.fsync, int(times))
    more = where != "rows"
    options = Options(maps=more, probabilities=more, min_area_um2=400 * more)
    segment_slides(slide, out=f"{out}/{where}", model=ByColour(), device="cpu", batch=2, options=options)

slide, out, *rows = sys.argv[1:]
each(work, [row.split() for row in rows])
"""
MOST = {"rows": 8, "renaming": 35, "anywhere": 22}  # Calls in a whole run, about


def whole(slide, out, **options):
    assert run(slide, out, **options).exit_code == 0
    return fingerprints(out)


def in_processes(code, *words):
    """Output of a program, and the exit codes of the processes that it started one after the other."""
    command = [sys.executable, "-c", EACH + code, *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    codes = [int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("ended ")]
    return done.stdout, done.stderr, codes


def test_killed_at_any_moment_the_same_command_ends_with_the_same_bytes(tmp_path, random):
    slide = write_slide(tmp_path / "a.tif", speckled(random, paint(random, pieces=2)))
    places = MOST if find_spec("zarr") else ["rows"]
    times = {where: int(random.integers(0, MOST[where])) for where in places}
    print("killed after", times)  # noqa: T201 - shown with a failure
    _, said, codes = in_processes(KILLED, slide, tmp_path / "out", *(f"{where} {n}" for where, n in times.items()))
    assert len(codes) == len(times)
    assert set(codes) <= {-9, 0}, said
    for options in ({}, {"maps": True, "probabilities": True, "min_area_um2": 400}):
        so_run = [where for where in places if (where == "rows") == (not options)]
        expected = whole(slide, tmp_path / f"whole {len(options)}", **options) if so_run else {}
        for where in so_run:
            assert whole(slide, tmp_path / "out" / where, **options) == expected, where


FULL = """
import resource

def work(out):
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    found = segment_slides([large, small], out=out, model=ByColour(), device="cpu", batch=2)
    print([each.status for each in found.slides], found.exit_code, found.slides[0].reason)

large, small, out = sys.argv[1:]
each(work, [(out,)])
"""


def test_a_disk_that_takes_no_more_is_one_slides_error(tmp_path, random):
    """No file may exceed 150 kB: the maps of the large slide do not fit."""
    large = write_slide(tmp_path / "large.tif", paint(random, height=420, width=500))
    small = write_slide(tmp_path / "small.tif", paint(random, height=150, width=110))
    printed, said, codes = in_processes(FULL, large, small, tmp_path / "out")
    assert codes == [0], said
    (line,) = [line for line in printed.splitlines() if line.startswith("[")]
    assert line.startswith("['failed', 'done'] 1")
    assert "cannot write a map of" in line
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
