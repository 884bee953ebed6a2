import io
import json

import pytest
from tests.evaluation.small import ByColour
from tests.segment.small import fingerprints, paint, write_slide
from tests.service.small import add_queued, settings_of

from ntrm.core.errors import RefusedError
from ntrm.correct.engine import seen_in
from ntrm.correct.mask import open_mask
from ntrm.results.slide_state import alone
from ntrm.segment.batch import segment_slides
from ntrm.segment.segmenter import Outcome, Segmenter
from ntrm.service.jobs import worker
from ntrm.service.jobs.database import MOST_ATTEMPTS
from ntrm.service.jobs.rows import LIGHT, NETWORK
from ntrm.service.jobs.worker import READ, SEGMENTED, Worker
from ntrm.slides.inputs import source_fingerprint

pytestmark = pytest.mark.usefixtures("quick_readers")


@pytest.fixture
def segmenter(tmp_path):
    segmenter = Segmenter(ByColour(), tmp_path / "out", device="cpu", batch=2)
    segmenter.check_folder()
    return segmenter


def run(store, segmenter, kinds=NETWORK):
    """Do the next job; returns its slide."""
    settings = settings_of(segmenter.out, "bundled")
    job = store.take("w", kinds)
    Worker(settings, store, "w", segmenter).run(job)
    return store.get(job.slide)


def test_uploads_are_read_without_any_other_file(tmp_path, store, segmenter, monkeypatch):
    opened_alone = {}

    def not_done(task, _):
        opened_alone[task.slide_id] = task.slide.alone
        return Outcome("a", "failed", "not tried")

    monkeypatch.setattr(segmenter, "segment", not_done)
    for origin in ("upload", "path"):
        add_queued(store, tmp_path / "a", origin, origin)
        run(store, segmenter)
    assert opened_alone == {"upload": True, "path": False}


