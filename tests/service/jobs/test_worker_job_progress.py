import os
import threading
import time

from tests.evaluation.small import ByColour
from tests.pipeline.small import paint, write_slide
from tests.service.small import add_queued

from ntrm.pipeline.options import Options
from ntrm.pipeline.segmenter import Segmenter
from ntrm.service.jobs import worker
from ntrm.service.jobs.database import DONE
from ntrm.service.jobs.worker import FILES, MEASURED, READ, SEGMENTED, JobProgress, written

NEVER = threading.Event()


def claimed(store, path=None):
    add_queued(store, path)
    return store.claim("w")


def reports_of(store, monkeypatch):
    """What is reported to the database from now on."""
    reports, beat = [], store.beat
    monkeypatch.setattr(store, "beat", lambda *now: reports.append(now[2:]) or beat(*now))
    return reports


def test_progress_goes_through_all_stages_and_never_falls(tmp_path, store, random, monkeypatch):
    monkeypatch.setattr(worker, "BEAT_SECONDS", 0.001)
    reports = reports_of(store, monkeypatch)
    segmenter = Segmenter(ByColour(), tmp_path / "out", Options(maps=True), device="cpu", batch=2)
    segmenter.claim()
    slide = claimed(store, write_slide(tmp_path / "a.tif", paint(random, pieces=2)))
    assert (slide.progress, slide.stage) == (0, "reading")
    worker.run_job(store, segmenter, slide, "w", NEVER, 600)
    assert store.get(slide.id).status == DONE
    fractions = [fraction for fraction, _ in reports]
    assert fractions == sorted(fractions)
    assert (fractions[0], READ in fractions) == (0, True)
    assert len([fraction for fraction in fractions if READ < fraction < SEGMENTED]) > 2
    stages = [stage for _, stage in reports]
    assert list(dict.fromkeys(stages)) == ["reading", "segmenting", "measuring", "writing"]
    assert MEASURED < fractions[-1] < 1
    # Every file that is waited for is really written.
    assert set(FILES) <= {path.name for path in (tmp_path / "out" / "a").iterdir()}


def test_progress_is_told_at_most_a_few_times_a_second(tmp_path, store):
    slide, calls = claimed(store), []
    store.beat = lambda *_: calls.append(1) or True
    begun = time.monotonic()
    with JobProgress(store, slide, "w", tmp_path, NEVER, 600) as progress:
        assert list(progress.track(range(5000), 5000, "x")) == list(range(5000))
        assert len(calls) <= 2 + (time.monotonic() - begun) / worker.BEAT_SECONDS


def test_only_files_of_this_attempt_count(tmp_path):
    now = time.time()
    assert written(tmp_path / "nowhere", now) == 0
    (tmp_path / FILES[0]).write_bytes(b"")
    (tmp_path / FILES[3]).write_bytes(b"")
    (tmp_path / FILES[6]).write_bytes(b"")
    os.utime(tmp_path / FILES[6], (now - 100, now - 100))
    assert written(tmp_path, now - 50) == 4


def test_a_database_that_fails_while_files_are_watched_is_left_to_the_job(tmp_path, store, monkeypatch):
    monkeypatch.setattr(worker, "BEAT_SECONDS", 0.001)
    slide = claimed(store)
    failed = threading.Event()
    with JobProgress(store, slide, "w", tmp_path, NEVER, 600) as progress:
        list(progress.track([1], 1, "x"))

        def broken(*_):
            failed.set()
            raise worker.sqlite3.OperationalError("full")

        store.beat = broken
        (tmp_path / FILES[0]).write_bytes(b"x")
        os.utime(tmp_path / FILES[0], (time.time() + 60, time.time() + 60))
        assert failed.wait(240)
