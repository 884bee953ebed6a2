import hashlib
import json
from importlib.util import find_spec

import pytest
import torch
from tests.helpers import Convolution
from tests.training.small_data import SETTINGS, Tiny, write_small
from typer.testing import CliRunner

from ntrm.cli.main import app
from ntrm.familiarity.loaded_model import open_subject
from ntrm.models.registry import ARCHITECTURES, create, load

runner = CliRunner()


@pytest.fixture
def data(tmp_path, random, monkeypatch):
    monkeypatch.setitem(ARCHITECTURES, "tiny", Tiny)
    return write_small(tmp_path / "data", random)


@pytest.fixture
def train(data, tmp_path):
    def run(*more, steps=12):
        changes = [word for key, value in {**SETTINGS, "steps": steps}.items() for word in ("--set", f"{key}={value}")]
        words = ["--arch", "tiny", "--data", str(data), "--out", str(tmp_path / "run"), "--device", "cpu"]
        return runner.invoke(app, ["train", *words, *changes, *more])

    return run


def test_json_is_the_result_and_notes_go_elsewhere(train, tmp_path):
    result = train("--json", "--seed", "4", "--name", "first", "--option", "coarse=false")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["provenance"]["finished"]
    assert document["model"] == str(tmp_path / "run" / "model")
    assert (document["provenance"]["seed"], document["provenance"]["options"]) == (4, {"coarse": False})
    assert document["provenance"]["recipe"]["batch"] == 2
    assert result.stderr.count("validation loss") == 6
    network = load(document["model"])
    assert network.config.name == "first"


def test_people_read_the_scores_and_a_folder_in_use_is_refused(train):
    result = train("--quiet", steps=2)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    assert all(text in result.stdout for text in ("2 steps", "iou 0.", "run/model"))
    again = train(steps=2)
    assert (again.exit_code, "--resume" in again.stderr) == (3, True)
    other = train("--resume", steps=4)
    assert (other.exit_code, "recipe.steps 4" in other.stderr) == (3, True)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--recipe", "quick"], 2, "paper, fast, robust, finetune"),
        (["--trust", "nobody"], 2, "--trust nobody"),
        (["--slides", "nowhere"], 2, "--corrections RESULTS"),
        (["--set", "batch"], 2, "key=value"),
        (["--option", "width=2"], 2, "width"),
        (["--sections", "99"], 2, "1 to 2"),
        (["--device", "abacus"], 2, "cuda"),
    ],
)
def test_wrong_usage_is_told(train, tmp_path, words, code, said):
    result = train(*words)
    assert result.exit_code == code, result.output
    assert said in result.stderr
    assert not (tmp_path / "run").exists()


with_onnx = pytest.mark.skipif(
    not (find_spec("onnxruntime") and find_spec("onnxscript")), reason="extra export is not installed"
)


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setitem(ARCHITECTURES, "small", Convolution)
    create("small", 4).save_pretrained(tmp_path / "model", dtype=torch.float16)
    return tmp_path / "model"


@with_onnx
def test_an_export_tells_where_the_file_is_and_how_close(model, tmp_path):
    path = tmp_path / "network.onnx"
    words = ["export", "--model", str(model), "--onnx", str(path)]
    result = runner.invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["path"], document["agreement"]) == (str(path), 1)
    file = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    # What results and evaluations say, of the folder and of a network in memory.
    assert document["model_sha256"] == file == open_subject(model).sha256 == open_subject(load(model)).sha256
    said = runner.invoke(app, words).stdout
    assert "(B, 3, 256, 256) → final" in said
    assert "100.00% of the pixels agree" in said