def test_a_worker_ends_with_the_bytes_of_the_command(tmp_path, store, segmenter, random):
    slide = add_queued(store, write_slide(tmp_path / "a.tif", paint(random)))
    store.cancel(slide.id)
    # Another file by now than when it was queued.
    path = write_slide(tmp_path / "a.tif", paint(random))
    # A whole number, which JSON does not tell from another.
    store.retry(slide.id, (6, 6), 5)
    slide = run(store, segmenter)
    assert (slide.status, slide.progress, slide.error) == ("done", 1.0, None)
    assert slide.finished == (tmp_path / "out" / "a" / "summary.json").stat().st_mtime
    assert slide.fingerprint == source_fingerprint(path)
    assert not store.is_due(LIGHT)
    store.ask("", "tables")
    # One without a network ends when it has nothing to do.
    Worker(settings_of(tmp_path / "out", "bundled"), store, "w", None).work(LIGHT)
    assert store.job("", "tables") is None
    segment_slides(path, out=tmp_path / "alone", model=ByColour(), device="cpu", batch=2, mpp=6.0)
    for name in ("a/summary.json", "a/graph.json", "a/mask.ome.tif", "a/.ntrm/done.json", "slides.csv"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes(), name
    assert fingerprints(tmp_path / "out" / "a").keys() == fingerprints(tmp_path / "alone" / "a").keys()


def test_a_broken_slide_fails_with_its_reason_and_without_its_name(tmp_path, store, segmenter):
    path = tmp_path / "Jane Doe.tif"
    path.write_bytes(b"II*\x00" + bytes(100))
    add_queued(store, path)
    slide = run(store, segmenter)
    assert (slide.status, slide.error["code"]) == ("failed", "unreadable")
    assert "Jane" not in json.dumps(slide.error)
    add_queued(store, None, "b")
    assert run(store, segmenter).error["hint"] == "upload it again"


def test_a_slide_that_another_program_holds_waits(tmp_path, store, segmenter, random, monkeypatch):
    monkeypatch.setattr(worker, "BUSY_SECONDS", 0.0)
    add_queued(store, write_slide(tmp_path / "a.tif", paint(random)))
    with alone(tmp_path / "out" / "a"):
        for _ in range(MOST_ATTEMPTS + 1):
            assert run(store, segmenter).status == "queued"
    assert run(store, segmenter).status == "done"


@pytest.mark.usefixtures("results")
def test_new_slides_take_the_options_of_those_that_are_there(tmp_path, model):
    fresh = worker.open_segmenter(settings_of(tmp_path / "new", model, device="cpu", batch=3))
    assert (fresh.run.options["maps"], fresh.run.options["batch"]) == (True, 3)
    run_file = tmp_path / "new" / "run.json"
    document = json.loads(run_file.read_text())
    document["options"] |= {"gzip": True, "maps": False, "batch": 2}
    run_file.write_text(json.dumps(document))
    again = worker.open_segmenter(settings_of(tmp_path / "new", model, batch=3))
    assert [again.run.options[key] for key in ("gzip", "maps", "batch")] == [True, False, 2]
    with pytest.raises(RefusedError, match="another run"):
        worker.open_segmenter(settings_of(tmp_path / "out", model))


def test_a_worker_that_cannot_work_says_why(tmp_path, model, monkeypatch, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "holiday.jpg").write_bytes(b"x")
    text = json.dumps({"out": str(out), "model": str(model), "kinds": NETWORK, "name": "w"}) + "\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    monkeypatch.setattr(worker, "_end_with_input", lambda: None)
    assert worker.main() == RefusedError.exit_code
    assert "no results" in json.loads(capsys.readouterr().out)["refused"]["what"]


def test_progress_goes_through_all_stages_and_never_falls(tmp_path, store, segmenter, random, monkeypatch):
    monkeypatch.setattr(worker, "BEAT_SECONDS", 0.001)
    reports, beat = [], store.beat
    monkeypatch.setattr(store, "beat", lambda job, *now: reports.append(now) or beat(job, *now))
    add_queued(store, write_slide(tmp_path / "a.tif", paint(random, pieces=2)))
    assert run(store, segmenter).status == "done"
    fractions = [fraction for fraction, _ in reports]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (READ, SEGMENTED)
    assert len([fraction for fraction in fractions if READ < fraction < SEGMENTED]) > 2
    assert list(dict.fromkeys(stage for _, stage in reports)) == ["segmenting", "measuring"]


@pytest.mark.parametrize(
    ("error", "field", "said"),
    [
        (RefusedError("run.json was changed"), "what", "run.json was changed"),
        (OSError(28, "No space left"), "got", "No space left"),
        (MemoryError(), "got", "MemoryError"),
    ],
)
def test_what_goes_wrong_is_told_and_stops_no_other_job(tmp_path, store, monkeypatch, error, field, said):
    store.ask("", "tables")
    monkeypatch.setattr(Worker, "tables", lambda _: (_ for _ in ()).throw(error))
    Worker(settings_of(tmp_path, "bundled"), store, "w", None).work(LIGHT)
    failed = store.job("", "tables")
    assert (failed.status, failed.error[field]) == ("failed", said)


def test_a_worker_reads_the_texture_but_not_of_another_file(tmp_path, store, segmenter, random):
    add_queued(store, write_slide(tmp_path / "a.tif", paint(random)))
    key, summary = run(store, segmenter).id, tmp_path / "out" / "a" / "summary.json"

    def failure():
        store.ask(key, "prepare")
        run(store, segmenter)
        if (failed := store.job(key, "prepare")) is None:
            return None
        assert failed.error["code"] == "refused"
        assert "a.tif" not in json.dumps(failed.error)
        return failed.error["got"]

    assert failure() is None
    assert seen_in(open_mask(summary.parent)) is not None
    write_slide(tmp_path / "a.tif", paint(random, height=200))
    (summary.parent / ".ntrm" / "texture.npz").unlink()
    assert "another file" in failure()
