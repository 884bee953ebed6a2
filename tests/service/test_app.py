import subprocess
import sys

import pytest
from tests.service.small import only_slide, segmented, serving, settings_of

from ntrm.report.safe_palette import SAFE
from ntrm.version import __version__

pytestmark = pytest.mark.usefixtures("quick_readers")


def test_the_web_process_never_loads_what_only_the_worker_needs():
    code = "import sys, ntrm.service.serve; print([name for name in ('torch', 'lightning') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_about(tmp_path, model):
    with serving(settings_of(tmp_path / "out", model)) as client:
        about = client.get("/v1/about").json()
        assert (about["program"], about["version"], about["worker"]) == ("ntrm", __version__, "off")
        assert [each["name"] for each in about["classes"]] == ["EPI", "RET", "BKG", "SCC"]
        assert [each["background"] for each in about["classes"]] == [False, False, True, False]
        assert about["classes"][0]["colour"] == "#5a1478"
        assert about["classes"][1]["safe_colour"] == "#{:02x}{:02x}{:02x}".format(*SAFE[1])
        assert about["notice"] == "For research, not for diagnosis."
        assert about["limits"]["upload_bytes"] == 20 * 2**30
        assert about["queue"] == {"queued": 0, "running": 0, "done": 0, "failed": 0, "cancelled": 0}
        assert about["server_paths"] is False


def test_the_bundled_model_comes_with_its_warning_and_an_unknown_one_is_waited_for(tmp_path, random):
    with serving(settings_of(tmp_path / "new", "bundled")) as client:
        about = client.get("/v1/about").json()
        assert len(about["classes"]) == 12
        assert "synthetic" in about["notice"]
    segmented(tmp_path, random)
    with serving(settings_of(tmp_path / "out", "owner/on-its-way")) as client:
        about = client.get("/v1/about").json()
        assert (about["model"], about["classes"]) == (None, [])
        tile = f"/v1/slides/{only_slide(client)['id']}/tiles/tissue/0/0_0.png"
        assert client.get(tile).status_code == 503


def test_the_page_and_its_files(tmp_path, model):
    with serving(settings_of(tmp_path / "out", model)) as client:
        page = client.get("/")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        assert client.get("/page/js/api.js").headers["cache-control"] == "no-cache"
        for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py", "/page/none", "/page/"):
            assert client.get(path).status_code in (404, 405)
        assert client.get("/openapi.json").json()["info"]["title"] == "ntrm"
        assert client.get("/docs").status_code == 404
        assert client.get("/favicon.ico").status_code == 204
