"""Whole runs on Ray, two workers on this machine, with accidents on purpose."""

import csv
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest
import torch
from tests.evaluation.small import MPP, schema_of
from tests.segment.small import fingerprints, paint, write_slide
from tests.slides.server import SECRET

from ntrm.models.registry import create
from ntrm.results.paths import DONE, HIDDEN, SOURCE
from ntrm.segment.batch import segment_slides
from ntrm.segment.options import Options

NAMES = "abc"  # Of slides: one for each of two workers, and one that waits
LIMIT_S = 300  # For what takes seconds: other tests may hold the cores


@pytest.fixture
def words(tmp_path, random, seed):
    """The command on three slides of many bands, with a network of the package, since workers know no other."""
    pytest.importorskip("ray", reason='ray is not installed: pip install "ntrm[cluster]"')
    torch.manual_seed(seed)
    network = create("ntrm-paper", schema_of(), width=0.125, dim=16).describe(window=64, mpp=MPP)
    network.save_pretrained(tmp_path / "model")
    for name in NAMES:
        write_slide(tmp_path / "in" / f"{name}.tif", paint(random, pieces=4))
    head = [sys.executable, "-m", "ntrm", "segment", str(tmp_path / "in"), "--model", str(tmp_path / "model")]
    # What a network that has learnt nothing says is full of specks.
    return [*head, "--device", "cpu", "--batch", "2", "--progress", "none", "--min-area", "400"]


@contextmanager
def started(words, out, **more):
    """The command in a process, with a mark that everything it starts inherits; all of it is ended at last."""
    mark = f"NTRM_TEST_MARK={uuid4().hex}"
    clean = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    environment = {**clean, "OMP_NUM_THREADS": "1", **dict([mark.split("=")])}
    command = subprocess.Popen(
        [*words, "--out", str(out)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )
    try:
        yield command, mark
    finally:
        for pid in marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        command.communicate()


def marked(mark):
    """Processes that live and bear the mark."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):
                if mark.encode() in (place / "environ").read_bytes():
                    found.append(int(place.name))
    return found


def until(condition, command=None, every=0.002):
    """What ``condition`` gives once it is true of something."""
    end = time.monotonic() + LIMIT_S
    while not (found := condition()):
        if command is not None and command.poll() is not None:
            said = command.communicate()
            if "Ray did not start" in said[1]:
                pytest.skip("this machine is too busy for Ray, which gives itself half a minute to start")
            pytest.fail(f"it ended with {command.returncode}: {said}")
        assert time.monotonic() < end, "it never came to that"
        time.sleep(every)
    return found


def until_all_ended(mark):
    """To look through all processes takes longer than to wait for them."""
    until(lambda: not marked(mark), every=0.1)


def stopped_at_work(out, mark, slides="*"):
    """A worker that is at a slide and not through, stopped: however late this process comes, it is in the middle."""
    for lock in out.glob(f"{slides}/{HIDDEN}/lock"):
        for worker in [] if (lock.parent / DONE).exists() else holding(lock, mark):
            os.kill(worker, signal.SIGSTOP)
            if not (lock.parent / DONE).exists() and worker in holding(lock, mark):
                return worker
            os.kill(worker, signal.SIGCONT)
    return None


def holding(lock, mark):
    found = []
    for pid in marked(mark):
        with suppress(OSError):
            if any(handle.readlink() == lock for handle in Path(f"/proc/{pid}/fd").iterdir()):
                found.append(pid)
    return found


def is_pending(pid, number):
    """Whether a process has still to be told of a signal that was sent to it; its handler runs before anything else."""
    try:
        rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    masks = (int(row.split()[1], 16) for row in rows if row.startswith(("SigPnd:", "ShdPnd:")))
    return any(mask >> (number - 1) & 1 for mask in masks)


def listening(mark):
    """Addresses at which the marked processes listen, as the system writes them."""
    sockets = set()
    for pid in marked(mark):
        with suppress(OSError):
            sockets |= {str(handle.readlink()) for handle in Path(f"/proc/{pid}/fd").iterdir()}
    inodes = {name[8:-1] for name in sockets if name.startswith("socket:[")}
    rows = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()]
    return {row[1].rpartition(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes}


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


@pytest.mark.slow
def test_an_interrupt_and_a_killed_worker_cost_their_slide_and_the_same_command_goes_on(tmp_path, words):
    # One test: to start Ray takes longer than the slides.
    out = tmp_path / "out"
    interrupt([*words, "--cluster", "ray", "--workers", "1"], out)
    kill_a_worker([*words, "--cluster", "ray", "--workers", "2"], out)
    assert fingerprints(out) == by_one_process(tmp_path)


@pytest.mark.slow
def test_at_addresses_a_killed_worker_leaves_the_same_bytes_and_no_secret(tmp_path, words, bucket):
    for name in NAMES:
        bucket.put(f"in/{name}.tif", tmp_path / "in" / f"{name}.tif")
    words[words.index(str(tmp_path / "in"))] = f"s3://{bucket.name}/in"
    words += ["--cluster", "ray", "--workers", "2", "--cache", str(tmp_path / "fetched")]
    with started(words, f"s3://{bucket.name}/out") as (command, mark):
        worker = until(lambda: stopped_at_work(tmp_path / "fetched", mark, "**/*"), command, every=0.02)
        os.kill(worker, signal.SIGKILL)
        output, said = command.communicate(timeout=LIMIT_S)
        assert command.returncode == 0, said
        until_all_ended(mark)
    assert [output.count(f"\n│ {name} ") for name in NAMES] == [1, 1, 1]
    found = fingerprints(bucket.download("out", tmp_path / "out"))
    assert {path: digest for path, digest in found.items() if not path.endswith(SOURCE)} == by_one_process(tmp_path)
    assert SECRET not in output + said
    assert not any(SECRET.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def by_one_process(tmp_path):
    """Hashes of the files of the same slides, without Ray."""
    single, options = tmp_path / "single", Options(min_area_um2=400)
    found = segment_slides(
        tmp_path / "in", out=single, model=tmp_path / "model", device="cpu", batch=2, options=options
    )
    assert found.exit_code == 0
    return fingerprints(single)


def interrupt(words, out):
    """Ctrl-C ends the command and its cluster."""
    # A session of its own and the signal to all of it, as from a terminal.
    with started(words, out, start_new_session=True) as (command, mark):
        # The worker stands still until the signal has arrived, else the run may be over before.
        worker = until(lambda: stopped_at_work(out, mark), command)
        os.killpg(command.pid, signal.SIGINT)
        until(lambda: not is_pending(command.pid, signal.SIGINT))
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGCONT)
        _, said = command.communicate(timeout=LIMIT_S)
        assert command.returncode == 130, said
        assert "same command again to continue" in said
        assert "Traceback" not in said
        until_all_ended(mark)
    assert not (out / "slides.csv").exists()


def kill_a_worker(words, out):
    """Another worker does the slide of the dead one, and every slide is done once."""
    with started(words, out) as (command, mark):
        worker = until(lambda: stopped_at_work(out, mark), command)
        os.kill(worker, signal.SIGKILL)
        assert listening(mark) <= LOOPBACK
        output, said = command.communicate(timeout=LIMIT_S)
        assert command.returncode == 0, said
        until_all_ended(mark)
    with (out / "slides.csv").open(newline="") as stream:
        statuses = Counter((row["slide_id"], row["status"]) for row in csv.DictReader(stream))
    assert statuses == Counter({(name, "done"): 1 for name in NAMES})
    assert [output.count(f"\n│ {name} ") for name in NAMES] == [1, 1, 1]
