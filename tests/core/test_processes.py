"""A child gets the variables it needs by name, and no secret of others; SIGTERM ends work like an interrupt.

Workers end with their parent.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.helpers import is_alive, wait_for
from tests.service.small import settings_of

from ntrm.core import processes
from ntrm.core.processes import MODEL, child_environment, module_environment, terminated_like_interrupted
from ntrm.service.jobs import supervisor
from ntrm.service.jobs.slide_record import NETWORK
from ntrm.training import run
from ntrm.wsi.isolated import ReadingProcess

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


def test_modules_are_found_where_the_parent_finds_them(monkeypatch):
    monkeypatch.setattr(processes.sys, "path", ["", "/own", "/theirs"])
    assert module_environment()["PYTHONPATH"] == "/own:/theirs"


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
    nobody = SimpleNamespace(stdin=None)
    monkeypatch.setattr(supervisor.subprocess, "Popen", lambda *_, env, **more: started.update(env) or nobody)
    settings = settings_of(tmp_path / "out", tmp_path)
    settings.hidden.mkdir(parents=True)
    supervisor.start_worker(settings, NETWORK)
    assert FOR_MODELS.items() <= started.items()
    assert not {*SECRETS} & {*started}


def test_git_is_told_nothing_but_where_home_is(monkeypatch):
    passed = {}
    done = subprocess.CompletedProcess([], 0, stdout="")
    monkeypatch.setattr(run.subprocess, "run", lambda *_, env, **more: passed.update(env) or done)
    run.git_state()
    assert passed.get("HOME") == os.environ.get("HOME")
    assert not {*SECRETS, *FOR_MODELS} & {*passed}


def test_sigterm_ends_the_work_like_an_interrupt():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), terminated_like_interrupted():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_other_threads_leave_the_signal_alone():
    before, seen = signal.getsignal(signal.SIGTERM), []

    def look():
        with terminated_like_interrupted():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]


def handler_inside(results):
    with terminated_like_interrupted():
        results.put(signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)


def test_children_of_multiprocessing_leave_the_signal_alone():
    # Their parents end them with it, also where they hang.
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    process = context.Process(target=handler_inside, args=(results,))
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
