"""Jobs that make region graphs: their way through the database, and what a worker makes of them."""

import json
import threading

import pytest
from tests.evaluation.small import ByColour
from tests.pipeline.small import paint, write_slide
from tests.service.small import add_queued

from ntrm.core.errors import DataError
from ntrm.correction.engine.prepare import region_graph_in
from ntrm.correction.mask import open_mask
from ntrm.pipeline.segmenter import Segmenter
from ntrm.service.jobs import worker
from ntrm.service.jobs.database import MOST_DEATHS
from ntrm.service.jobs.graph_jobs import FAILED, MAKING, WAITING

pytestmark = pytest.mark.usefixtures("quick_readers")
NEVER = threading.Event()


@pytest.fixture
def done(store):
    """The id of a slide that is done."""
    slide = add_queued(store)
    store.claim("w")
    store.finish(slide.id, "w", "done")
    return slide.id


def test_a_graph_is_asked_for_made_and_gone_from_the_list(store, done):
    jobs = store.graphs
    assert jobs.get(done) is None
    jobs.ask(done)
    jobs.ask(done)
    assert jobs.get(done).status == WAITING
    job = jobs.claim("w")
    assert (job.slide, job.status, job.worker, job.attempts) == (done, MAKING, "w", 1)
    assert jobs.claim("other") is None
    assert jobs.beat(done, "w", 0.25, MAKING)
    assert jobs.get(done).progress == 0.25
    assert not jobs.beat(done, "other", 0.5, MAKING)
    jobs.finish(done, "other")
    assert jobs.get(done).status == MAKING
    jobs.finish(done, "w")
    assert jobs.get(done) is None


def test_a_failed_one_tells_why_until_somebody_asks_again(store, done):
    jobs = store.graphs
    jobs.ask(done)
    jobs.claim("w")
    jobs.finish(done, "w", DataError("no", got="/srv/Jane/a.tif", hint="do"))
    job = jobs.get(done)
    assert (job.status, job.error["what"], job.error["got"]) == (FAILED, "no", "…")
    assert jobs.claim("w") is None
    jobs.ask(done)
    job = jobs.get(done)
    assert (job.status, job.error, job.attempts) == (WAITING, None, 0)


def test_only_slides_that_are_done_and_not_deleted_get_one(store, done):
    jobs, queued = store.graphs, add_queued(store, name="b")
    for key in (queued.id, done):
        jobs.ask(key)
    assert jobs.claim("w").slide == done
    assert jobs.claim("w") is None
    store.mark_deleted(queued.id)
    assert jobs.get(queued.id) is None


def test_a_slide_is_not_removed_while_its_graph_is_being_made(store, done):
    store.graphs.ask(done)
    store.graphs.claim("w")
    store.mark_deleted(done)
    assert store.to_purge() == []
    assert not store.graphs.beat(done, "w", 0.5, MAKING)
    store.graphs.release(done, "w")
    assert [slide.id for slide in store.to_purge()] == [done]


@pytest.mark.parametrize("blame", [True, False])
def test_jobs_of_workers_that_are_gone_wait_again_but_not_for_ever(store, done, blame):
    jobs = store.graphs
    jobs.ask(done)
    starts = 0
    while jobs.claim("w") is not None:
        starts += 1
        jobs.reclaim(lambda _: True, blame=blame)
        assert jobs.get(done).status == MAKING
        jobs.reclaim(lambda _: False, blame=blame)
    assert starts == (MOST_DEATHS if blame else 10)
    assert "attempts" in jobs.get(done).error["got"]


def test_a_job_that_nobody_wants_ends(store, done):
    jobs = store.graphs
    jobs.ask(done)
    jobs.drop(done)
    assert jobs.get(done) is None
    jobs.ask(done)
    jobs.claim("w")
    jobs.drop(done)
    assert jobs.get(done).cancel is not None
    jobs.reclaim(lambda _: False, blame=True)
    assert jobs.get(done) is None


@pytest.fixture
def segmented(tmp_path, store, random):
    """A slide that a worker has segmented, and the worker's network."""
    segmenter = Segmenter(ByColour(), tmp_path / "out", device="cpu", batch=2)
    segmenter.claim()
    add_queued(store, write_slide(tmp_path / "a.tif", paint(random)))
    slide = store.claim("w")
    worker.run_job(store, segmenter, slide, "w", NEVER, 600)
    store.graphs.ask(slide.id)
    return slide.id, segmenter


def run(store, segmenter, stop=NEVER, seconds=600.0):
    job = store.graphs.claim("w")
    worker.run_graph_job(store, segmenter, job, "w", stop, seconds)
    return store.graphs.get(job.slide)


def kept(tmp_path):
    return region_graph_in(open_mask(tmp_path / "out" / "a"))


def test_a_worker_makes_the_graph_of_a_slide(tmp_path, store, segmented, monkeypatch):
    _, segmenter = segmented
    seen, beat = [], store.graphs.beat
    monkeypatch.setattr(store.graphs, "beat", lambda *now: seen.append(now[2]) or beat(*now))
    monkeypatch.setattr(worker, "BEAT_SECONDS", 0.0)
    assert run(store, segmenter) is None
    assert len(kept(tmp_path)) > 10
    assert seen == sorted(seen)
    assert seen[-1] > 0.5


def test_a_worker_that_is_stopped_goes_on_later(tmp_path, store, segmented):
    _, segmenter = segmented
    stop = threading.Event()
    stop.set()
    assert run(store, segmenter, stop).status == WAITING
    assert kept(tmp_path) is None
    assert run(store, segmenter) is None
    assert kept(tmp_path) is not None


def test_a_graph_that_is_cancelled_or_takes_too_long_ends(tmp_path, store, segmented, monkeypatch):
    key, segmenter = segmented
    failed = run(store, segmenter, seconds=-1)
    assert (failed.status, failed.error["code"]) == (FAILED, "too_long")
    store.graphs.ask(key)
    beat = store.graphs.beat
    monkeypatch.setattr(store.graphs, "beat", lambda *now: store.graphs.drop(key) or beat(*now))
    assert run(store, segmenter) is None
    assert kept(tmp_path) is None


def test_another_slide_or_model_is_refused_without_a_name_of_a_file(tmp_path, store, segmented, random):
    key, segmenter = segmented
    write_slide(tmp_path / "a.tif", paint(random, height=200))
    failed = run(store, segmenter)
    assert (failed.status, failed.error["code"]) == (FAILED, "refused")
    assert "another file" in failed.error["got"]
    assert "a.tif" not in json.dumps(failed.error)
    (tmp_path / "a.tif").unlink()
    store.graphs.ask(key)
    assert run(store, segmenter).error["code"] == "refused"
    summary = tmp_path / "out" / "a" / "summary.json"
    document = json.loads(summary.read_text())
    document["model"]["sha256"] = "0" * 64
    summary.write_text(json.dumps(document))
    store.graphs.ask(key)
    assert "another model" in run(store, segmenter).error["got"]
