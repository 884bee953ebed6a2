import json
import shutil
from pathlib import Path
from threading import Event

import pytest
from tests.service.small import only_slide, segmented, serving, settings_of, slide_bytes, upload

from ntrm.results.slide_state import remember_failure
from ntrm.service.core.settings import INCOMING, TRASH, UPLOADS
from ntrm.service.jobs.catalogue import Catalogue
from ntrm.service.jobs.rows import SlideRow, new_id

pytestmark = pytest.mark.usefixtures("quick_readers")


@pytest.fixture
def catalogue_of(tmp_path, store):
    """The catalogue of a folder, with the roots where originals may lie."""
    return lambda *roots: Catalogue(settings_of(tmp_path / "out", "bundled", roots=roots), store, None)


@pytest.mark.usefixtures("results")
def test_finished_results_are_adopted_once_and_nothing_else_is(tmp_path, store, catalogue_of, caplog):
    out = tmp_path / "out"
    remember_failure(out / "failed", "failed", "broken", {})
    (out / "empty").mkdir()
    shutil.copytree(out / "a", out / "damaged")
    (out / "damaged" / "summary.json").write_text("{")
    shutil.copytree(out / "a", out / "half")
    (out / "half" / ".ntrm" / "done.json").unlink()
    catalogue = catalogue_of()
    assert [catalogue.look_around() for _ in range(2)] == [1, 0]
    (slide,) = store.every()
    assert (slide.slide_id, slide.origin, slide.status, slide.progress) == ("a", "found", "done", 1.0)
    assert slide.fingerprint == json.loads((out / "a" / ".ntrm" / "done.json").read_text())["plan"]["source"]
    # Told once.
    assert caplog.text.count("cannot read summary.json") == 1


def test_originals_are_found_by_content_under_the_roots_alone(tmp_path, store, results, catalogue_of):
    path, _ = results
    root = tmp_path / "root"
    (root / "deep").mkdir(parents=True)
    (root / "other.tif").write_bytes(b"x" * 100)
    (root / "link.tif").symlink_to(path)
    catalogue = catalogue_of(root)
    catalogue.look_around()
    assert catalogue.find_originals(Event()) == 0
    moved = root / "deep" / "under another name.tif"
    shutil.copy(path, moved)
    stopped = Event()
    stopped.set()
    assert catalogue.find_originals(stopped) == 0
    assert catalogue.find_originals(Event()) == 1
    assert store.every()[0].source == moved
    assert catalogue.find_originals(Event()) == 0


def test_results_made_anew_are_read_again_and_their_original_is_the_one_they_were_made_of(
    tmp_path, store, results, random, catalogue_of
):
    path, mask = results
    catalogue = catalogue_of(path.parent)
    catalogue.look_around()
    (before,) = store.every()
    width = catalogue.results(before).width
    shutil.copy(path, tmp_path / "old.tif")
    store.locate(before.id, tmp_path / "old.tif")
    assert catalogue.look_around() == 0
    shutil.rmtree(tmp_path / "out" / "a")
    segmented(tmp_path, random, mask=mask[:, : mask.shape[1] // 2], maps=True, tissue_mask=False)
    assert catalogue.look_around() == 1
    after = store.get(before.id)
    assert (after.source, after.fingerprint != before.fingerprint) == (None, True)
    assert (width, catalogue.results(after).width) == (mask.shape[1], mask.shape[1] // 2)
    assert catalogue.find_originals(Event()) == 1
    assert catalogue.look_around() == 0
    (tmp_path / "out" / "a" / "summary.json").touch()
    assert catalogue.look_around() == 1
    assert store.get(before.id).source == path


@pytest.mark.usefixtures("results")
def test_results_removed_by_hand_are_forgotten_unless_they_can_be_made_again(tmp_path, store, results, catalogue_of):
    catalogue = catalogue_of()
    sent = store.add(SlideRow(new_id(), "b", "b", "path", results[0], None, "done", 0.0, finished=0.0))
    catalogue.look_around()
    assert [(slide.id, slide.error["code"]) for slide in store.every("failed")] == [(sent.id, "gone")]
    assert len(store.every("done")) == 1
    shutil.rmtree(tmp_path / "out" / "a")
    catalogue.look_around()
    assert [slide.id for slide in store.every()] == [sent.id]


def test_a_service_keeps_its_ids_and_clears_up_after_one_that_was_killed(tmp_path, model, results, random, caplog):
    path, _ = results
    settings = settings_of(tmp_path / "out", model, roots=(path.parent,))
    with serving(settings) as client:
        first = only_slide(client)["id"]
        half_deleted = upload(client, slide_bytes(random)).json()["id"]
    places = {name: settings.hidden / name for name in (INCOMING, UPLOADS, TRASH)}
    (places[UPLOADS] / half_deleted).unlink()
    (places[TRASH] / "a-1").mkdir()
    (places[INCOMING] / "half").write_bytes(b"x")
    (places[UPLOADS] / ("f" * 24)).write_bytes(b"a slide, perhaps")
    with serving(settings) as client:
        assert only_slide(client)["id"] == first
    assert [path for name in (INCOMING, TRASH) for path in places[name].iterdir()] == []
    # An upload that nobody knows is kept, and told.
    assert [path.read_bytes() for path in places[UPLOADS].iterdir()] == [b"a slide, perhaps"]
    assert "belong to no slide" in caplog.text


def test_originals_are_found_again_when_their_root_has_moved_or_is_a_link(tmp_path, model, random, monkeypatch):
    root, out = tmp_path / "root", tmp_path / "out"
    root.mkdir()
    (root / "a.tif").write_bytes(slide_bytes(random))
    monkeypatch.chdir(tmp_path)
    with serving(settings_of(out, model, roots=(Path("root"),))) as client:
        for name in ("one", "two"):
            client.post("/v1/slides", json={"path": "a.tif", "slide_id": name})
    root.rename(tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with serving(settings_of(out, model, roots=(tmp_path / "link",))) as client:
        assert [slide["has_image"] for slide in client.get("/v1/slides").json()["slides"]] == [True, True]
        assert {slide.source for slide in client.app_state.store.every()} == {tmp_path / "elsewhere" / "a.tif"}
