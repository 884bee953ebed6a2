"""Workers that do not hear are ended in time, at nobody else's cost."""

import json
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from tests.helpers import wait_for
from tests.service.small import add_queued, settings_of

from ntrm.service.jobs import supervisor
from ntrm.service.jobs.rows import LIGHT, NETWORK

DEAF = "print('{\"devices\": 1}', flush=True); import time; time.sleep(3600)"


@pytest.fixture
def supervised(tmp_path, store, monkeypatch):
    """A supervisor whose workers hear nothing, the first of which runs ``first``; gives those that were started."""

    @contextmanager
    def begin(first=DEAF):
        started = []

        def start(*_):
            pipe, code = subprocess.PIPE, DEAF if started else first
            started.append(subprocess.Popen([sys.executable, "-S", "-c", code], stdin=pipe, stdout=pipe))
            return started[-1]

        monkeypatch.setattr(supervisor, "start_worker", start)
        monkeypatch.setattr(supervisor, "new_id", lambda: "w")
        monkeypatch.setattr(supervisor, "TICK_SECONDS", 0.01)
        made = supervisor.Supervisor(settings_of(tmp_path / "out", "bundled", workers=1), store, supervisor.Watch())
        made.start()
        try:
            wait_for("a worker", lambda: made.state != "starting")
            yield made, started
        finally:
            made.stop()

    return begin


def test_light_work_has_a_worker_of_its_own_beside_one_that_does_not_hear(supervised, store):
    with supervised() as (_, started):
        slide = add_queued(store, name="a").id
        store.take("w", NETWORK)
        assert len(started) == 1
        store.ask(slide, "correct")
        wait_for("the light worker", lambda: len(started) == 2)
        assert store.take("light", LIGHT).kind == "correct"


def test_a_worker_that_cannot_work_is_not_started_again(supervised, store, monkeypatch):
    monkeypatch.setattr(supervisor, "START_SECONDS", 0.01)
    refusal = {"refused": {"what": "other classes", "got": "nothing"}}
    with supervised(f"print({json.dumps(json.dumps(refusal))})") as (made, started):
        started[0].wait()
        # The light worker comes after that, in a tick in which another one would have been started.
        store.ask("", "correct")
        wait_for("the light worker", lambda: len(started) > 1)
        assert (made.state, len(started), made.refusal["what"]) == ("refused", 2, "other classes")


def test_a_slide_that_takes_too_long_is_given_up(supervised, store, monkeypatch):
    with supervised() as (_, started):
        slide = add_queued(store, name="long").id
        now = time.time()
        store.take("w", NETWORK)
        monkeypatch.setattr(time, "time", lambda: now + 86_400)
        wait_for("the end of the worker", lambda: started[0].poll() is not None)
        wait_for("the end of the job", lambda: store.get(slide).status == "failed")
        assert store.get(slide).error["code"] == "too_long"
