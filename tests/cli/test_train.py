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
    def run(*more, steps=2):
        changes = [word for key, value in {**SETTINGS, "steps": steps}.items() for word in ("--set", f"{key}={value}")]
        words = ["--arch", "tiny", "--data", str(data), "--out", str(tmp_path / "run"), "--device", "cpu"]
        return runner.invoke(app, ["train", *words, *changes, *more])

    return run


def test_programs_read_a_document_people_the_scores_and_a_folder_in_use_is_refused(train, tmp_path):
    result = train("--json", "--seed", "4", "--name", "first", "--option", "coarse=false", steps=4)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["provenance"]["finished"]
    assert document["model"] == str(tmp_path / "run" / "model")
    assert (document["provenance"]["seed"], document["provenance"]["options"]) == (4, {"coarse": False})
    assert document["provenance"]["recipe"]["batch"] == 2
    assert result.stderr.count("validation loss") == 2
    assert load(document["model"]).config.name == "first"
    for words, steps, said in (([], 4, "--resume"), (["--resume"], 6, "recipe.steps 6")):
        again = train(*words, steps=steps)
        assert (again.exit_code, said in again.stderr) == (3, True)
    result = train("--quiet", "--out", str(tmp_path / "other"), steps=2)
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    assert all(text in result.stdout for text in ("2 steps", "iou 0.", "other/model"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--recipe", "quick"], "paper, fast, robust, finetune"),
        (["--trust", "nobody"], "--trust nobody"),
        (["--slides", "nowhere"], "--corrections RESULTS"),
        (["--set", "batch"], "key=value"),
        (["--option", "width=2"], "width"),
        (["--sections", "99"], "1 to 2"),
        (["--device", "abacus"], "cuda"),
    ],
)
def test_wrong_usage_is_told(train, tmp_path, words, said):
    result = train(*words)
    assert (result.exit_code, said in result.stderr) == (2, True), result.output
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not (find_spec("onnxruntime") and find_spec("onnxscript")), reason="extra export is not installed")
def test_an_export_tells_where_the_file_is_and_how_close(tmp_path, monkeypatch):
    monkeypatch.setitem(ARCHITECTURES, "small", Convolution)
    model, path = tmp_path / "model", tmp_path / "network.onnx"
    create("small", 4).save_pretrained(model, dtype=torch.float16)
    result = runner.invoke(app, ["export", "--model", str(model), "--onnx", str(path), "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["path"], document["agreement"]) == (str(path), 1)
    file = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    # What results and evaluations say, of the folder and of a network in memory.
    assert document["model_sha256"] == file == open_subject(model).sha256 == open_subject(load(model)).sha256
