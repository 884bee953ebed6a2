import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.helpers import wait_for
from tests.service.small import refused

from ntrm.core.errors import DataError
from ntrm.service.jobs.database import MOST_ATTEMPTS, RETRY_SECONDS, JobStore
from ntrm.service.jobs.rows import LIGHT, NETWORK, SlideRow, new_id


def slide(number=0, **more):
    plain = {"id": new_id(), "slide_id": f"s{number}", "name": "n", "origin": "path", "source": Path(f"/x/{number}")}
    return SlideRow(**{**plain, "mpp": None, "status": "queued", "created": time.time() - 1000 + number, **more})


@pytest.fixture
def done(store):
    """Id of a slide that is done."""
    return store.add(slide(status="done")).id


def take(store, worker="w", kinds=NETWORK):
    return store.take(worker, kinds)


def test_a_slide_comes_back_as_it_went_in(tmp_path, store):
    # A whole number of µm/px is told like any other.
    every = slide(1, mpp=(1, 0.5), fingerprint="f", area=(0, 0, 3, 4), file_mpp=(1.5, 2.0), source=Path("/x/\udcff"))
    store.add(every)
    assert store.get(every.id) == every
    assert repr(store.every()[0].mpp) == "(1.0, 0.5)"
    for wrong in ("", "x", new_id(), "' OR 1=1 --"):
        with refused(404):
            store.get(wrong)
    # Nobody else may read the database.
    assert (tmp_path / "out" / ".service" / "service.sqlite").stat().st_mode & 0o777 == 0o600


def test_the_queue_is_a_queue(store):
    ids = [store.add(slide(n)).id for n in (3, 1, 2)]
    assert store.waiting() == [ids[1], ids[2], ids[0]]
    assert [take(store).slide for _ in range(3)] == [ids[1], ids[2], ids[0]]
    assert take(store) is None
    assert store.counts() == {"queued": 0, "running": 3, "done": 0, "failed": 0, "cancelled": 0}


def test_progress_and_the_end(store):
    one = store.add(slide())
    job = take(store)
    assert store.beat(job, 0.5, "segmenting")
    assert not store.beat(replace(job, worker="another"), 0.9, "segmenting")
    assert store.get(one.id).progress == 0.5
    store.end(replace(job, worker="another"), "done")
    assert store.get(one.id).status == "running"
    store.end(job, "done", at=123.5)
    ended = store.get(one.id)
    assert (ended.status, ended.progress, ended.finished) == ("done", 1.0, 123.5)
    assert store.job(one.id, "segment").worker is None
    store.vanished(one.id)
    assert (store.get(one.id).status, store.get(one.id).error["code"]) == ("failed", "gone")


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_worker_that_stops_puts_its_job_back(store, cancelled):
    one = store.add(slide(1))
    store.add(slide(2))
    job = take(store)
    if cancelled:
        store.cancel(one.id)
    store.end(job, "queued")
    assert store.get(one.id).status == ("cancelled" if cancelled else "queued")
    assert (take(store).slide == one.id) == (not cancelled)


def test_jobs_of_dead_workers_are_queued_again_at_their_place(store):
    first = store.add(slide(1))
    store.add(slide(2))
    take(store, "dead")
    store.reclaim(["alive"])
    assert store.waiting()[0] == first.id
    assert take(store, "alive").slide == first.id
    store.reclaim(["alive"])
    assert store.get(first.id).status == "running"
    store.cancel(first.id)
    store.reclaim(())
    assert store.get(first.id).status == "cancelled"


def test_a_job_that_kills_its_workers_is_given_up(store):
    one = store.add(slide())
    take(store, "stopped")
    store.reclaim((), blame=False)
    for death in range(1, MOST_ATTEMPTS + 1):
        take(store, f"w{death}")
        store.reclaim(())
        assert store.get(one.id).status == ("failed" if death == MOST_ATTEMPTS else "queued")
    assert store.get(one.id).error["code"] == "worker_died"
    store.retry(one.id, None, 5)
    assert take(store).attempts == 1


def test_many_workers_never_get_the_same_slide(tmp_path, store):
    ids = {store.add(slide(n)).id for n in range(40)}
    got = []

    def work(name):
        mine = JobStore(tmp_path / "out" / ".service" / "service.sqlite")
        while (found := mine.take(name, NETWORK)) is not None:
            got.append(found.slide)
            mine.end(found, "done")
        mine.close()

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), set(got)) == (40, ids)
    assert store.counts()["done"] == 40


def test_a_region_graph_comes_before_the_next_slide_and_light_work_is_for_others(store, done):
    queued = store.add(slide(1)).id
    store.ask("", "tables")
    store.ask(done, "prepare")
    store.ask(done, "correct")
    assert [take(store).kind for _ in range(2)] == ["prepare", "segment"]
    assert take(store) is None
    assert [take(store, kinds=LIGHT).kind for _ in range(2)] == ["tables", "correct"]
    assert store.get(queued).status == "running"
    assert len(store.running()) == 4


def test_other_jobs_go_when_they_are_done_and_failures_stay_until_they_are_asked_for_again(store, done):
    store.ask(done, "correct")
    store.end(take(store, kinds=LIGHT), "done")
    assert store.job(done, "correct") is None
    store.ask(done, "correct")
    store.end(take(store, kinds=LIGHT), "failed", DataError("broken"))
    assert (store.job(done, "correct").status, store.get(done).status) == ("failed", "done")
    # Whoever only looks waits a while, whoever changes something does not.
    store.ask_again(done, "correct")
    failed = store.job(done, "correct")
    assert failed.due == pytest.approx(time.time() + RETRY_SECONDS, abs=10)
    assert failed.error["what"] == "broken"
    assert take(store, kinds=LIGHT) is None
    store.ask(done, "correct")
    assert take(store, kinds=LIGHT).error is None


def test_many_steps_in_a_row_are_one_work_and_one_meanwhile_is_another(store, done):
    for _ in range(3):
        store.ask(done, "correct", 0.2)
        assert take(store, kinds=LIGHT) is None
    due = store.job(done, "correct").due
    store.ask_again(done, "correct")
    assert store.job(done, "correct").due == due
    wait_for("the work to be due", lambda: store.is_due(LIGHT))
    job = take(store, kinds=LIGHT)
    store.ask(done, "correct")
    assert take(store, kinds=LIGHT) is None
    store.end(job, "done")
    assert take(store, kinds=LIGHT).attempts == 1


def test_a_job_that_nobody_wants_ends_and_a_slide_that_is_forgotten_leaves_none(store, done):
    store.ask(done, "prepare")
    store.stop(done, "prepare")
    assert store.job(done, "prepare") is None
    store.ask(done, "prepare")
    job = take(store)
    store.ask(done, "prepare")
    store.stop(done, "prepare")
    assert not store.beat(job, 0.5, "making")
    store.reclaim(())
    assert store.job(done, "prepare") is None
    store.ask(done, "prepare")
    job = take(store)
    store.ask(done, "correct")
    store.forget(done)
    assert not store.beat(job, 0.5, "making")
    store.end(job, "queued")
    store.ask(done, "correct")  # by a request that had begun before
    assert (store.running(), take(store, kinds=LIGHT), store.taken_names()) == ([], None, set())
