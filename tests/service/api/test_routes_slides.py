import json

import pytest
from tests.evaluation.small import MPP
from tests.segment.small import paint, write_slide
from tests.service.small import NOTHING, error_of, files_in, only_slide, serving, settings_of, slide_bytes, upload

from ntrm.results.slide_state import alone
from ntrm.service.core.settings import INCOMING, TRASH, UPLOADS
from ntrm.service.jobs import catalogue
from ntrm.service.jobs.rows import NETWORK

pytestmark = pytest.mark.usefixtures("quick_readers")


@pytest.fixture
def roots(tmp_path, random):
    write_slide(tmp_path / "root" / "sub" / "b.tif", paint(random))
    return tmp_path / "root"


@pytest.fixture
def client(tmp_path, model, roots):
    limits = {"upload_bytes": 200_000, "queue": 5, "uploads": 2, "open_seconds": 60}
    with serving(settings_of(tmp_path / "out", model, roots=(roots,), limits=limits)) as client:
        yield client


def test_an_upload_is_queued_and_kept_for_its_owner_alone(client, random):
    content = slide_bytes(random)
    answer = upload(client, content, name="Slide 7 (é).svs")
    assert answer.status_code == 202
    slide = answer.json()
    assert (slide["status"], slide["name"], slide["queue_position"]) == ("queued", "Slide 7 (é)", 1)
    assert slide["slide_id"].startswith("Slide_7_e-")
    assert (slide["width"], slide["height"], slide["has_image"]) == (120, 90, True)
    assert slide["mpp"] == pytest.approx(MPP, rel=1e-4)
    assert slide["layers"] == ["slide"]
    assert client.get(f"/v1/slides/{slide['id']}").json() == slide
    assert only_slide(client) == slide
    path = client.app_state.settings.hidden / UPLOADS / slide["id"]
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert files_in(client) == {INCOMING: [], UPLOADS: [slide["id"]], TRASH: []}


def test_a_given_name_stands_for_the_file_s_own(client, random):
    slide = upload(client, slide_bytes(random), name="Jane Doe.svs", slide_id="case-7").json()
    assert (slide["slide_id"], slide["name"]) == ("case-7", "case-7")
    assert "Jane" not in json.dumps(client.get("/v1/slides").json())
    assert b"Jane" not in b"".join(path.read_bytes() for path in client.app_state.settings.hidden.glob("*.*"))
    assert error_of(upload(client, slide_bytes(random), slide_id="CASE-7")) == (409, "conflict")
    for wrong in ("../x", "a b", "é", "con", ".", "..", "a" * 101):
        assert upload(client, slide_bytes(random), slide_id=wrong).status_code == 422
    assert len(files_in(client)[UPLOADS]) == 1


def test_equal_file_names_get_different_ids(client, random):
    ids = [upload(client, slide_bytes(random), name="a.tif").json()["slide_id"] for _ in range(3)]
    assert ids == ["a", "a-2", "a-3"]
    # Nor may a slide be called like a file of the results, or like another that lies among them.
    (client.app_state.settings.out / "b").write_text("{}")
    assert upload(client, slide_bytes(random), name="b.tif").json()["slide_id"] == "b-2"
    assert upload(client, slide_bytes(random), name="run.json.tif").json()["slide_id"].startswith("run.json-")


def test_paths_below_a_root_are_taken_and_stay_where_they_are(client, roots):
    for number, path in enumerate(("sub/b.tif", str(roots / "sub" / "b.tif"))):
        answer = client.post("/v1/slides", json={"path": path, "slide_id": f"s{number}"})
        assert answer.status_code == 202
        slide = answer.json()
        assert (slide["slide_id"], slide["status"]) == (f"s{number}", "queued")
        assert client.delete(f"/v1/slides/{slide['id']}").status_code == 204
    assert (roots / "sub" / "b.tif").is_file()
    assert files_in(client) == NOTHING


BODIES = [
    b"", b"{", b"[]", b"null", b'"x"', b"{}", b'{"path": 3}', b'{"path": ""}', b'{"path": "sub/b.tif", "mpp": -1}',
    b'{"path": "sub/b.tif", "mpp": NaN}', b'{"path": "sub/b.tif", "mpp": "x"}', b'{"path": "sub/b.tif", "more": 1}',
    b'{"path": "sub/b.tif", "slide_id": "a/b"}', b"[" * 50_000, b"\xff\xfe", b'{"path": "sub/b.tif", "mpp": 1e400}',
]  # fmt: skip


def test_bodies_that_are_none_and_other_kinds_and_sizes_are_refused(client):
    def sent(body, kind="application/json"):
        return error_of(client.post("/v1/slides", content=body, headers={"Content-Type": kind} if kind else {}))

    for body in BODIES:
        assert sent(body) == (422, "usage"), body
    assert sent(b"x", "text/plain") == sent(b"", None) == (415, "media_type")
    assert sent(json.dumps({"path": "x" * 2**20})) == (413, "too_large")
    content = bytes(200_001)
    for body in (content, (content[n : n + 10_000] for n in range(0, 200_001, 10_000))):
        assert error_of(upload(client, body)) == (413, "too_large")
    assert error_of(client.put("/v1/slides")) == (405, "method")
    assert client.get("/v1/slides").json() == {"slides": []}
    assert files_in(client) == NOTHING


