"""Model folders: what was saved comes back, and anything broken, swapped or hostile is refused without running it."""

import copy
import hashlib
import json
import pickle
import shutil
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.helpers import Trap

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.io import sha256_of
from ntrm.core.labels import SKIN
from ntrm.models.folders import CARD, CONFIG, MOST_CONFIG_BYTES, WEIGHTS, local_folder, locate
from ntrm.models.registry import create, load
from ntrm.models.weights import weights_digest

OPTIONS = {"width": 0.125, "dim": 8, "layers": 1}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A small network in its folder; tests work on copies."""
    folder = tmp_path_factory.mktemp("model")
    create("ntrm-paper", 4, **OPTIONS).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    for name in (CONFIG, WEIGHTS, CARD):
        (tmp_path / name).write_bytes((saved / name).read_bytes())
    return tmp_path


def change_config(folder, **changes):
    document = json.loads((folder / CONFIG).read_text())
    (folder / CONFIG).write_text(json.dumps({**document, **changes}))


def change_weights(folder, change):
    """Rewrite the weights as ``change`` leaves them, with a config that names the new file."""
    state = load_file(folder / WEIGHTS)
    change(state)
    save_file(state, folder / WEIGHTS)
    change_config(folder, weights_sha256=sha256_of(folder / WEIGHTS))


def replace_weights(folder, content):
    (folder / WEIGHTS).write_bytes(content)
    change_config(folder, weights_sha256=sha256_of(folder / WEIGHTS))


def test_everything_that_describes_the_network_comes_back(tmp_path):
    described = {"mpp": 3.35, "window": 512, "name": "skin", "version": "1.2", "licence": "MIT", "data": "abc"}
    network = create("ntrm-control", SKIN, width=0.125)
    network.describe(**described, temperature=1.5, mean=(0.1, 0.2, 0.3), trained_on=("0a", "1b"))
    network.save_pretrained(tmp_path)
    assert load(tmp_path).config == network.config


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_loaded_network_has_the_digest_of_its_file_until_its_weights_change(folder, tmp_path, dtype):
    whole = load(folder)
    whole.save_pretrained(tmp_path / "other", dtype=dtype)
    network, path = load(tmp_path / "other"), tmp_path / "other" / WEIGHTS
    assert (path.stat().st_size < 0.7 * (folder / WEIGHTS).stat().st_size) == (dtype != torch.float32)
    for key, value in whole.state_dict().items():
        assert network.state_dict()[key].dtype == value.dtype
        torch.testing.assert_close(network.state_dict()[key], value, rtol=1e-2, atol=1e-6)
    file = hashlib.sha256(path.read_bytes()).hexdigest()
    assert weights_digest(network) == weights_digest(copy.deepcopy(network)) == file
    with torch.no_grad():
        next(network.parameters()).add_(1)
    assert weights_digest(network) == network.save_pretrained(tmp_path / "changed") != file


BROKEN_WEIGHTS = {
    "missing key": (lambda state: state.pop("classify.bias"), r"missing \['classify.bias'\]"),
    "extra key": (lambda state: state.update(trojan=torch.zeros(3)), r"unknown \['trojan'\]"),
    "other shape": (lambda state: state.update({"classify.bias": torch.zeros(5)}), r"classify.bias \(5,\)"),
    "not a number": (lambda state: state["classify.bias"].fill_(torch.nan), "no numbers"),
    "infinite": (lambda state: state["classify.bias"].fill_(torch.inf), "no numbers"),
    "complex": (lambda state: state.update({"classify.bias": torch.ones(4).to(torch.complex64)}), r"classify\.bias"),
    "bytes": (lambda state: state.update({"classify.bias": torch.ones(4).to(torch.float8_e4m3fn)}), r"classify\.bias"),
}


@pytest.mark.parametrize("case", BROKEN_WEIGHTS)
def test_weights_that_do_not_fit_are_refused(folder, case):
    change, words = BROKEN_WEIGHTS[case]
    change_weights(folder, change)
    with pytest.raises(DataError, match=words):
        load(folder)


def test_a_pickle_in_disguise_is_not_run_and_missing_files_and_weights_of_another_network_are_named(folder, tmp_path):
    whole, sprung = (folder / WEIGHTS).read_bytes(), tmp_path / "sprung"
    replace_weights(folder, pickle.dumps(Trap(sprung)))
    with pytest.raises(DataError, match="cannot read weights"):
        load(folder)
    assert not sprung.exists()
    (folder / WEIGHTS).write_bytes(whole)
    with pytest.raises(RefusedError, match="sha256"):
        load(folder)
    for name, words in ((WEIGHTS, "no weights"), (CONFIG, r"no config\.json")):
        (folder / name).unlink()
        with pytest.raises(DataError, match=words):
            load(folder)


IMPOSSIBLE = [
    {"hook": "run.py"}, {"arch": "os.system"}, {"classes": []}, {"classes": "abcd"}, {"background": "sky"},
    {"classes": [{"name": "a", "title": "", "rgb": [k, 0, 0]} for k in range(4)]},
    {"classes": [{"name": "a", "title": "", "rgb": [float("inf"), 0, 0]}]}, {"mpp": -1}, {"mpp": 10**400},
    {"window": float("inf")}, {"mean": [0.5, 0.5]}, {"options": "width"},
]  # fmt: skip
HOSTILE = [
    {"callback": "print"}, {"encoder": {"name": "resnet18"}}, {"encoder": "timm:hf-hub:evil/x", "width": 1.0},
    {"encoder": "timm:../../evil", "width": 1.0}, {"encoder": 18}, {"width": "0.125"}, {"width": None},
    {"width": float("inf")}, {"dim": 8.5}, {"layers": "1"}, {"boundary": "on"}, {"classes": 4}, {"name": "ntrm"},
    {"weights": "evil/x"}, {"dim": 10**9}, {"width": 4, "dim": 4096, "layers": 64},
]  # fmt: skip


@pytest.mark.parametrize("change", [*IMPOSSIBLE, *({"options": OPTIONS | options} for options in HOSTILE)], ids=str)
def test_impossible_fields_and_hostile_options_are_refused(folder, change):
    change_config(folder, **change)
    with pytest.raises(NtrmError):
        load(folder)


@pytest.mark.parametrize(
    "text",
    ["arch = ntrm", "", "[]", "[" * 100_000, "9" * 10_000, '{"format": "other/7"}', "{}", '{"format": "ntrm-model/1"}',
     json.dumps({"format": "ntrm-model/1", "name": "x" * MOST_CONFIG_BYTES})],
    ids=lambda text: text[:9],
)  # fmt: skip
def test_a_foreign_config_is_refused(folder, text):
    (folder / CONFIG).write_text(text)
    with pytest.raises(DataError, match=CONFIG):
        load(folder)


def test_a_hub_id_fetches_the_files_of_a_model_at_the_revision(folder, monkeypatch):
    hub = pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")
    asked = {}

    def download(name, **options):
        asked.update(name=name, **options)
        return str(folder)

    monkeypatch.setattr(hub, "snapshot_download", download)
    assert load("owner/name", revision="v1").config.classes == 4
    wanted = [CONFIG, WEIGHTS, CARD, "reference.json", "reference.safetensors"]
    assert asked == {"name": "owner/name", "revision": "v1", "allow_patterns": wanted}

    def refuse(*_, **__):
        raise hub.errors.LocalEntryNotFoundError("nobody knows it")

    monkeypatch.setattr(hub, "snapshot_download", refuse)
    with pytest.raises(RefusedError, match="no folder nobody/nothing here, and it cannot be fetched from the hub"):
        locate("nobody/nothing")


def test_a_folder_is_judged_without_torch():
    code = (
        "import sys\n"
        "from ntrm.models.folders import local_folder, read_model\n"
        "config, weights, _ = read_model(local_folder('bundled'))\n"
        "print(config.mpp, weights.name, 'torch' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["6.7", WEIGHTS, "False"]


def test_what_is_no_folder_is_a_hub_id_or_refused(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, tmp_path / "run" / "model", ignore=shutil.ignore_patterns("run"))
    for wrong in ("nope", "run/modle", "./a/b", "/nowhere/model", "a/b/c"):
        with pytest.raises(UsageError, match="no such model"):
            local_folder(wrong)
    with pytest.raises(DataError, match="no such model"):
        local_folder(CARD)
    with pytest.raises(UsageError, match=r"no such model\n.*run/modle"):
        load("run/modle")  # a mistake in a path is not asked of the hub
    with pytest.raises(DataError, match=r"holds no model\n(.|\n)*give run/model"):
        load("run")
    assert load("run/model").config.classes == 4
    with pytest.raises(RefusedError, match=r"ntrm\[hub\]"):
        locate("owner/name")
