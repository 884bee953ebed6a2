"""A child gets the variables it needs by name, and no secret of others; SIGTERM ends work like an interrupt.

Workers end with their parent.
"""

import io
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.core.working import die, refuse_three, tell_handler
from tests.helpers import is_alive, wait_for
from tests.service.small import settings_of

from ntrm.core.errors import DataError
from ntrm.core.processes import MODEL, child_environment, module_environment, parallel_map, terminated_like_interrupted
from ntrm.service.jobs import supervisor
from ntrm.service.jobs.rows import NETWORK
from ntrm.slides.isolated import ReadingProcess

SECRETS = {"NTRM_TOKEN": "t" * 32, "AWS_SECRET_ACCESS_KEY": "k", "RAY_AUTH_TOKEN": "r", "GIT_DIR": "/elsewhere"}
FOR_MODELS = {"HF_TOKEN": "h", "CUDA_VISIBLE_DEVICES": "1", "https_proxy": "p", "NTRM_WEIGHTS": "w"}


@pytest.fixture(autouse=True)
def secrets(monkeypatch):
    for key, value in {**SECRETS, **FOR_MODELS, "LC_TIME": "C"}.items():
        monkeypatch.setenv(key, value)


def test_only_what_is_asked_for_by_name_is_given():
    base = child_environment()
    assert (base["PATH"], base["LC_TIME"]) == (os.environ["PATH"], "C")
    assert not {*SECRETS, *FOR_MODELS} & {*base}
    assert FOR_MODELS.items() <= child_environment(*MODEL).items()
    assert not {*SECRETS} & {*child_environment(*MODEL)}


def test_the_process_that_reads_slides_holds_no_secret():
    process = ReadingProcess()
    file = Path(f"/proc/{process._child.pid}/environ")
    environment = wait_for("the environment of a program that has just begun", file.read_bytes)
    process.close()
    held = {entry.partition(b"=")[0].decode() for entry in environment.split(b"\0")}
    assert "PYTHONPATH" in held
    assert not {*SECRETS, *FOR_MODELS} & held


def test_the_process_that_segments_holds_what_a_model_needs_and_no_more(tmp_path, monkeypatch):
    started = {}
    nobody = SimpleNamespace(stdin=io.BytesIO())
    monkeypatch.setattr(supervisor.subprocess, "Popen", lambda *_, env, **more: started.update(env) or nobody)
    settings = settings_of(tmp_path / "out", tmp_path)
    settings.hidden.mkdir(parents=True)
    supervisor.start_worker(settings, NETWORK, "w")
    assert json.loads(nobody.stdin.getvalue())["out"] == str(tmp_path / "out")
    assert settings.token.encode() not in nobody.stdin.getvalue()
    assert FOR_MODELS.items() <= started.items()
    assert not {*SECRETS} & {*started}


def test_sigterm_ends_the_work_like_an_interrupt():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminated_like_interrupted():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_children_of_multiprocessing_leave_the_signal_alone():
    # Their parents end them with it, also where they hang.
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=tell_handler, args=(results,))
    process.start()
    assert results.get(timeout=300)
    process.join()


POOL = """
import os, sys, time
from pathlib import Path
from ntrm.core.processes import parallel_map

def work(folder):
    Path(folder, str(os.getpid())).touch()
    time.sleep(600)

if __name__ == "__main__":
    list(parallel_map(work, [sys.argv[1]] * 2, jobs=2))
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    script, folder = tmp_path / "pool.py", tmp_path / "workers"
    script.write_text(POOL)
    folder.mkdir()
    parent = subprocess.Popen([sys.executable, script, folder], env=module_environment(), start_new_session=True)
    try:
        wait_for("two workers at work", lambda: len([*folder.iterdir()]) == 2)
    finally:
        parent.kill()
        parent.wait()
    workers = [worker.name for worker in folder.iterdir()]
    wait_for("their end", lambda: not any(map(is_alive, workers)))


@pytest.mark.parametrize("jobs", [1, 2])
def test_order_is_kept_and_errors_arrive_whole(jobs):
    assert list(parallel_map(refuse_three, [2, 0, 5, 1], jobs)) == [4, 0, 25, 1]
    with pytest.raises(DataError, match="take four") as caught:
        list(parallel_map(refuse_three, [1, 2, 3, 4], jobs))
    assert caught.value.got == 3


def test_a_killed_worker_is_explained():
    with pytest.raises(DataError, match="--jobs"):
        list(parallel_map(die, [1, 2], jobs=2))
