"""Jobs as processes; a small script stands in for the worker, so that nothing here loads torch twice."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise

import pytest
import torch
from tests.helpers import is_alive, wait_for

from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.locks import holding
from ntrm.paper import runner
from ntrm.paper.runner import Slot, Task, make_slots, run_tasks

SCRIPT = """
import json, os, signal, sys, time
document = json.loads(open(sys.argv[1]).read())
print("working on", document["name"], flush=True)
begun = time.time()
if document["name"] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(document["mark"] + ".begun", "w").write(str(os.getpid()))
while document["other"] and not os.path.exists(document["other"]):
    time.sleep(0.02)
time.sleep(document["seconds"])
if document["name"] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
span = {"begun": begun, "ended": time.time(), "device": document["device"], "card": os.environ.get("CARD")}
open(document["mark"], "w").write(json.dumps(span))
sys.exit(document["code"])
"""


@pytest.fixture
def program(tmp_path):
    script = tmp_path / "stand_in.py"
    script.write_text(SCRIPT)
    return (sys.executable, str(script))


def task(tmp_path, name, *, code=0, seconds=0.0, after=""):
    """A job that waits until another has begun, sleeps, and ends with a code."""
    other = str(tmp_path / f"{after}.mark.begun") if after else ""
    mark = str(tmp_path / f"{name}.mark")
    document = {"name": name, "code": code, "seconds": seconds, "mark": mark, "other": other}
    return Task(name, f"the job {name}", document, tmp_path)


def mark(tmp_path, name):
    return json.loads((tmp_path / f"{name}.mark").read_text())


def test_every_task_runs_on_a_slot_with_its_environment(tmp_path, program):
    slots = (Slot("cuda", {"CARD": "0"}), Slot("cuda", {"CARD": "1"}))
    # The first two wait for each other: they end only if both run at once.
    tasks = [task(tmp_path, f"t{k}", after={0: "t1", 1: "t0"}.get(k, "")) for k in range(4)]
    ended = list(run_tasks(tasks, slots, program))
    assert {each.task.key for each in ended} == {"t0", "t1", "t2", "t3"}
    assert not any(each.failed for each in ended)
    spans = [mark(tmp_path, f"t{k}") for k in range(4)]
    assert {span["card"] for span in spans} == {"0", "1"}
    assert {span["device"] for span in spans} == {"cuda"}
    for card in ("0", "1"):
        mine = sorted((span["begun"], span["ended"]) for span in spans if span["card"] == card)
        assert all(first[1] <= second[0] for first, second in pairwise(mine))


def test_a_failing_task_is_told_with_the_end_of_its_log_and_the_others_go_on(tmp_path, program):
    tasks = [task(tmp_path, "bad", code=3), task(tmp_path, "killed"), task(tmp_path, "good")]
    ended = {each.task.key: each for each in run_tasks(tasks, [Slot("cpu")], program)}
    assert [ended[name].failed for name in ("bad", "killed", "good")] == [True, True, False]
    assert ended["bad"].reason.splitlines() == ["exit code 3", "working on bad"]
    assert ended["killed"].reason.startswith(f"killed by signal {signal.SIGKILL}")


def test_whoever_stops_listening_stops_the_tasks(tmp_path, program, monkeypatch):
    monkeypatch.setattr(runner, "GRACE_S", 1.0)
    tasks = [task(tmp_path, "quick"), task(tmp_path, "slow", seconds=600), task(tmp_path, "stubborn", seconds=600)]
    with closing(run_tasks(tasks, [Slot("cpu")] * 3, program)) as running:
        assert next(running).task.key == "quick"
        wait_for("both", lambda: all((tmp_path / f"{name}.mark.begun").exists() for name in ("slow", "stubborn")))
        numbers = [int((tmp_path / f"{name}.mark.begun").read_text() or 0) for name in ("slow", "stubborn")]
    assert not any(is_alive(number) for number in numbers)
    assert not (tmp_path / "slow.mark").exists()


def test_a_job_that_was_interrupted_interrupts_all(tmp_path, program):
    with pytest.raises(KeyboardInterrupt):
        list(run_tasks([task(tmp_path, "stopped", code=130), task(tmp_path, "next")], [Slot("cpu")], program))
    assert not (tmp_path / "next.mark").exists()


def test_a_task_that_another_reproduction_has_is_left_to_it(tmp_path, program):
    tasks = [task(tmp_path, name) for name in ("theirs", "ours")]
    with holding(tmp_path / "theirs.lock"):
        ended = {each.task.key: each.elsewhere for each in run_tasks(tasks, [Slot("cpu")], program)}
    assert ended == {"theirs": True, "ours": False}
    assert not (tmp_path / "theirs.mark").exists()
    # Its holder has ended, in whatever way: the next command takes it.
    assert [each.elsewhere for each in run_tasks(tasks[:1], [Slot("cpu")], program)] == [False]


def test_what_another_reproduction_has_done_meanwhile_is_not_done_again(tmp_path, program):
    tasks = [task(tmp_path, name) for name in ("done", "open")]
    ended = run_tasks(tasks, [Slot("cpu")], program, is_done=lambda each: each.key == "done")
    assert {each.task.key: each.elsewhere for each in ended} == {"done": True, "open": False}
    assert not (tmp_path / "done.mark").exists()


def test_two_reproductions_share_the_tasks(tmp_path, program):
    # Each waits for the other to begin: they end only if both work at a time, on different tasks.
    tasks = [task(tmp_path, "one", after="two"), task(tmp_path, "two", after="one")]

    def work():
        return list(
            run_tasks(tasks, [Slot("cpu")], program, is_done=lambda each: (tmp_path / f"{each.key}.mark").exists())
        )

    with ThreadPoolExecutor(2) as pool:
        both = [each for found in (pool.submit(work), pool.submit(work)) for each in found.result()]
    assert sorted(each.task.key for each in both if not each.elsewhere) == ["one", "two"]


def test_a_worker_and_its_children_end_with_a_parent_that_is_killed(tmp_path):
    child = textwrap.dedent(f"""
        import subprocess, sys, time, pathlib
        from ntrm.core.processes import end_with_parent
        below = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        pathlib.Path({str(tmp_path / "below")!r}).write_text(str(below.pid))
        end_with_parent()
        time.sleep(600)
    """)
    parent = textwrap.dedent(f"""
        import subprocess, sys, time
        subprocess.Popen([sys.executable, "-c", {child!r}], stdin=subprocess.PIPE, start_new_session=True)
        time.sleep(600)
    """)
    process = subprocess.Popen([sys.executable, "-c", parent])
    wait_for("the child", lambda: (tmp_path / "below").exists() and (tmp_path / "below").read_text())
    below = int((tmp_path / "below").read_text())
    assert is_alive(below)
    process.kill()
    process.wait()
    wait_for("its end", lambda: not is_alive(below))


def test_slots_on_the_processor_share_its_cores():
    slots = make_slots("cpu", jobs=2)
    cores = len(os.sched_getaffinity(0))
    assert len(slots) == 2
    assert {slot.environment["OMP_NUM_THREADS"] for slot in slots} == {str(max(1, cores // 2))}


def test_slots_are_spread_over_the_gpus_that_this_process_sees(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7")
    cards = [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in make_slots("cuda", per_device=2)]
    assert cards == ["4", "6", "7", "4", "6", "7"]
    assert [s.environment["CUDA_VISIBLE_DEVICES"] for s in make_slots("auto", num_devices=2)] == ["4", "6"]
    assert [s.environment["CUDA_VISIBLE_DEVICES"] for s in make_slots("cuda:1")] == ["6"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert [s.environment["CUDA_VISIBLE_DEVICES"] for s in make_slots("cuda")] == ["0", "1", "2"]
    with pytest.raises(UsageError, match="wrong number of devices"):
        make_slots("cuda", num_devices=4)


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (None, 0, ""),
        (RefusedError("the run is another one", hint="choose a new folder"), 3, "hint:     choose a new folder"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("oh"), 1, "ZeroDivisionError: oh"),
    ],
)
def test_the_exit_code_and_the_log_say_how_it_ended(tmp_path, monkeypatch, capsys, raised, code, said):
    done = []

    def work(document):
        done.append(document)
        if raised is not None:
            raise raised

    monkeypatch.setattr(runner, "run_job", work)
    path = tmp_path / "job.json"
    path.write_text(json.dumps({"arch": "ntrm-paper"}))
    assert runner.main([str(path)]) == code
    assert done == [{"arch": "ntrm-paper"}]
    assert said in capsys.readouterr().err