def test_an_upload_without_its_resolution_is_kept_until_it_is_told_and_a_path_is_refused(client, roots, random):
    content = slide_bytes(random, mpp=None)
    answer = upload(client, content, name="a.tif")
    assert error_of(answer) == (422, "mpp_missing")
    assert "µm" in answer.json()["error"]["what"]
    kept = only_slide(client)
    assert kept["id"] == answer.json()["error"]["slide"]
    assert (kept["status"], kept["error"]["code"]) == ("failed", "mpp_missing")
    again = client.post(f"/v1/slides/{kept['id']}/retry", json={"mpp": 0.5})
    assert (again.status_code, again.json()["status"], again.json()["mpp"]) == (200, "queued", 0.5)
    assert error_of(client.post(f"/v1/slides/{kept['id']}/retry", json={})) == (409, "conflict")
    (roots / "c.tif").write_bytes(content)
    assert error_of(client.post("/v1/slides", json={"path": "c.tif"})) == (422, "mpp_missing")
    assert client.post("/v1/slides", json={"path": "c.tif", "mpp": 0.25}).json()["mpp"] == 0.25
    assert upload(client, content, mpp="0.001").status_code == 422


def test_limits_of_pixels_queue_uploads_and_disk(tmp_path, model, random):
    def service(**limits):
        return serving(settings_of(tmp_path / "out", model, limits=limits))

    content = slide_bytes(random)
    with service(pixels=120 * 90 - 1) as client:
        assert error_of(upload(client, content)) == (413, "too_many_pixels")
    with service(reserve_bytes=2**59) as client:
        assert error_of(upload(client, content)) == (507, "disk_full")
    with service(queue=2) as client:
        assert [upload(client, content).status_code for _ in range(3)] == [202, 202, 429]
        assert len(files_in(client)[UPLOADS]) == 2
    with service(uploads=1) as client:
        client.app_state.uploads = 1
        assert error_of(upload(client, content)) == (429, "uploads")
        client.app_state.uploads = 0
        assert upload(client, content).status_code == 202
        assert client.app_state.uploads == 0
        assert files_in(client)[INCOMING] == []


def test_cancel_retry_and_delete(client, random):
    slide = upload(client, slide_bytes(random)).json()
    url = f"/v1/slides/{slide['id']}"
    assert error_of(client.post(f"{url}/retry")) == (409, "conflict")
    assert client.post(f"{url}/cancel").json()["status"] == "cancelled"
    assert client.post(f"{url}/cancel").json()["status"] == "cancelled"
    assert client.post(f"{url}/retry").json()["status"] == "queued"
    answer = client.post(f"{url}/retry", content=b"[1]", headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert client.delete(url).status_code == 204
    for method, path in (("GET", url), ("DELETE", url), ("POST", f"{url}/cancel"), ("POST", f"{url}/retry")):
        assert error_of(client.request(method, path)) == (404, "not_found")
    assert files_in(client) == NOTHING


def test_deleting_removes_results_but_not_under_another_program_or_a_worker(tmp_path, model, results, monkeypatch):
    # The worker is one of another service, which this one does not end.
    monkeypatch.setattr(catalogue, "DELETE_SECONDS", 0.1)
    with serving(settings_of(tmp_path / "out", model, roots=(results[0].parent,))) as client:
        store, key = client.app_state.store, only_slide(client)["id"]
        url = f"/v1/slides/{key}"
        assert client.get(f"{url}/thumbnail.jpg").status_code == 200
        with alone(tmp_path / "out" / "a"):
            assert error_of(client.delete(url)) == (409, "conflict")
        store.ask(key, "prepare")
        job = store.take("w", NETWORK)
        assert error_of(client.delete(url)) == (409, "conflict")
        assert client.get(url).status_code == 200
        assert (tmp_path / "out" / "a").exists()
        assert not store.beat(job, 0.5, "making")
        store.end(job, "cancelled")
        assert client.delete(url).status_code == 204
        assert not (tmp_path / "out" / "a").exists()
    assert results[0].is_file()


def test_the_list_by_status_and_in_order(client, random):
    ids = [upload(client, slide_bytes(random), name=f"{n}.tif").json()["id"] for n in range(3)]
    client.post(f"/v1/slides/{ids[1]}/cancel")
    assert [item["id"] for item in client.get("/v1/slides").json()["slides"]] == ids[::-1]
    queued = client.get("/v1/slides", params={"status": "queued"}).json()["slides"]
    assert [(item["id"], item["queue_position"]) for item in queued] == [(ids[2], 2), (ids[0], 1)]
    assert client.get("/v1/slides", params={"status": "odd"}).status_code == 422
