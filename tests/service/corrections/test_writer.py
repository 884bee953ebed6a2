"""The files of corrected masks: made soon, in a process of its own, also after a kill."""

import json
import shutil
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile
from tests.evaluation.small import NAMES
from tests.helpers import PATIENCE, is_alive, wait_for
from tests.service.small import only_slide, serving, settings_of

from ntrm.core import processes
from ntrm.correction.log import read_log
from ntrm.correction.results import is_current
from ntrm.service.core.watch import Watch
from ntrm.service.corrections import writer
from ntrm.service.corrections.writer import CorrectedWriter

pytestmark = pytest.mark.usefixtures("quick_readers")
SCC, EPI = NAMES.index("SCC"), NAMES.index("EPI")
AREA = {"kind": "area", "points": [[40, 100], [60, 100], [60, 120], [40, 120]], "tissue": "SCC"}


@pytest.fixture
def soon(monkeypatch):
    """Nobody waits for further steps."""
    monkeypatch.setattr(writer, "REST_SECONDS", 0.0)
    monkeypatch.setattr(writer, "TABLE_SECONDS", 0.0)


@pytest.fixture
def settings(tmp_path, results, model):
    return settings_of(tmp_path / "out", model, roots=(results[0].parent,))


def draw(client, version=0):
    url = f"/v1/slides/{only_slide(client)['id']}"
    answer = client.post(f"{url}/corrections/draw", json={**AREA, "version": version})
    assert answer.status_code == 201, answer.text
    return url


def ready(client, url):
    wait_for("the corrected files", lambda: client.get(f"{url}/corrections").json()["corrected"])


@pytest.mark.usefixtures("soon")
def test_files_of_the_corrected_mask_follow_each_step(tmp_path, settings, results):
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
        assert (
            'filename="a-corrected-mask.ome.tif"' in client.get(f"{url}/corrected/mask").headers["content-disposition"]
        )
        report = client.get(f"{url}/corrected/report", params={"download": True})
        assert "sandbox" in report.headers["content-security-policy"]
        assert 'filename="a-corrected-report.html"' in report.headers["content-disposition"]
        # The sandbox has no cookie: a link would lead to a refusal. That of the file works.
        assert ("href=" in report.text, "What the network said: Download › Report." in report.text) == (False, True)
        assert '<a href="../report.html">What the network said</a>' in (folder / "report.html").read_text()
        # What the network said stays as it was.
        np.testing.assert_array_equal(tifffile.imread(folder.parent / "mask.ome.tif"), mask + 1)
        table = tmp_path / "out" / "slides.csv"
        wait_for("the tables", lambda: "corrected_parts" in table.read_text())
        client.post(f"{url}/corrections/undo", json={"version": 1})
        wait_for("the files to go", lambda: not folder.exists())
        assert client.get(f"{url}/corrections").json()["corrected"]
        answer = client.get(f"{url}/corrected/mask")
        assert (answer.status_code, answer.json()["error"]["hint"]) == (404, "correct the slide first")


@pytest.mark.usefixtures("soon")
def test_what_a_killed_service_left_undone_is_made_at_the_next_start_or_request(tmp_path, settings, monkeypatch):
    folder = tmp_path / "out" / "a"
    with monkeypatch.context() as deaf, serving(settings) as client:
        deaf.setattr(client.app_state.corrected, "ask", lambda *_, **__: None)
        url = draw(client)
        answer = client.get(f"{url}/corrected/summary")
        assert (answer.status_code, "being made" in answer.json()["error"]["hint"]) == (404, True)
    with serving(settings) as client:
        wait_for("the start to make them", lambda: is_current(folder, read_log(folder)))
        shutil.rmtree(folder / "corrected")
        assert client.get(f"{url}/corrected/summary").status_code == 404
        wait_for("the request to make them", lambda: is_current(folder, read_log(folder)))


