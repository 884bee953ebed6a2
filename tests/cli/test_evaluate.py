import json

import pytest
from tests.evaluation.small import ByColour, draw_sections, write_dataset
from typer.testing import CliRunner

from ntrm.cli.main import app
from ntrm.models.registry import ARCHITECTURES

runner = CliRunner()


@pytest.fixture
def words(tmp_path, monkeypatch, random):
    """The command up to its options, on a small dataset and a small network."""
    monkeypatch.setenv("NTRM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setitem(ARCHITECTURES, "by-colour", ByColour)
    ByColour().describe(name="mine").save_pretrained(tmp_path / "model")
    write_dataset(tmp_path / "data", draw_sections(random, (40, 50), (30, 70)))
    folders = {"--model": "model", "--data": "data", "--out": "out"}
    return ["evaluate", *(part for key, name in folders.items() for part in (key, str(tmp_path / name))), "--jobs", "1"]


def test_json_is_the_metrics_document(words, tmp_path):
    result = runner.invoke(app, [*words, "--json", "--no-pictures", "--overlap", "8", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document == json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert document["stitching"] == {"window": 64, "overlap": 8}
    assert document["command"][0] == "ntrm"
    assert not list((tmp_path / "out").glob("*.png"))


def test_people_read_the_headline_and_the_tissues(words, tmp_path):
    result = runner.invoke(app, [*words, "--robustness"])
    assert result.exit_code == 0, result.output
    document = json.loads((tmp_path / "out" / "metrics.json").read_text())
    text = " ".join(result.stdout.split())
    assert "mine on 2 sections of 1 patient (test, 6.7 µm/px)" in text
    assert f"mean IoU {document['pooled']['macro']['iou']:.3f}" in text
    assert all(name in text for name in ("EPI", "RET", "BKG", "SCC"))
    assert "corrected / broken" in text
    assert "JPEG: quality 10" in text
    assert (tmp_path / "out" / "examples.png").is_file()


def test_what_is_wrong_is_told_with_the_exit_code(words, tmp_path):
    assert runner.invoke(app, [*words, "--split", "val"]).exit_code == 2
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("")
    refused = runner.invoke(app, words)
    assert refused.exit_code == 3
    assert "no evaluation" in refused.stderr
