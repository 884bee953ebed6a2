"""The files of corrected masks: made soon, by a process beside the others, also after a kill."""

import shutil

import numpy as np
import pytest
import tifffile
from tests.evaluation.small import NAMES
from tests.helpers import wait_for
from tests.service.small import only_slide, serving, settings_of

from ntrm.correct.log import read_log
from ntrm.correct.results import is_current
from ntrm.service.api import routes_corrections

pytestmark = pytest.mark.usefixtures("quick_readers")
SCC = NAMES.index("SCC")
AREA = {"action": "draw", "kind": "area", "points": [[40, 100], [60, 100], [60, 120], [40, 120]], "tissue": "SCC"}


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Nobody waits for further steps."""
    monkeypatch.setattr(routes_corrections, "REST_SECONDS", 0.0)


@pytest.fixture
def settings(tmp_path, results, model):
    return settings_of(tmp_path / "out", model, roots=(results[0].parent,))


def draw(client, version=0):
    url = f"/v1/slides/{only_slide(client)['id']}"
    answer = client.post(f"{url}/corrections", json={**AREA, "version": version})
    assert answer.status_code == 201, answer.text
    return url


def ready(client, url):
    wait_for("the corrected files", lambda: client.get(f"{url}/corrections").json()["corrected"])


def test_files_of_the_corrected_mask_and_the_tables_follow_each_step(tmp_path, settings, results):
    _, mask = results
    folder = tmp_path / "out" / "a" / "corrected"
    with serving(settings) as client:
        url = draw(client)
        ready(client, url)
        expected = mask.copy()
        expected[100:120, 40:60] = SCC
        np.testing.assert_array_equal(tifffile.imread(folder / "mask.ome.tif"), expected + 1)
        summary = client.get(f"{url}/corrected/summary").json()
        assert (summary["corrected"]["steps"], summary["corrected"]["regions"]) == (1, 1)
        kinds = {"graph": "application/json", "regions.geojson": "application/geo+json", "mask": "image/tiff"}
        for name, kind in {**kinds, "report": "text/html; charset=utf-8", "overlay.png": "image/png"}.items():
            answer = client.get(f"{url}/corrected/{name}")
            assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
        named = client.get(f"{url}/corrected/mask").headers["content-disposition"]
        assert 'filename="a-corrected-mask.ome.tif"' in named
        report = client.get(f"{url}/corrected/report", params={"download": True})
        assert "sandbox" in report.headers["content-security-policy"]
        assert 'filename="a-corrected-report.html"' in report.headers["content-disposition"]
        assert '<a href="../report.html">What the network said</a>' in (folder / "report.html").read_text()
        # What the network said stays as it was.
        np.testing.assert_array_equal(tifffile.imread(folder.parent / "mask.ome.tif"), mask + 1)
        table = tmp_path / "out" / "slides.csv"
        wait_for("the tables", lambda: "corrected_parts" in table.read_text())
        client.post(f"{url}/corrections", json={"version": 1, "action": "undo"})
        wait_for("the files to go", lambda: not folder.exists())
        ready(client, url)
        answer = client.get(f"{url}/corrected/mask")
        assert (answer.status_code, answer.json()["error"]["hint"]) == (404, "correct the slide first")


def test_what_a_killed_service_left_undone_is_made_at_the_next_start_or_request(tmp_path, settings, monkeypatch):
    folder = tmp_path / "out" / "a"
    with serving(settings) as client:
        with monkeypatch.context() as deaf:
            deaf.setattr(client.app_state.store, "ask", lambda *_: None)
            deaf.setattr(client.app_state.store, "ask_again", lambda *_: None)
            url = draw(client)
            answer = client.get(f"{url}/corrected/summary")
        assert (answer.status_code, "being made" in answer.json()["error"]["hint"]) == (404, True)
    with serving(settings) as client:
        wait_for("the start to make them", lambda: is_current(folder, read_log(folder)))
        wait_for("the end of the job", lambda: not client.app_state.store.running())
        shutil.rmtree(folder / "corrected")
        assert client.get(f"{url}/corrected/summary").status_code == 404
        wait_for("the request to make them", lambda: is_current(folder, read_log(folder)))


def test_people_are_told_why_the_files_cannot_be_made(tmp_path, settings):
    (tmp_path / "out" / "a" / "slide.jpg").write_bytes(b"no picture")
    with serving(settings) as client:
        url = draw(client)
        wait_for("the failure", lambda: client.get(f"{url}/corrections").json()["corrected_reason"])
        document = client.get(f"{url}/corrections").json()
        assert (document["corrected"], document["version"]) == (False, 1)
        assert "cannot read slide.jpg" in document["corrected_reason"]
        assert str(tmp_path) not in document["corrected_reason"]
        answer = client.get(f"{url}/corrected/report")
        assert (answer.status_code, answer.json()["error"]["hint"]) == (404, document["corrected_reason"])
        # It is tried again, but not at once.
        assert client.app_state.store.job(url.rsplit("/", 1)[1], "correct").status == "queued"
