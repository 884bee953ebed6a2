import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.service.small import refused

from ntrm.core.errors import DataError
from ntrm.service.jobs.database import MOST_ATTEMPTS, MOST_DEATHS, JobStore
from ntrm.service.jobs.slide_record import CANCELLED, DONE, FAILED, PATH, QUEUED, RUNNING, Slide, new_id


def slide(number=0, **more):
    plain = {"id": new_id(), "slide_id": f"s{number}", "name": "n", "origin": PATH, "source": Path(f"/x/{number}")}
    now = time.time() + number
    return Slide(**{**plain, "mpp": None, "status": QUEUED, "created": now, "queued": now, **more})


def test_a_slide_comes_back_as_it_went_in(store):
    every = slide(1, mpp=(0.25, 0.5), fingerprint="f", info={"width": 3}, facts={"pieces": 1}, source=Path("/x/\udcff"))
    store.add(every)
    assert store.get(every.id) == every
    for wrong in ("", "x", new_id(), "' OR 1=1 --"):
        with refused(404):
            store.get(wrong)


def test_a_whole_number_of_um_per_pixel_is_told_like_any_other(store):
    store.add(slide(1, mpp=(1, 2)))
    assert repr(store.every()[0].mpp) == repr(store.claim("w").mpp) == "(1.0, 2.0)"


def test_nobody_else_may_read_the_database(tmp_path, store):
    assert (tmp_path / "out" / ".service" / "jobs.sqlite").stat().st_mode & 0o777 == 0o600


def test_the_queue_is_a_queue(store):
    ids = [store.add(slide(n)).id for n in (3, 1, 2)]
    assert store.waiting() == [ids[1], ids[2], ids[0]]
    assert [store.claim("w").slide_id for _ in range(3)] == ["s1", "s2", "s3"]
    assert store.claim("w") is None
    assert store.counts() == {"queued": 0, "running": 3, "done": 0, "failed": 0, "cancelled": 0}


def test_names_are_there_once_whatever_their_case(store):
    store.add(slide(1, slide_id="Abc"))
    with refused(409):
        store.add(slide(2, slide_id="aBC"))
    assert store.taken_names() == {"abc"}


def test_one_too_many_is_refused(store):
    for number in range(3):
        store.add(slide(number), 3)
    with refused(429, "queue_full"):
        store.add(slide(9), 3)
    store.claim("w")
    store.add(slide(9), 3)


def test_progress_and_the_end(store):
    one = store.add(slide())
    store.claim("w")
    assert store.beat(one.id, "w", 0.5, "segmenting")
    assert not store.beat(one.id, "another", 0.9, "segmenting")
    assert store.get(one.id).progress == 0.5
    store.finish(one.id, "another", DONE)
    assert store.get(one.id).status == RUNNING
    store.finish(one.id, "w", DONE, facts={"pieces": 2})
    ended = store.get(one.id)
    assert (ended.status, ended.progress, ended.facts, ended.worker) == (DONE, 1.0, {"pieces": 2}, None)
    assert ended.finished >= ended.started


def test_cancelling(store):
    waiting, working = store.add(slide(2)), store.add(slide(1))
    store.claim("w")
    assert store.cancel(waiting.id).status == CANCELLED
    assert store.cancel(working.id).status == RUNNING
    assert not store.beat(working.id, "w", 0.1, "x")
    store.finish(working.id, "w", CANCELLED)
    assert store.get(working.id).status == CANCELLED
    assert store.cancel(working.id).status == CANCELLED
    done = store.add(slide(3, status=DONE))
    with refused(409):
        store.cancel(done.id)


def test_trying_again(store):
    one = store.add(slide())
    store.claim("w")
    store.finish(one.id, "w", FAILED, error=DataError("broken", got="x"))
    assert store.get(one.id).error == {
        "what": "broken",
        "got": "x",
        "expected": None,
        "hint": None,
        "code": "unreadable",
    }
    again = store.retry(one.id, (0.5, 0.5), 5)
    assert (again.status, again.error, again.mpp, again.attempts, again.progress) == (QUEUED, None, (0.5, 0.5), 0, 0)
    with refused(409):
        store.retry(one.id, None, 5)
    store.cancel(one.id)
    with refused(429):
        store.retry(one.id, None, 0)
    assert store.retry(one.id, None, 5).mpp == (0.5, 0.5)


