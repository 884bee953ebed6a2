import json
import subprocess
import sys

import pytest

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.io import sha256_of
from ntrm.models.folders import CONFIG, WEIGHTS, local_folder, locate, read_model


def test_a_folder_is_judged_without_torch():
    code = (
        "import sys\n"
        "from ntrm.models.folders import local_folder, read_model\n"
        "config, weights, _ = read_model(local_folder('bundled'))\n"
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
        locate("owner/name")


def test_the_bundled_weights_are_those_that_its_config_names():
    folder = local_folder("bundled")
    config, weights, _ = read_model(folder)
    assert sha256_of(weights) == json.loads((folder / CONFIG).read_text())["weights_sha256"]
    config.check_mpp()
