import json
import re
import shutil

import pytest
from tests.evaluation.small import ByColour
from tests.helpers import wait_for
from tests.segment.small import write_slide
from tests.service.core.test_problems import full_database
from tests.service.small import only_slide, serving, settings_of, slide_bytes, upload

from ntrm.results.paths import table_file
from ntrm.results.tables import COLUMNS
from ntrm.segment.batch import segment_slides
from ntrm.service.api.app_state import Audit
from ntrm.service.core.settings import AUDIT, UPLOADS
from ntrm.service.jobs import catalogue
from ntrm.service.jobs.rows import SlideRow

pytestmark = pytest.mark.usefixtures("quick_readers", "quick_worker")


def uploaded(client, random):
    answer = upload(client, slide_bytes(random))
    assert answer.status_code == 202
    return answer.json()["id"]


ELSEWHERE = {
    "another spelling": lambda out: out.parent / "in" / ".." / out.name,
    "moved": lambda out: out.rename(out.parent / "moved"),
    "copied": lambda out: shutil.copytree(out, out.parent / "copy"),
}


@pytest.mark.parametrize("elsewhere", ELSEWHERE)
def test_uploads_survive_when_their_folder_is_served_under_another_path(tmp_path, model, random, elsewhere):
    (tmp_path / "in").mkdir()
    with serving(settings_of(tmp_path / "out", model)) as client:
        key = uploaded(client, random)
        client.post(f"/v1/slides/{key}/cancel")
        sent = (tmp_path / "out" / ".service" / UPLOADS / key).read_bytes()
    out = ELSEWHERE[elsewhere](tmp_path / "out")
    with serving(settings_of(out, model)) as client:
        assert (only_slide(client)["id"], only_slide(client)["has_image"]) == (key, True)
        assert client.get(f"/v1/slides/{key}/tiles/slide/0/0_0.jpg").status_code == 200
        assert client.post(f"/v1/slides/{key}/retry").json()["status"] == "queued"
        uploads = client.app_state.settings.hidden / UPLOADS
        assert client.app_state.store.get(key).source == uploads / key
        assert (uploads / key).read_bytes() == sent
        assert client.delete(f"/v1/slides/{key}").status_code == 204
        assert list(uploads.iterdir()) == []
    # Whoever deletes a slide of a copy deletes nothing of the original.
    assert (tmp_path / "out" / ".service" / UPLOADS / key).exists() == (elsewhere == "copied")


def test_deleting_an_upload_spares_an_original_found_below_a_root(tmp_path, model, random):
    original = tmp_path / "root" / "a.tif"
    original.parent.mkdir()
    original.write_bytes(slide_bytes(random))
    with serving(settings_of(tmp_path / "out", model, roots=(original.parent,))) as client:
        slide = SlideRow("a" * 24, "a", "a", "upload", original, None, "done", 0.0)
        client.app_state.catalogue.delete(client.app_state.store.add(slide))
        assert client.get("/v1/slides").json() == {"slides": []}
    assert original.is_file()


def test_a_full_log_is_moved_on_the_oldest_lines_go_and_a_link_in_its_place_is_not_followed(tmp_path, monkeypatch):
    audit, path = Audit(tmp_path / AUDIT), tmp_path / AUDIT
    monkeypatch.setattr(audit, "maxBytes", 200)
    for number in range(50):
        audit.note("link", str(number))
    audit.close()
    assert sorted(tmp_path.iterdir()) == [path, *(tmp_path / f"{AUDIT}.{number}" for number in range(1, 10))]
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in tmp_path.iterdir())
    assert json.loads(path.read_text().splitlines()[-1])["slide"] == "49"
    other = path.rename(tmp_path / "other")
    before = other.read_text()
    path.symlink_to(other)
    Audit(path).note("start")
    assert other.read_text() == before


def test_tables_and_overview_say_nothing_of_a_deleted_slide(tmp_path, model, results, monkeypatch):
    monkeypatch.setattr(catalogue, "TABLES_SECONDS", 0.0)
    path, mask = results
    write_slide(path.parent / "b.tif", mask)
    run = {"model": ByColour(), "device": "cpu", "batch": 2}
    segment_slides(path.parent, out=tmp_path / "out", maps=True, tissue_mask=False, **run)
    files = [tmp_path / "out" / name for name in (*map(table_file, COLUMNS), "index.html")]

    def told(slide_id):
        return [file.name for file in files if re.search(rf"^{slide_id},|href=\"{slide_id}/", file.read_text(), re.M)]

    assert len(told("a")) == len(told("b")) == len(files)
    with serving(settings_of(tmp_path / "out", model)) as client:
        ids = {slide["slide_id"]: slide["id"] for slide in client.get("/v1/slides").json()["slides"]}
        assert client.delete(f"/v1/slides/{ids['a']}").status_code == 204
        wait_for("tables without it", lambda: not told("a"))
        assert len(told("b")) == len(files)
        # The last one, too.
        assert client.delete(f"/v1/slides/{ids['b']}").status_code == 204
        wait_for("empty tables", lambda: not told("b"))


def test_another_file_in_the_place_of_an_original_is_not_shown_under_the_mask(tmp_path, model, results, random):
    path, _ = results
    with serving(settings_of(tmp_path / "out", model, roots=(path.parent,))) as client:
        tile = f"/v1/slides/{only_slide(client)['id']}/tiles/slide/0/0_0.jpg"
        assert client.get(tile).status_code == 200
        sound = path.read_bytes()
        path.write_bytes(slide_bytes(random))
        answer = client.get(tile)
        assert (answer.status_code, answer.json()["error"]["hint"]) == (404, "put it back")
        path.write_bytes(sound)
        assert client.get(tile).status_code == 200


def test_files_go_before_the_database_has_to_write(tmp_path, model, random, monkeypatch):
    with serving(settings_of(tmp_path / "out", model)) as client:
        key, other = uploaded(client, random), uploaded(client, random)
        state = client.app_state
        results = state.folder(state.store.get(key))
        results.mkdir()
        (results / "mask.ome.tif").write_bytes(b"x")
        uploads = state.settings.hidden / UPLOADS

        def only_with_room(work):
            def wrapped(*values):
                if (uploads / key).exists() or results.exists():
                    raise full_database()
                return work(*values)

            return wrapped

        for name in ("stop", "forget", "ask"):
            monkeypatch.setattr(state.store, name, only_with_room(getattr(state.store, name)))
        assert client.delete(f"/v1/slides/{key}").status_code == 204
        assert only_slide(client)["id"] == other
        assert [path.name for path in uploads.iterdir()] == [other]
