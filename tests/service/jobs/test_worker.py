import io
import json

import pytest
from tests.evaluation.small import ByColour
from tests.segment.small import fingerprints, paint, write_slide
from tests.service.small import add_queued, settings_of

from ntrm.core.errors import RefusedError
from ntrm.correct.engine.parts_engine import region_graph_in
from ntrm.correct.mask import open_mask
from ntrm.results.slide_state import alone
from ntrm.segment.batch import segment_slides
from ntrm.segment.segmenter import Outcome, Segmenter
from ntrm.service.jobs import worker
from ntrm.service.jobs.database import MOST_ATTEMPTS
from ntrm.service.jobs.rows import LIGHT, NETWORK
from ntrm.service.jobs.worker import READ, SEGMENTED, Worker

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


def test_a_cancelled_job_ends_and_goes_on_later(tmp_path, store, segmenter, random, monkeypatch):
    slide = add_queued(store, write_slide(tmp_path / "a.tif", paint(random)))
    beat = store.beat
    monkeypatch.setattr(store, "beat", lambda *now: store.cancel(slide.id) and beat(*now))
    assert run(store, segmenter).status == "cancelled"
    assert not (tmp_path / "out" / "a" / "summary.json").exists()
    monkeypatch.undo()
    store.retry(slide.id, None, 5)
    assert run(store, segmenter).status == "done"


def test_the_fingerprint_of_a_finished_slide_is_of_the_file_that_was_segmented(tmp_path, store, segmenter, random):
    slide = add_queued(store, write_slide(tmp_path / "a.tif", paint(random)))
    assert slide.fingerprint is None
    write_slide(tmp_path / "a.tif", paint(random))
    done = run(store, segmenter)
    plan = json.loads((tmp_path / "out" / "a" / ".ntrm" / "done.json").read_bytes())["plan"]
    assert (done.status, done.fingerprint) == ("done", plan["source"])


def test_a_worker_ends_with_the_bytes_of_the_command(tmp_path, store, segmenter, random):
    mask = paint(random)
    path = write_slide(tmp_path / "a.tif", mask)
    slide = add_queued(store, path)
    store.cancel(slide.id)
    # A whole number, which JSON does not tell from another.
    store.retry(slide.id, (6, 6), 5)
    slide = run(store, segmenter)
    assert (slide.status, slide.progress, slide.error) == ("done", 1.0, None)
    assert slide.finished == (tmp_path / "out" / "a" / "summary.json").stat().st_mtime
    assert not store.is_due(LIGHT)
    store.ask("", "tables")
    Worker(settings_of(tmp_path / "out", "bundled"), store, "w", None).run(store.take("w", LIGHT))
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


@pytest.mark.parametrize("error", [RefusedError("run.json was changed"), OSError(28, "No space left"), MemoryError()])
def test_what_goes_wrong_is_told_and_stops_no_other_job(tmp_path, store, monkeypatch, error):
    store.ask("", "tables")
    monkeypatch.setattr(Worker, "tables", lambda _: (_ for _ in ()).throw(error))
    Worker(settings_of(tmp_path, "bundled"), store, "w", None).run(store.take("w", LIGHT))
    failed = store.job("", "tables")
    assert failed.status == "failed"
    assert (failed.error["what"] if isinstance(error, RefusedError) else failed.error["got"]) in (
        "run.json was changed",
        "No space left",
        "MemoryError",
    )


def test_a_worker_without_a_network_ends_when_it_has_nothing_to_do(tmp_path, store, monkeypatch):
    store.ask("", "tables")
    Worker(settings_of(tmp_path, "bundled"), store, "w", None).work(LIGHT)
    assert store.job("", "tables") is None


@pytest.fixture
def prepared(tmp_path, store, segmenter, random):
    """Id of a slide that was segmented, and whose region graph somebody wants."""
    add_queued(store, write_slide(tmp_path / "a.tif", paint(random)))
    key = run(store, segmenter).id
    store.ask(key, "prepare")
    return key


def kept(tmp_path):
    return region_graph_in(open_mask(tmp_path / "out" / "a"))


def test_a_worker_makes_the_region_graph_of_a_slide(tmp_path, store, segmenter, prepared):
    run(store, segmenter)
    assert store.job(prepared, "prepare") is None
    assert len(kept(tmp_path)) > 10


def test_another_slide_or_model_is_refused_without_a_name_of_a_file(tmp_path, store, segmenter, prepared, random):
    def failure():
        run(store, segmenter)
        error = store.job(prepared, "prepare").error
        store.ask(prepared, "prepare")
        assert error["code"] == "refused"
        assert "a.tif" not in json.dumps(error)
        return error["got"]

    write_slide(tmp_path / "a.tif", paint(random, height=200))
    assert "another file" in failure()
    (tmp_path / "a.tif").unlink()
    failure()
    summary = tmp_path / "out" / "a" / "summary.json"
    document = json.loads(summary.read_text())
    document["model"]["sha256"] = "0" * 64
    summary.write_text(json.dumps(document))
    assert "another model" in failure()
