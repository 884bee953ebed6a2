import json
import os
import socket
import webbrowser
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
from typer.testing import CliRunner

from ntrm.cli import tour as tour_module
from ntrm.cli.main import app
from ntrm.core.io import holding

pytest.importorskip("fastapi")
service_module = pytest.importorskip("ntrm.service.serve", reason="the extra serve is not installed")


SECRET = "0123456789abcdef0123"
WRONG_URLS = ("slides", "http://[::1", "ftp://a", "https://a/b", "https://", "https://user@a")


def serve(*arguments, **environment):
    return CliRunner().invoke(app, ["serve", *map(str, arguments), "--no-open"], env={"NTRM_TOKEN": "", **environment})


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["photos"], 3, "holds no results"),
        (["out", "--root", "nowhere"], 2, "nowhere"),
        *((["out", "--public-url", url], 2, "") for url in WRONG_URLS),
        (["file", "--port", 0], 2, "not a folder"),
        (["out", "--port", 0, "--model", "photos"], 1, "photos holds no model"),
        (["out", "--token-file", "none"], 1, "cannot read the token"),
        (["out", "--token-file", "token"], 3, "chmod 600"),
    ],
)
def test_what_cannot_be_served_is_refused_before_anything_begins(tmp_path, monkeypatch, words, code, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    for name, text in (("photos/holiday.jpg", "x"), ("file", ""), ("token", f"{SECRET}\n")):
        (tmp_path / name).write_text(text)
    done = serve(*words, "--json")
    assert (done.exit_code, said in done.stdout, SECRET in done.output) == (code, True, False), done.output
    assert [*tmp_path.rglob(".service")] == []


def test_a_folder_and_a_port_have_one_service_at_a_time(tmp_path):
    with holding(tmp_path / "out" / ".service" / "server.lock"):
        done = serve(tmp_path / "out", "--port", 0)
    assert (done.exit_code, "another process" in done.output) == (3, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = serve(tmp_path / "out", "--port", taken.getsockname()[1])
    assert (done.exit_code, "cannot listen" in done.output) == (2, True)
    done = serve(tmp_path / "out", "--port", 0, "--host", "192.0.2.1")  # of no machine at all
    assert (done.exit_code, "--host" in done.output) == (2, True)


def test_a_token_of_the_environment_is_taken_out_of_it_and_one_that_can_be_guessed_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("NTRM_TOKEN", "short")
    done = CliRunner().invoke(app, ["serve", str(tmp_path / "out")])
    assert (done.exit_code, "easy to guess" in done.output) == (3, True)
    assert "NTRM_TOKEN" not in os.environ


def test_the_link_stands_in_no_argument_of_the_browser(tmp_path, monkeypatch):
    seen = []

    def browse(address):
        path = Path(url2pathname(urlsplit(address).path))
        seen.append((address, path, path.stat().st_mode & 0o777, path.read_text()))

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", browse)
    monkeypatch.setattr(service_module, "serve", lambda settings, opened: opened("http://127.0.0.1:1", "/open/once"))
    assert CliRunner().invoke(app, ["serve", str(tmp_path / "my out")]).exit_code == 0
    ((address, path, mode, page),) = seen
    assert "once" not in address
    assert (mode, "http://127.0.0.1:1/open/once" in page) == (0o600, True)
    assert not path.exists()


def test_the_demo_ends_in_the_viewer_but_not_for_programs(tmp_path, monkeypatch):
    (tmp_path / "demo" / "phantom").mkdir(parents=True)
    (tmp_path / "demo" / "foreign").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tour_module, "tour", lambda *_, **__: ({"sections": 3}, ["3 sections"]))
    monkeypatch.setattr(service_module, "serve", lambda settings, opened: opened("http://127.0.0.1:1", "/?once=1"))
    assert json.loads(CliRunner().invoke(app, ["demo", "--serve", "--json"]).stdout) == {"sections": 3}
    for words, served in (["--serve"], True), (["--no-serve"], False):
        printed = CliRunner().invoke(app, ["demo", *words]).stdout
        assert ("3 sections" in printed, "/?once=1" in printed) == (True, served)