def test_jobs_of_dead_workers_are_queued_again_at_their_place(store):
    first = store.add(slide(1))
    store.add(slide(2))
    store.claim("dead")
    store.reclaim(lambda name: name == "alive", blame=False)
    assert store.waiting()[0] == first.id
    assert store.claim("alive").id == first.id
    store.reclaim(lambda name: name == "alive", blame=True)
    assert store.get(first.id).status == RUNNING


def test_a_job_that_kills_its_workers_is_given_up(store):
    one = store.add(slide())
    for death in range(1, MOST_DEATHS + 1):
        store.claim(f"w{death}")
        store.reclaim(lambda _: False, blame=True)
        assert store.get(one.id).status == (FAILED if death == MOST_DEATHS else QUEUED)
    assert store.get(one.id).error["code"] == "worker_died"
    assert store.retry(one.id, None, 5).deaths == 0


def test_restarts_of_the_service_are_not_the_jobs_fault_for_long(store):
    one = store.add(slide())
    for attempt in range(1, MOST_ATTEMPTS + 1):
        store.claim("w")
        store.reclaim(lambda _: False, blame=False)
        assert store.get(one.id).status == (FAILED if attempt == MOST_ATTEMPTS else QUEUED)


def test_a_cancelled_job_of_a_dead_worker_is_over(store):
    one = store.add(slide())
    store.claim("w")
    store.cancel(one.id)
    store.reclaim(lambda _: False, blame=True)
    assert store.get(one.id).status == CANCELLED


def test_releasing(store):
    one, other = store.add(slide(1)), store.add(slide(2))
    store.claim("w")
    store.release(one.id, "w")
    assert store.get(one.id).status == QUEUED
    store.claim("w")
    store.cancel(one.id)
    store.release(one.id, "w")
    assert store.get(one.id).status == CANCELLED
    assert store.get(other.id).status == QUEUED


def test_deleting_hides_at_once_and_ends_when_the_worker_has(store):
    working, waiting = store.add(slide(1)), store.add(slide(2))
    store.claim("w")
    for item in (working, waiting):
        store.mark_deleted(item.id)
    assert store.every() == []
    assert store.claim("w") is None
    assert [item.id for item in store.to_purge()] == [waiting.id]
    assert not store.beat(working.id, "w", 0.1, "x")
    store.finish(working.id, "w", CANCELLED)
    for item in store.to_purge():
        store.forget(item.id)
    assert store.taken_names() == set()


def test_many_workers_never_get_the_same_slide(tmp_path, store):
    ids = {store.add(slide(n)).id for n in range(40)}
    got, lock = [], threading.Lock()

    def work(name):
        mine = JobStore(tmp_path / "out" / ".service" / "jobs.sqlite")
        while (found := mine.claim(name)) is not None:
            with lock:
                got.append(found.id)
            mine.finish(found.id, name, DONE)
        mine.close()

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 40
    assert set(got) == ids
    assert store.counts()["done"] == 40


def test_sessions_belong_to_the_token_that_let_them_in(store):
    store.add_session("cookie", "token", time.time() + 3600)
    store.add_session("old", "token", time.time() - 60)
    store.add_session("other", "other token", time.time() + 3600)
    assert set(store.sessions("token")) == {"cookie"}


def test_a_file_that_is_no_database_is_refused(tmp_path):
    path = tmp_path / "jobs.sqlite"
    path.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(DataError, match="cannot use"):
        JobStore(path)


def test_vanished_results(store):
    kept, found = store.add(slide(1, status=DONE)), store.add(slide(2, status=DONE))
    store.vanished(kept.id, keep=True)
    store.vanished(found.id, keep=False)
    (left,) = store.every()
    assert (left.id, left.status, left.error["code"]) == (kept.id, FAILED, "gone")
    assert replace(left, error=None).facts == {}
