import io
import json
import os
import threading
import time
from itertools import pairwise

import pytest
from bench.hostile import sparse_slide
from tests.evaluation.small import ByColour
from tests.pipeline.small import fingerprints, paint, write_slide
from tests.service.small import add_queued, settings_of

from ntrm.core.errors import RefusedError
from ntrm.pipeline.batch import segment_slides
from ntrm.pipeline.options import Options
from ntrm.pipeline.segmenter import Outcome, Segmenter
from ntrm.results.slide_state import alone
from ntrm.service.core.settings import settings_from, settings_to
from ntrm.service.jobs import worker
from ntrm.service.jobs.slide_record import CANCELLED, DONE, FAILED, PATH, QUEUED, UPLOAD
from ntrm.service.jobs.worker import FILES, MEASURED, READ, SEGMENTED, JobProgress, written
from ntrm.wsi.readers.formats import open_slide
from ntrm.wsi.readers.tiff import TiffReader

pytestmark = pytest.mark.usefixtures("quick_readers")

NEVER = threading.Event()
NOT_DONE = Outcome("a", "failed", "not tried")


@pytest.fixture
def segmenter(tmp_path):
    segmenter = Segmenter(ByColour(), tmp_path / "out", device="cpu", batch=2)
    segmenter.claim()
    return segmenter


def claimed(store, path=None):
    add_queued(store, path)
    return store.claim("w")


def run(store, segmenter, stop=NEVER, seconds=600.0):
    slide = store.claim("w")
    worker.run_job(store, segmenter, slide, "w", stop, seconds)
    return store.get(slide.id)


def test_uploads_are_read_without_any_other_file(tmp_path, store, segmenter, monkeypatch):
    opened_alone = {}
    monkeypatch.setattr(
        segmenter, "segment", lambda slide, name, *_: opened_alone.update({name: slide.alone}) or NOT_DONE
    )
    for origin in (UPLOAD, PATH):
        add_queued(store, tmp_path / "a", origin, origin)
        run(store, segmenter)
    assert opened_alone == {UPLOAD: True, PATH: False}


def test_a_cancelled_job_ends_and_goes_on_later(tmp_path, store, segmenter, random, monkeypatch):
    slide = add_queued(store, write_slide(tmp_path / "a.tif", paint(random)))
    beat = store.beat
    monkeypatch.setattr(store, "beat", lambda *now: store.cancel(slide.id) and beat(*now))
    assert run(store, segmenter).status == CANCELLED
    assert not (tmp_path / "out" / "a" / "summary.json").exists()
    monkeypatch.undo()
    store.retry(slide.id, None, 5)
    assert run(store, segmenter).status == DONE


def test_the_fingerprint_of_a_finished_slide_is_of_the_file_that_was_segmented(tmp_path, store, segmenter, random):
    slide = add_queued(store, write_slide(tmp_path / "a.tif", paint(random)))
    assert slide.fingerprint is None
    write_slide(tmp_path / "a.tif", paint(random))
    done = run(store, segmenter)
    plan = json.loads((tmp_path / "out" / "a" / ".ntrm" / "done.json").read_bytes())["plan"]
    assert (done.status, done.fingerprint) == (DONE, plan["source"])


def test_a_slide_is_not_read_any_further_once_it_is_cancelled(tmp_path, store, segmenter, random, monkeypatch):
    reads = []

    class Reader:
        def __init__(self, path, **_):
            self._slide = open_slide(path)
            self.info, self.close = self._slide.info, self._slide.close

        def read(self, *place):
            reads.append(place)
            return self._slide.read(*place)

    monkeypatch.setattr(worker, "open_isolated", Reader)
    slide = add_queued(store, write_slide(tmp_path / "a.tif", paint(random)))
    claimed = store.claim("w")
    # While the slide is looked at from afar: nothing is counted yet.
    store.cancel(slide.id)
    worker.run_job(store, segmenter, claimed, "w", NEVER, 600)
    assert store.get(slide.id).status == CANCELLED
    assert reads == []


