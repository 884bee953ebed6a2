"""Workers that do not hear are ended in time, at nobody else's cost."""

import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from tests.helpers import wait_for
from tests.service.small import add_queued, settings_of

from ntrm.service.core.watch import Watch
from ntrm.service.jobs import database, supervisor
from ntrm.service.jobs.slide_record import CANCELLED, CORRECT, DONE, LIGHT, NETWORK, PREPARE, QUEUED, RUNNING

DEAF = 'print(\'{"ready": "w", "devices": 1}\', flush=True); import time; time.sleep(3600)'


@pytest.fixture
def settings(tmp_path):
    return settings_of(tmp_path / "out", "bundled", workers=1)


@contextmanager
def supervised(settings, store, monkeypatch, chores=lambda: None, first=DEAF):
    """A supervisor whose workers hear nothing, the first of which runs ``first``; gives those that were started."""
    started = []

    def start(*_):
        pipe, code = subprocess.PIPE, DEAF if started else first
        started.append(subprocess.Popen([sys.executable, "-S", "-c", code], stdin=pipe, stdout=pipe))
        return started[-1]

    monkeypatch.setattr(supervisor, "start_worker", start)
    monkeypatch.setattr(supervisor, "TICK_SECONDS", 0.01)
    made = supervisor.Supervisor(settings, store, chores, Watch())
    made.start()
    try:
        yield made, started
    finally:
        made.stop()


def test_a_cancelled_job_is_over_within_two_seconds_whatever_its_worker_does():
    # Ticks until the worker is killed, and some time for that.
    assert supervisor.GRACE_SECONDS + supervisor.TICK_SECONDS <= 1.5


def test_a_worker_that_does_not_hear_is_killed_and_the_next_one_begins_at_once(settings, store, monkeypatch):
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.05)
    # As long as it takes on a large disk: nobody who cancels waits for that.
    busy = threading.Event()
    with supervised(settings, store, monkeypatch, lambda: busy.wait(60)) as (made, started):
        try:
            wait_for("a worker", lambda: made.state == "ready")
            slides = [add_queued(store, name=f"slide-{number}").id for number in range(5)]
            # They did nothing wrong: no longer and longer waits before the next start.
            for number, slide in enumerate(slides[:4]):
                wait_for("the next worker", lambda number=number: len(started) == number + 1)
                assert store.take("w", NETWORK).slide == slide
                store.cancel(slide)
                wait_for("the end of the job", lambda slide=slide: store.get(slide).status == CANCELLED)
            left = store.get(slides[4])
            assert (left.status, left.attempts, left.deaths) == (QUEUED, 0, 0)
        finally:
            busy.set()


@pytest.mark.parametrize("jump", [-86_400.0, 10 * 365 * 86_400.0])
def test_a_clock_that_jumps_saves_no_cancelled_job_and_ends_no_other(settings, store, monkeypatch, jump):
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.05)
    now, ticks = time.time, threading.Semaphore(0)
    with supervised(settings, store, monkeypatch, ticks.release) as (made, started):
        wait_for("a worker", lambda: made.state == "ready")
        slide = add_queued(store, name="a").id
        assert store.take("w", NETWORK).slide == slide
        monkeypatch.setattr(time, "time", lambda: now() + jump)
        for _ in range(10):
            assert ticks.acquire(timeout=60)
        assert store.get(slide).status == RUNNING
        monkeypatch.setattr(time, "time", now)
        monkeypatch.setattr(database.time, "time", lambda: now() - min(jump, 0.0))
        store.cancel(slide)
        monkeypatch.setattr(database.time, "time", now)
        wait_for("the end of the job", lambda: store.get(slide).status == CANCELLED)
        wait_for("the next worker", lambda: len(started) == 2)


def test_a_region_graph_that_nobody_wants_any_more_ends_with_its_deaf_worker(settings, store, monkeypatch):
    monkeypatch.setattr(supervisor, "GRACE_SECONDS", 0.05)
    with supervised(settings, store, monkeypatch) as (made, started):
        wait_for("a worker", lambda: made.state == "ready")
        slide = add_queued(store, name="a").id
        store.end(store.take("w", NETWORK), DONE)
        store.ask(slide, PREPARE)
        assert store.take("w", NETWORK).kind == PREPARE
        store.stop(slide, PREPARE)
        wait_for("the end of the job", lambda: store.job(slide, PREPARE) is None)
        wait_for("the next worker", lambda: len(started) == 2)


def test_light_work_has_a_worker_of_its_own_beside_one_that_does_not_hear(settings, store, monkeypatch):
    with supervised(settings, store, monkeypatch) as (made, started):
        wait_for("a worker", lambda: made.state == "ready")
        slide = add_queued(store, name="a").id
        store.take("w", NETWORK)
        assert len(started) == 1
        store.ask(slide, CORRECT)
        wait_for("the light worker", lambda: len(started) == 2)
        assert store.take("light", LIGHT).kind == CORRECT


def test_a_worker_that_cannot_work_is_not_started_again(settings, store, monkeypatch):
    monkeypatch.setattr(supervisor, "BACK_OFF", (0.01, 0.01))
    turns, refusal = threading.Semaphore(0), {"refused": {"what": "other classes", "got": "nothing"}}
    first = f"print({json.dumps(json.dumps(refusal))})"
    with supervised(settings, store, monkeypatch, turns.release, first) as (made, started):
        wait_for("the refusal", lambda: made.refusal is not None)
        started[0].wait()
        for _ in range(20):  # ticks, in which another one would have been started
            assert turns.acquire(timeout=60)
        assert (made.state, len(started)) == ("refused", 1)


def test_a_slide_far_beyond_its_time_is_its_workers_fault(settings, store, monkeypatch):
    with supervised(settings, store, monkeypatch) as (made, started):
        wait_for("a worker", lambda: made.state == "ready")
        slide = add_queued(store, name="long").id
        store.take("w", NETWORK)
        monkeypatch.setattr(supervisor, "GRACE_SECONDS", -1e6)
        wait_for("the end of the worker", lambda: started[0].poll() is not None)
        monkeypatch.setattr(supervisor, "GRACE_SECONDS", 1.0)
        wait_for("the slide to wait again", lambda: store.get(slide).status != RUNNING)
        assert store.get(slide).deaths == 1
