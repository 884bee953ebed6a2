import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.models.empty_hub import EmptyHub

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.io import sha256_of
from ntrm.models import folders
from ntrm.models.folders import CONFIG, WEIGHTS, local_folder, read_model

with_client = pytest.mark.skipif(find_spec("huggingface_hub") is None, reason="no hub client")


def test_a_folder_is_judged_without_torch():
    code = (
        "import sys\n"
        "from ntrm.models.folders import local_folder, read_model\n"
        "config, weights = read_model(local_folder('bundled'))\n"
        "print(config.mpp, weights.name, 'torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["6.7", WEIGHTS, "False"]


def test_what_is_no_folder_is_a_hub_id_or_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for wrong in ("nope", "models/nope", "./a/b", "/nowhere/model", "a/b/c"):
        with pytest.raises(UsageError, match="no such model"):
            local_folder(wrong)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="no such model"):
        local_folder("file")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(RefusedError, match=r"ntrm\[hub\]"):
        local_folder("owner/name")


@with_client
def test_a_hub_id_is_not_asked_for_here():
    assert local_folder("owner/name") is None


def test_the_bundled_weights_are_those_that_its_config_names():
    folder = local_folder("bundled")
    config, weights = read_model(folder)
    assert sha256_of(weights) == json.loads((folder / CONFIG).read_text())["weights_sha256"]
    config.check_mpp()


# --- a hub on this machine ---

ASK = """
import json, sys
from ntrm.core.errors import RefusedError
from ntrm.models import folders

folders.SILENCE_S = float(sys.argv[1])
for name in sys.argv[2:]:
    try:
        print(json.dumps({"folder": str(folders.locate(name))}))
    except RefusedError as error:
        print(json.dumps({"what": error.what, "got": error.got, "hint": error.hint}))
"""


def asked(home, port, seconds, *names, **more):
    """What became of models of a hub, by a process of its own: where a hub lies is read when its client is imported."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_") and "proxy" not in key.lower()}
    environment = {**kept, "HF_HOME": str(home), "HF_ENDPOINT": f"http://me:secret@127.0.0.1:{port}", **more}
    command = [sys.executable, "-c", ASK, str(seconds), *names]
    # Far less than the client alone would wait, and enough for any machine.
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def home(tmp_path):
    """A cache of the hub's client that holds one model."""
    model = tmp_path / "home" / "hub" / "models--some--model"
    shutil.copytree(local_folder("bundled"), model / "snapshots" / ("0" * 40))
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("0" * 40)
    return tmp_path / "home"


@with_client
def test_a_silent_hub_is_given_up_and_what_was_fetched_before_still_loads(home):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        there, missing = asked(home, port, 0.5, "some/model", "some/other")
    config, _ = read_model(Path(there["folder"]))
    assert config.mpp == 6.7
    assert missing["what"] == "no folder some/other here, and the hub does not answer"
    assert missing["got"] == f"nothing from http://127.0.0.1:{port} in 0.5 s, and no copy of an earlier download"
    assert "HF_ENDPOINT" in missing["hint"]


@with_client
def test_a_hub_that_answers_is_left_to_its_client_and_one_that_is_off_limits_is_not_asked(home):
    with EmptyHub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (missing,) = asked(home, server.server_port, 120, "some/other")
        assert server.asked[0] == "HEAD /api/models/some/other"
        assert any(request.startswith("GET /api/models/some/other") for request in server.asked)
        server.asked.clear()
        there, offline = asked(home, server.server_port, 120, "some/model", "some/other", HF_HUB_OFFLINE="1")
        assert server.asked == []
        server.shutdown()
    assert missing["got"].startswith("RepositoryNotFoundError")
    assert there["folder"].endswith("0" * 40)
    assert "cannot be fetched from the hub" in offline["what"]


@with_client
def test_nobody_there_is_not_silence(home):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    there, missing = asked(home, port, 120, "some/model", "some/other")
    assert there["folder"].endswith("0" * 40)
    assert "cannot be fetched from the hub" in missing["what"]
    assert "local folder" in missing["hint"]
    # Addresses that nobody could ask are the client's to refuse.
    assert not any(folders._is_silent(wrong, "some/model") for wrong in ("ftp://127.0.0.1", "http://a:b@", "here"))
