import json
import socket

import pytest
from typer.testing import CliRunner

from ntrm.cli.app import app
from ntrm.reproduction.locks import holding

pytest.importorskip("fastapi")


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
    assert serve(tmp_path / "out", "--public-url", "slides").exit_code == 2
    assert serve(tmp_path / "out", NTRM_TOKEN="short").exit_code == 3


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
    assert "chmod 600" in json.loads(done.stdout)["error"]["mend"]
    assert "0123456789abcdef" not in done.output
    assert serve(tmp_path / "out", "--token-file", tmp_path / "none").exit_code == 1
