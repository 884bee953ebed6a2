"""What a service is told of its model before it begins; a hub is a server of this machine, or not there at all."""

import json
import shutil
import threading
from importlib.util import find_spec

import pytest
from tests.models.empty_hub import EmptyHub
from typer.testing import CliRunner

from ntrm.cli.main import app
from ntrm.models.folders import CONFIG

with_client = pytest.mark.skipif(find_spec("huggingface_hub") is None, reason="no hub client")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The environment of a hub's client with a cache of its own; a function that says where the hub is."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def lies_at(port):
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")

    return lies_at


def unknown(model, folder, arch="ntrm-of-tomorrow"):
    """A copy of a model whose config names another architecture."""
    shutil.copytree(model, folder)
    config = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**config, "arch": arch}))
    return folder


def test_an_unknown_architecture_ends_the_service_as_it_ends_other_commands(tmp_path, model):
    folder = unknown(model, tmp_path / "model")
    words = ["serve", str(tmp_path / "out"), "--port", "0", "--no-open", "--model", str(folder), "--json"]
    done = CliRunner().invoke(app, words, env={"NTRM_TOKEN": ""})
    (tmp_path / "slide.tif").touch()
    words = ["segment", str(tmp_path / "slide.tif"), "--out", str(tmp_path / "out"), "--model", str(folder), "--json"]
    other = CliRunner().invoke(app, words)
    assert (done.exit_code, json.loads(done.stdout)) == (other.exit_code, json.loads(other.stdout))
    error = json.loads(done.stdout)["error"]
    assert (done.exit_code, error["what"], error["got"]) == (2, "unknown architecture", "ntrm-of-tomorrow")
    assert "ntrm-control" in error["expected"]
    assert not (tmp_path / "out" / ".service").exists()


@with_client
def test_a_hub_id_that_does_not_exist_ends_the_service(tmp_path, hub):
    with EmptyHub() as server:
        hub(server.server_port)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = ["serve", str(tmp_path / "out"), "--port", "0", "--no-open", "--model", "nobody/nothing", "--json"]
        done = CliRunner().invoke(app, words, env={"NTRM_TOKEN": ""})
        server.shutdown()
    error = json.loads(done.stdout)["error"]
    assert done.exit_code == 3
    assert error["what"] == "no folder nobody/nothing here, and it cannot be fetched from the hub"
    assert "check the name" in error["hint"]
    assert not (tmp_path / "out").exists()
