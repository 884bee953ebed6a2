import json

import pytest
import typer
from tests.evaluation import gaussians
from typer.testing import CliRunner

from ntrm.cli.calibrate import calibrate
from ntrm.data.split import open_splits

runner = CliRunner()
app = typer.Typer()
app.command()(calibrate)


@pytest.fixture
def arguments(tmp_path, random, monkeypatch):
    gaussians.register(monkeypatch)
    monkeypatch.setenv("NTRM_CACHE", str(tmp_path / "cache"))
    shapes = {("one", "train"): (32, 32), ("two", "val"): (90, 90), ("three", "test"): (32, 32)}
    gaussians.write_sections(tmp_path / "data", random, shapes)
    gaussians.make_network(open_splits(tmp_path / "data").schema, 3.0).save_pretrained(tmp_path / "model")
    return ["--model", str(tmp_path / "model"), "--data", str(tmp_path / "data"), "--device", "cpu", "--no-pictures"]


def test_people_read_before_and_after(arguments, tmp_path):
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "calibration" / "calibration.json").read_text())
    assert f"temperature {found['temperature']:.4g} (it was 1)" in result.stdout
    for side in ("before", "after"):
        assert f"{found[side]['expected_calibration_error']:.4f}" in result.stdout
    assert "written:" in result.stderr


def test_json_tells_what_was_stored(arguments, tmp_path):
    result = runner.invoke(app, [*arguments, "--json", "--quiet", "--out", str(tmp_path / "findings")])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert document["temperature"] == config["temperature"] == pytest.approx(3, rel=0.2)
    assert document["out"] == str(tmp_path / "findings")


def test_doubts_are_told(arguments, tmp_path):
    found = runner.invoke(app, [*arguments, "--split", "nonsense"])
    assert found.exit_code == 2
    assert "no such split" in found.stderr
    arguments[1] = "bundled"
    refused = runner.invoke(app, arguments)
    assert refused.exit_code == 3
    assert "copy it first" in refused.stderr