def fake_process(monkeypatch, code):
    """The process that would make the files, replaced by some code; its folder is the argument."""
    monkeypatch.setattr(processes, "module_command", lambda *_: [sys.executable, "-c", code])


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A writer with two folders."""
    monkeypatch.setattr(writer, "REST_SECONDS", 0.05)
    monkeypatch.setattr(writer, "is_current", lambda *_: False)
    made = CorrectedWriter(tmp_path, tmp_path / "log", Watch())
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    yield made, folders
    made.stop()


NOTES = "import os\nfolder = bytes.fromhex(os.read(0, 999).decode().strip())\nopen(folder + b'/done', 'a').write('x')"


def times(folder):
    """How often the files of a folder were made."""
    return len((folder / "done").read_text()) if (folder / "done").exists() else 0


def test_many_steps_in_a_row_are_one_work(monkeypatch, made):
    work, (one, other) = made
    fake_process(monkeypatch, NOTES)
    # Time passes only where this test says so: on a busy machine real steps may come too late to be in a row.
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now, sleep=time.sleep)
    monkeypatch.setattr(writer, "time", clock)
    monkeypatch.setattr(writer, "REST_SECONDS", 0.0)
    work.start(lambda: [other])
    wait_for("the one that was behind", lambda: times(other) == 1)
    monkeypatch.setattr(writer, "REST_SECONDS", 100.0)
    for _ in range(5):
        work.ask(one)
        clock.now += 75
    monkeypatch.setattr(writer, "REST_SECONDS", 0.0)
    # What is asked for last is made after everything that was due before.
    work.ask(other)
    wait_for("the other", lambda: times(other) == 2)
    assert times(one) == 0
    clock.now += 25
    work.ask(other)
    wait_for("both", lambda: times(one) and times(other) == 3)
    assert times(one) == 1


def test_a_failure_is_told_and_tried_again_when_somebody_asks_but_not_at_once(monkeypatch, made, caplog):
    work, (one, other) = made
    fake_process(monkeypatch, NOTES + "\nraise SystemExit(folder.endswith(b'a'))")
    work.start(list)
    work.ask(one)
    wait_for("the failure", lambda: work.failure(one))
    assert "could not be made" in caplog.text
    assert work.failure(one) == "the process that makes them ended"
    work.ask(one, again=True)
    work.ask(other)
    wait_for("the other", lambda: times(other))
    assert times(one) == 1
    assert work.failure(other) is None
    # Another step is another work.
    work.ask(one)
    wait_for("it to be tried again", lambda: times(one) == 2)


def test_a_slide_that_is_deleted_is_left_alone(monkeypatch, made, tmp_path):
    work, (one, other) = made
    fake_process(monkeypatch, NOTES + "\nimport time\nif folder.endswith(b'a'): time.sleep(600)")
    work.start(list)
    work.ask(one)
    wait_for("it to begin", lambda: times(one))
    work.drop(one)
    work.ask(other)
    wait_for("the other", lambda: times(other))
    work.ask(one)
    wait_for("it to begin again", lambda: times(one) == 2)
    work.stop()  # it does not wait for what takes long


def test_the_process_ends_with_the_service(tmp_path, monkeypatch):
    code = "from ntrm.core.processes import end_with_parent; import os, time; os.read(0, 999); end_with_parent(); "
    fake_process(monkeypatch, f"{code}print(flush=True); time.sleep(600)")
    with writer.start(tmp_path, tmp_path / "log") as process:
        assert process.stdout.readline() == b"\n"
        assert is_alive(process.pid)
        process.stdin.close()
        process.wait(timeout=PATIENCE)


def test_the_folder_is_not_an_argument_that_others_could_read(tmp_path):
    with writer.start(tmp_path / "Jane Doe", tmp_path / "log") as process:
        assert "Jane" not in json.dumps(process.args)
        assert process.wait(timeout=PATIENCE) == 1
        assert b"has no summary.json" in process.stdout.read()
    assert "has no summary.json" in (tmp_path / "log").read_text()


@pytest.mark.usefixtures("soon")
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
