import hashlib
import json
import os
import signal
from importlib.util import find_spec

import pytest
import torch
from tests.helpers import Convolution
from tests.training.small_data import SETTINGS, Tiny, write_small
from typer.testing import CliRunner

from ntrm.cli.main import app
from ntrm.familiarity.loaded_model import open_subject
from ntrm.models.hub import load
from ntrm.models.registry import ARCHITECTURES, create

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


def test_people_read_the_scores_and_where_the_model_is(train):
    result = train("--quiet", steps=2)
    assert result.exit_code == 0, result.output
    assert "2 steps" in result.stdout
    assert "iou 0." in result.stdout
    assert "run/model" in "".join(result.stdout.split())
    assert result.stderr == ""


def test_a_folder_in_use_is_refused(train):
    assert train(steps=2).exit_code == 0
    again = train(steps=2)
    assert again.exit_code == 3
    assert "--resume" in again.stderr
    assert train("--resume", steps=2).exit_code == 0
    other = train("--resume", steps=4)
    assert other.exit_code == 3
    assert "recipe.steps 4" in other.stderr


def test_an_interrupted_run_leaves_with_130_and_goes_on(train, tmp_path, monkeypatch):
    forward, state = Tiny.segment, {"calls": 0}

    def signalling(network, x, *, coarse, graph):
        state["calls"] += network.training
        if network.training and state["calls"] == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return forward(network, x, coarse=coarse, graph=graph)

    monkeypatch.setattr(Tiny, "segment", signalling)
    stopped = train("--resume")
    assert stopped.exit_code == 130
    assert "the same command with --resume continues" in stopped.stderr
    gone_on = train("--resume", "--json")
    assert gone_on.exit_code == 0
    assert json.loads(gone_on.stdout)["steps"] == 12


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--recipe", "quick"], 2, "paper, fast, robust, finetune"),
        (["--recipe", "finetune"], 2, "name the model with --init"),
        (["--trust", "nobody"], 2, "--trust nobody"),
        (["--slides", "nowhere"], 2, "--corrections RESULTS"),
        (["--set", "bach=3"], 2, "bach"),
        (["--set", "batch"], 2, "key=value"),
        (["--option", "width=2"], 2, "width"),
        (["--arch", "nothing"], 2, "ntrm-paper"),
        (["--sections", "99"], 2, "1 to 2"),
        (["--device", "abacus"], 2, "cuda"),
        (["--resolution", "10x"], 2, "10x"),
    ],
)
def test_wrong_usage_is_told(train, tmp_path, words, code, said):
    result = train(*words)
    assert result.exit_code == code, result.output
    assert said in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_file_of_weights_that_is_not_there_is_wrong_usage(data, tmp_path):
    words = ["--data", str(data), "--out", str(tmp_path / "run"), "--device", "cpu", "--option", "width=0.125"]
    result = runner.invoke(app, ["train", *words, "--set", "encoder_weights=missing.pth"])
    assert result.exit_code == 2, result.output
    assert "no such weights file\n  got:      missing.pth" in result.stderr


@pytest.mark.parametrize("command", ["train", "reproduce"])
def test_help_says_what_is_asked_of_the_network(command):
    result = runner.invoke(app, [command, "--help"], env={"COLUMNS": "200"})
    assert "downloads ImageNet weights from the hub" in " ".join(result.stdout.split())


def test_help_shows_examples():
    result = runner.invoke(app, ["train", "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for word in ("--recipe paper", "--recipe finetune --init", "torchrun", "--set", "--splits", "--num-devices"):
        assert word in " ".join(result.stdout.split())


FIELDS = {"--lr": "learning_rate", "--batch-size": "batch", "--steps": "steps"}


@pytest.mark.parametrize("asked", FIELDS)
def test_a_field_of_the_recipe_given_as_an_option_is_told_apart(asked):
    result = runner.invoke(app, ["train", "--data", "x", "--out", "y", asked, "3"])
    assert result.exit_code == 2
    assert f"--set {FIELDS[asked]}=VALUE" in " ".join(result.output.split())


with_onnx = pytest.mark.skipif(
    not (find_spec("onnxruntime") and find_spec("onnxscript")), reason="extra export is not installed"
)


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setitem(ARCHITECTURES, "small", Convolution)
    create("small", 4).save_pretrained(tmp_path / "model", dtype=torch.float16)
    return tmp_path / "model"


@with_onnx
def test_json_tells_where_the_file_is_and_how_close(model, tmp_path):
    path = tmp_path / "network.onnx"
    result = runner.invoke(app, ["export", "--model", str(model), "--onnx", str(path), "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["path"] == str(path)
    assert path.is_file()
    assert document["agreement"] == 1
    file = hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()
    # What results and evaluations say, of the folder and of a network in memory.
    assert document["model_sha256"] == file == open_subject(model).sha256 == open_subject(load(model)).sha256


@with_onnx
def test_people_read_input_outputs_and_the_comparison(model, tmp_path):
    result = runner.invoke(app, ["export", "--model", str(model), "--onnx", str(tmp_path / "network.onnx")])
    assert "(B, 3, 256, 256) → final" in result.stdout
    assert "100.00% of the pixels agree" in " ".join(result.stdout.split())


@with_onnx
def test_a_model_that_is_not_there_is_refused(tmp_path):
    result = runner.invoke(app, ["export", "--model", str(tmp_path / "nowhere"), "--onnx", str(tmp_path / "x.onnx")])
    assert result.exit_code == 2
    assert "no such model" in result.stderr
    assert not (tmp_path / "x.onnx").exists()


def test_without_anything_to_learn_from_the_usage_is_wrong(tmp_path):
    result = runner.invoke(app, ["train", "--out", str(tmp_path / "run"), "--device", "cpu"])
    assert result.exit_code == 2
    assert "--data DIR, --corrections RESULTS, or both" in " ".join(result.stderr.split())
    assert not (tmp_path / "run").exists()
