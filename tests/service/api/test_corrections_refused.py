"""Corrections that are refused: impossible ones, too large ones, on a full disk, of strangers."""

import errno
import json

import pytest
from tests.service.correcting import SCC, click, middle_of
from tests.service.small import error_of, slide_bytes, upload

from ntrm.service.jobs import catalogue
from ntrm.service.jobs.rows import NETWORK

pytestmark = pytest.mark.usefixtures("quick_readers")


BAD_CLICKS = [
    ({"tissue": "XYZ"}, 400), ({"tissue": ""}, 422), ({"points": []}, 400), ({"points": [[1e6, 5]]}, 400),
    ({"points": [[-1, 5]]}, 400), ({"points": [[float("nan"), 5]]}, 422), ({"points": [[float("inf"), 5]]}, 422),
    ({"points": [[5]]}, 422), ({"points": "everything"}, 422), ({"points": [[5, 5]] * 10_001}, 422),
    ({"lasso": [[5, 5], [9, 9]]}, 422), ({"lasso": [[5000, 5000], [5001, 5000], [5001, 5001]]}, 400),
    ({"lasso": [[0, 0], [100, 180]] * 2000}, 400), ({"version": -1}, 422), ({"version": "0; DROP"}, 422),
    ({"version": None}, 422), ({"reach": 0.1}, 422), ({"reach": float("nan")}, 422), ({"by": "x" * 9}, 422),
    ({"by": "a\nb"}, 400), ({"left_out": [[float("nan"), 0]]}, 422), ({"more": 1}, 422),
]  # fmt: skip
BAD_DRAWINGS = [
    ({"kind": "flood"}, 422), ({"points": []}, 422), ({"points": [[5, 5]]}, 400), ({"kind": "divide"}, 400),
    ({"points": [[-9, -9], [-5, -9], [-5, -5]]}, 400), ({"points": [[0, 0], [130, 190]] * 4000}, 400),
    ({"kind": "brush", "width_um": -1}, 422), ({"kind": "brush", "width_um": float("inf")}, 422),
    ({"kind": "divide", "side": [9999, 0]}, 400), ({"kind": "divide", "side": [0, float("nan")]}, 422),
    ({"tissue": "XYZ"}, 400),
]  # fmt: skip


def test_impossible_clicks_and_drawings_are_refused_and_nothing_is_written(client, url, results):
    sound = click(middle_of(results[1], SCC), whole_regions=True)
    drawn = {"action": "draw", "version": 0, "kind": "area", "points": [[5, 5], [30, 5], [30, 30]], "tissue": "SCC"}
    asked = [(url, {**sound, **wrong}, status) for wrong, status in BAD_CLICKS]
    asked += [(f"{url}/preview", {**sound, **wrong}, status) for wrong, status in BAD_CLICKS if "by" not in wrong]
    asked += [(url, {**drawn, **wrong}, status) for wrong, status in BAD_DRAWINGS]
    for address, body, status in asked:
        answer = client.post(address, content=json.dumps(body), headers={"Content-Type": "application/json"})
        assert error_of(answer) == (status, "usage"), body
    assert client.get(url).json()["version"] == 0


def test_a_body_that_is_too_large_is_not_read_to_its_end(client, url):
    body = b'{"points": [' + b"[1,1]," * 300_000
    assert error_of(client.post(url, content=body)) == (413, "too_large")
    assert error_of(client.post(f"{url}/preview", content=body)) == (413, "too_large")
    assert error_of(client.post(url, content=b"{" * 1000)) == (422, "usage")


def test_a_full_disk_is_told_and_the_log_stays_whole(tmp_path, client, url, results, monkeypatch):
    body = click(middle_of(results[1], SCC), whole_regions=True)
    client.post(url, json=body)
    before = (tmp_path / "out" / "a" / "corrections.jsonl").read_bytes()

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("ntrm.correct.log.os.fsync", full)
        assert error_of(client.post(url, json={"version": 1, "action": "undo"})) == (507, "disk_full")
    assert (tmp_path / "out" / "a" / "corrections.jsonl").read_bytes() == before
    assert client.get(url).json()["version"] == 1
    assert client.post(url, json={"version": 1, "action": "undo"}).status_code == 201


def test_slides_without_results_have_no_corrections(client, random):
    key = upload(client, slide_bytes(random)).json()["id"]
    assert error_of(client.get(f"/v1/slides/{key}/corrections")) == (404, "not_found")
    body = {"action": "name", "version": 0, "points": [[1, 1]], "tissue": "EPI"}
    assert error_of(client.post(f"/v1/slides/{key}/corrections", json=body)) == (404, "not_found")
    assert error_of(client.get(f"/v1/slides/{key}/corrected/mask")) == (404, "not_found")
    assert error_of(client.get(f"/v1/slides/{'0' * 24}/corrections")) == (404, "not_found")


def test_a_log_about_another_mask_is_refused(tmp_path, client, url, results):
    client.post(url, json=click(middle_of(results[1], SCC), whole_regions=True))
    log = tmp_path / "out" / "a" / "corrections.jsonl"
    text = log.read_text()
    log.write_text(text.replace(json.loads(text.splitlines()[0])["mask"], "0" * 64))
    assert error_of(client.get(url)) == (422, "refused")
    assert "another mask" in client.get(url).json()["error"]["what"]
    # What the network said can be looked at all the same.
    assert client.get(url.replace("corrections", "tiles/tissue/0/0_0.png")).status_code == 200
    log.unlink()
    assert client.get(url).json()["version"] == 0


def test_a_slide_whose_region_graph_is_being_made_is_deleted_once_its_worker_has_stopped(
    tmp_path, client, url, monkeypatch
):
    store, key = client.app_state.store, url.split("/")[3]
    # Its worker is one of another service, which this one does not end.
    monkeypatch.setattr(catalogue, "DELETE_SECONDS", 0.1)
    store.ask(key, "prepare")
    job = store.take("w", NETWORK)
    assert error_of(client.delete(url.removesuffix("/corrections"))) == (409, "conflict")
    assert (tmp_path / "out" / "a").exists()
    assert not store.beat(job, 0.5, "making")
    store.end(job, "cancelled")
    assert client.delete(url.removesuffix("/corrections")).status_code == 204
    assert not (tmp_path / "out" / "a").exists()
