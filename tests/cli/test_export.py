import json

import pytest
import torch
import typer
from typer.testing import CliRunner

from ntrm.cli.export import export
from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.models.registry import ARCHITECTURES, create

pytest.importorskip("onnxruntime", reason="extra export is not installed")
pytest.importorskip("onnxscript", reason="extra export is not installed")

runner = CliRunner()
app = typer.Typer()
app.command()(export)


class Small(SegmentationModel):
    """One convolution, so that the command and not the network is what takes time."""

    def __init__(self, classes):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, classes, 1)

    def segment(self, x, *, coarse, graph):
        return Segmentation(self.conv(x))


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setitem(ARCHITECTURES, "small", Small)
    create("small", 4).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_json_tells_where_the_file_is_and_how_close(model, tmp_path):
    path = tmp_path / "network.onnx"
    result = runner.invoke(app, ["--model", str(model), "--onnx", str(path), "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["path"] == str(path)
    assert path.is_file()
    assert document["agreement"] == 1
    assert document["weights_sha256"] == json.loads((model / "config.json").read_text())["weights_sha256"]


def test_people_read_input_outputs_and_the_comparison(model, tmp_path):
    result = runner.invoke(app, ["--model", str(model), "--onnx", str(tmp_path / "network.onnx")])
    assert "(B, 3, 256, 256) → final" in result.stdout
    assert "100.00% of the pixels agree" in " ".join(result.stdout.split())


def test_a_model_that_is_not_there_is_told(tmp_path):
    result = runner.invoke(app, ["--model", str(tmp_path / "nowhere"), "--onnx", str(tmp_path / "x.onnx")])
    assert result.exit_code == 1
    assert "no such model" in result.stderr
    assert not (tmp_path / "x.onnx").exists()
