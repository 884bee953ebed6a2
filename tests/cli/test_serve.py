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


def serve(*arguments, **environment):
    return CliRunner().invoke(app, ["serve", *map(str, arguments), "--no-open"], env={"NTRM_TOKEN": "", **environment})


def test_what_cannot_be_served_is_refused_before_anything_begins(tmp_path):
    out = tmp_path / "photos"
    out.mkdir()
    (out / "holiday.jpg").write_bytes(b"x")
    done = serve(out)
    assert done.exit_code == 3
    assert "holds no results" in done.output
    assert not (out / ".service").exists()
    assert serve(tmp_path / "out", "--root", tmp_path / "nowhere").exit_code == 2
    for url in ("slides", "http://[::1", "ftp://a", "https://a/b", "https://", "https://user@a"):
        assert serve(tmp_path / "out", "--public-url", url).exit_code == 2, url
    assert serve(tmp_path / "out", NTRM_TOKEN="short").exit_code == 3


def test_a_file_in_place_of_the_folder_and_an_address_of_another_machine(tmp_path):
    (tmp_path / "file").touch()
    done = serve(tmp_path / "file", "--port", 0)
    assert (done.exit_code, "not a folder" in done.output) == (2, True)
    done = serve(tmp_path / "out", "--port", 0, "--host", "192.0.2.1", "--json")  # of no machine at all
    assert (done.exit_code, "--host" in json.loads(done.stdout)["error"]["hint"]) == (2, True)


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


def test_one_service_at_a_time_in_a_folder(tmp_path):
    with holding(tmp_path / "out" / ".service" / "server.lock"):
        done = serve(tmp_path / "out", "--port", 0)
    assert done.exit_code == 3
    assert "another process" in done.output


def test_a_port_that_is_taken(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = serve(tmp_path / "out", "--port", taken.getsockname()[1])
    assert done.exit_code == 2
    assert "cannot listen" in done.output


def test_token_files(tmp_path):
    path = tmp_path / "token"
    path.write_text("0123456789abcdef0123\n")
    path.chmod(0o644)
    done = serve(tmp_path / "out", "--token-file", path, "--json")
    assert done.exit_code == 3
    assert "chmod 600" in json.loads(done.stdout)["error"]["hint"]
    assert "0123456789abcdef" not in done.output
    assert serve(tmp_path / "out", "--token-file", tmp_path / "none").exit_code == 1


def test_a_token_of_the_environment_is_taken_out_of_it(tmp_path, monkeypatch):
    monkeypatch.setenv("NTRM_TOKEN", "short")
    assert "easy to guess" in CliRunner().invoke(app, ["serve", str(tmp_path / "out")]).output
    assert "NTRM_TOKEN" not in os.environ
