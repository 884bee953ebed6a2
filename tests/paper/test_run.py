import json
import os
import signal
import sys
from contextlib import closing
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from tests.helpers import is_alive, wait_for

from ntrm.core.errors import UsageError
from ntrm.core.io import holding
from ntrm.paper import run
from ntrm.paper.run import Slot, make_slots, run_jobs

SLOTS = (Slot("cpu"),)
STAND_IN = """
import json, os, signal, sys, time
document = json.loads(sys.argv[1])
print("working on", document["name"], flush=True)
begun = time.time()
open(document["mark"] + ".begun", "w").write(str(os.getpid()))
while document["other"] and not os.path.exists(document["other"]):
    time.sleep(0.02)
time.sleep(document["seconds"])
if document["name"] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
span = {"begun": begun, "ended": time.time(), "words": sys.argv[2:], "card": os.environ.get("CUDA_VISIBLE_DEVICES")}
open(document["mark"], "w").write(json.dumps(span))
sys.exit(document["code"])
"""


@pytest.fixture
def work(tmp_path, monkeypatch):
    """Runs jobs by a stand-in that waits until another has begun, sleeps, and ends with a code."""
    monkeypatch.setattr(run, "NTRM", (sys.executable, "-c", STAND_IN))

    def start(jobs, slots=SLOTS, is_done=lambda job: False):
        def commands(job):
            settings = {"name": job.key, "code": 0, "seconds": 0, "other": "", **vars(job)}
            first, second = ({**settings, "mark": str(tmp_path / f"{job.key}.{part}")} for part in ("train", "score"))
            return [json.dumps(first)], [json.dumps({**second, "other": ""})]

        return run_jobs(jobs, slots, commands, tmp_path, is_done)

    return start


def job(name, **settings):
    return SimpleNamespace(key=name, **settings)


def test_every_job_is_trained_then_scored_on_a_slot_with_its_environment(tmp_path, work):
    slots = (Slot("cuda", "0", 3), Slot("cuda", "1", 3))
    # The first two wait for each other: they end only if both run at once.
    others = {0: "t1", 1: "t0"}
    jobs = [job(f"t{k}", other=str(tmp_path / f"{others[k]}.train.begun") if k in others else "") for k in range(4)]
    assert sorted((each.job.key, each.code) for each in work(jobs, slots)) == [(f"t{k}", 0) for k in range(4)]
    spans = [json.loads((tmp_path / f"t{k}.{part}").read_text()) for k in range(4) for part in ("train", "score")]
    own = ["--device", "cuda", "--progress", "none"]
    assert [span["words"] for span in spans] == [own, ["--jobs", "3", *own]] * 4
    for card in ("0", "1"):
        mine = sorted((span["begun"], span["ended"]) for span in spans if span["card"] == card)
        assert mine
        assert all(first[1] <= second[0] for first, second in pairwise(mine))


def test_a_failing_job_is_told_with_the_end_of_its_log_and_the_others_go_on(tmp_path, work):
    ended = {each.job.key: each for each in work([job("bad", code=3), job("killed"), job("good")])}
    assert [ended[name].code for name in ("bad", "killed", "good")] == [3, -signal.SIGKILL, 0]
    assert ended["bad"].reason.splitlines() == ["exit code 3", "working on bad"]
    assert ended["killed"].reason.startswith(f"killed by signal {signal.SIGKILL}")
    assert not (tmp_path / "bad.score.begun").exists()


def test_whoever_stops_listening_stops_the_jobs(tmp_path, work):
    with closing(work([job("quick"), job("slow", seconds=600)], [Slot("cpu")] * 2)) as running:
        assert next(running).job.key == "quick"
        begun = tmp_path / "slow.train.begun"
        wait_for("it", lambda: begun.exists() and begun.read_text())
    assert not is_alive(int(begun.read_text()))
    assert not (tmp_path / "slow.train").exists()


def test_jobs_that_another_command_does_or_has_done_are_left_to_it(tmp_path, work):
    jobs = [job(name) for name in ("theirs", "done", "ours")]
    with holding(tmp_path / "theirs.lock"):
        ended = {each.job.key: each.code for each in work(jobs, is_done=lambda job: job.key == "done")}
    assert ended == {"theirs": None, "done": None, "ours": 0}
    # Its holder has ended, in whatever way: the next command takes it.
    assert [each.code for each in work(jobs[:1])] == [0]


def test_slots_are_spread_over_the_gpus_that_this_process_sees(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)

    def cards(*args, **settings):
        return [slot.card for slot in make_slots(*args, **settings)]

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    assert cards("cuda", per_device=2) == ["4", "6", "7", "4", "6", "7"]
    assert cards("auto", num_devices=2) == ["4", "6"]
    assert cards("cuda:1") == ["6"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert cards("cuda") == ["0", "1", "2"]
    with pytest.raises(UsageError, match="wrong number of devices"):
        make_slots("cuda", num_devices=4)
    cores = str(max(1, len(os.sched_getaffinity(0)) // 2))
    assert [slot.environment["OMP_NUM_THREADS"] for slot in make_slots("cpu", jobs=2)] == [cores] * 2
