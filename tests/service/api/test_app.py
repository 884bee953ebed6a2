import subprocess
import sys

import pytest
from tests.service.small import TOKEN, serving, settings_of, slide_bytes

from ntrm.core.labels import SAFE_COLOURS
from ntrm.version import __version__

pytestmark = pytest.mark.usefixtures("quick_readers")


WEB = """
import sys, time
from pathlib import Path
from starlette.testclient import TestClient
from ntrm.service.api.app import create_app
from ntrm.service.core.settings import ServiceLimits, ServiceSettings
import ntrm.service.serve

out, root, upload, token = sys.argv[1:]
limits = ServiceLimits(reserve_bytes=0)
settings = ServiceSettings(out=Path(out), roots=(Path(root),), token=token, workers=0, limits=limits)
headers = {"Authorization": f"Bearer {token}"}
with TestClient(create_app(settings), base_url="http://127.0.0.1:8765", headers=headers) as client:
    until = time.monotonic() + 240
    while not (slide := client.get("/v1/slides").json()["slides"][0])["has_image"] and time.monotonic() < until:
        time.sleep(0.05)
    place = f"/v1/slides/{slide['id']}"
    asked = ("/tiles/tissue/0/0_0.png", "/tiles/slide/0/0_0.jpg", "/at?x=5&y=5", "/thumbnail.jpg", "/graph", "/tiles")
    asked += ("/corrections", "/corrections/part?x=60&y=100&whole_region=true", "/tiles/corrected/0/0_0.png")
    print([slide["has_image"], *(client.get(place + path).status_code for path in asked)])
    kind = {"Content-Type": "application/octet-stream"}
    print(client.post("/v1/slides", content=Path(upload).read_bytes(), headers=kind).json()["error"]["code"])
print([name for name in ("torch", "torchvision") if name in sys.modules])
"""


def test_the_web_process_never_loads_what_only_the_worker_needs(tmp_path, results, random):
    path, _ = results
    upload = tmp_path / "upload.tif"
    upload.write_bytes(slide_bytes(random, mpp=None))
    command = [sys.executable, "-c", WEB, tmp_path / "out", path.parent, upload, TOKEN]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [str([True] + [200] * 9), "mpp_missing", "[]"]


def test_the_service_tells_about_itself_and_its_model(tmp_path, model):
    with serving(settings_of(tmp_path / "out", model)) as client:
        about = client.get("/v1/about").json()
    assert (about["program"], about["version"], about["worker"]) == ("ntrm", __version__, "off")
    assert [(item["name"], item["background"]) for item in about["classes"]] == [
        ("EPI", False), ("RET", False), ("BKG", True), ("SCC", False),
    ]  # fmt: skip
    assert about["classes"][0]["colour"] == "#5a1478"
    assert about["classes"][1]["safe_colour"] == "#{:02x}{:02x}{:02x}".format(*SAFE_COLOURS[1])
    assert about["notice"] == "For research, not for diagnosis."
    assert about["limits"]["upload_bytes"] == 20 * 2**30
    assert about["queue"] == {"queued": 0, "running": 0, "done": 0, "failed": 0, "cancelled": 0}
    assert about["server_paths"] is False
    with serving(settings_of(tmp_path / "new", "bundled")) as client:
        about = client.get("/v1/about").json()
    assert (len(about["classes"]), "synthetic" in about["notice"]) == (12, True)


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