def test_a_worker_that_is_stopped_puts_its_slide_back_and_ends_with_the_bytes_of_the_command(
    tmp_path, store, segmenter, random
):
    mask = paint(random)
    path = write_slide(tmp_path / "a.tif", mask)
    slide = add_queued(store, path)
    store.cancel(slide.id)
    # A whole number, which JSON does not tell from another.
    store.retry(slide.id, (6, 6), 5)
    stop = threading.Event()
    stop.set()
    slide = run(store, segmenter, stop)
    assert (slide.status, slide.deaths) == (QUEUED, 0)
    slide = run(store, segmenter)
    assert (slide.status, slide.progress, slide.error, slide.attempts) == (DONE, 1.0, None, 2)
    assert (slide.facts["width"], slide.facts["height"]) == (mask.shape[1], mask.shape[0])
    segmenter.tabulate()
    segment_slides(path, out=tmp_path / "alone", model=ByColour(), device="cpu", batch=2, mpp=6.0)
    for name in ("a/summary.json", "a/graph.json", "a/mask.ome.tif", "a/.ntrm/done.json", "slides.csv"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes(), name
    assert fingerprints(tmp_path / "out" / "a").keys() == fingerprints(tmp_path / "alone" / "a").keys()


def test_a_job_that_takes_too_long_fails(tmp_path, store, segmenter, random):
    add_queued(store, write_slide(tmp_path / "a.tif", paint(random)))
    slide = run(store, segmenter, seconds=-1)
    assert (slide.status, slide.error["code"]) == (FAILED, "too_long")


def test_a_slide_that_would_take_minutes_for_nothing_is_refused_before_it_is_read(
    tmp_path, store, segmenter, monkeypatch
):
    monkeypatch.setattr(worker, "open_isolated", lambda path, **_: open_slide(path))
    monkeypatch.setattr(TiffReader, "read", lambda *_: pytest.fail("it was read"))
    (tmp_path / "a.tif").write_bytes(sparse_slide())
    add_queued(store, tmp_path / "a.tif")
    slide = run(store, segmenter)
    assert (slide.status, slide.error["code"]) == (FAILED, "refused")
    assert "would have to be read" in slide.error["got"]


def test_a_broken_slide_fails_with_its_reason_and_without_its_name(tmp_path, store, segmenter):
    path = tmp_path / "Jane Doe.tif"
    path.write_bytes(b"II*\x00" + bytes(100))
    add_queued(store, path)
    slide = run(store, segmenter)
    assert (slide.status, slide.error["code"]) == (FAILED, "unreadable")
    assert "Jane" not in json.dumps(slide.error)
    add_queued(store, None, "b")
    assert run(store, segmenter).error["what"] == "the slide's file is not known"


def test_a_slide_that_another_program_holds_fails_after_a_while(tmp_path, store, segmenter, random, monkeypatch):
    monkeypatch.setattr(worker, "BUSY_SECONDS", 0.1)
    monkeypatch.setattr(worker, "PAUSE_SECONDS", 0.01)
    add_queued(store, write_slide(tmp_path / "a.tif", paint(random)))
    with alone(tmp_path / "out" / "a"):
        slide = run(store, segmenter)
    assert slide.status == FAILED
    assert "another process" in slide.error["got"]


@pytest.mark.usefixtures("results")
def test_new_slides_take_the_options_of_those_that_are_there(tmp_path, model):
    fresh = worker.open_segmenter(settings_of(tmp_path / "new", model, device="cpu", batch=3))
    assert (fresh.run.options["maps"], fresh.run.options["batch"]) == (True, 3)
    run_file = tmp_path / "new" / "run.json"
    document = json.loads(run_file.read_text())
    document["options"] |= {"gzip": True, "maps": False, "batch": 2}
    run_file.write_text(json.dumps(document))
    again = worker.open_segmenter(settings_of(tmp_path / "new", model, batch=3))
    assert {key: again.run.options[key] for key in ("gzip", "maps", "batch")} == {
        "gzip": True,
        "maps": False,
        "batch": 2,
    }
    with pytest.raises(RefusedError, match="another run"):
        worker.open_segmenter(settings_of(tmp_path / "out", model))


def test_options_of_a_run_that_begins_while_the_network_is_loaded_are_taken(tmp_path, model, random, monkeypatch):
    slide = write_slide(tmp_path / "a.tif", paint(random))

    def slow(*given, **more):
        monkeypatch.setattr(worker, "Segmenter", Segmenter)
        segment_slides(slide, out=tmp_path / "out", model=model, device="cpu", batch=2, maps=False)
        return Segmenter(*given, **more)

    monkeypatch.setattr(worker, "Segmenter", slow)
    options = worker.open_segmenter(settings_of(tmp_path / "out", model)).run.options
    assert (options["maps"], options["batch"]) == (False, 2)


def test_what_a_worker_is_told_holds_no_secret(tmp_path, model):
    settings = settings_of(tmp_path / "o\udcff", model, device="cpu", batch=7, limits={"slide_seconds": 9})
    document = json.loads(json.dumps(settings_to(settings)))
    assert settings.token not in json.dumps(document)
    restored = settings_from(document)
    assert (restored.out, restored.model, restored.device, restored.batch) == (settings.out, settings.model, "cpu", 7)
    assert restored.limits.slide_seconds == 9


def test_a_worker_that_cannot_work_says_why(tmp_path, model, monkeypatch, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "holiday.jpg").write_bytes(b"x")
    text = json.dumps(settings_to(settings_of(out, model))) + "\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    monkeypatch.setattr(worker, "_listen", lambda _: None)
    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)  # tests that follow must stay interruptible
    assert worker.main() == RefusedError.exit_code
    assert "no results" in json.loads(capsys.readouterr().out)["refused"]["what"]


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


def test_tables_that_cannot_be_written_stop_no_slide_and_are_tried_again_later(tmp_path, segmenter, monkeypatch):
    """The clock goes on while it idles."""
    now, tried, stop = [1000.0], [], threading.Event()

    class Wake(threading.Event):
        def wait(self, timeout=None):
            now[0] += timeout
            return False

    def tabulate():
        tried.append(now[0])
        if len(tried) < 3:
            raise RefusedError("run.json was changed")
        stop.set()

    monkeypatch.setattr(worker.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(segmenter, "tabulate", tabulate)
    worker._work(settings_of(tmp_path / "out", "bundled"), segmenter, "w", stop, Wake())
    assert len(tried) == 3
    assert all(later - sooner > worker.TABLE_SECONDS for sooner, later in pairwise(tried))


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
