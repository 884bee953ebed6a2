import json

import pytest
from tests.evaluation import gaussians
from tests.evaluation.evaluations import confusions, truth_counts, write_evaluation
from tests.evaluation.small import ByColour, draw_sections, write_dataset
from typer.testing import CliRunner

from ntrm.cli.main import app
from ntrm.data.split import open_splits
from ntrm.models.registry import ARCHITECTURES

runner = CliRunner()


@pytest.fixture
def words(tmp_path, monkeypatch, random):
    """The command up to its options, on a small dataset and a small network."""
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setitem(ARCHITECTURES, "by-colour", ByColour)
    ByColour().describe(name="mine").save_pretrained(tmp_path / "model")
    write_dataset(tmp_path / "data", draw_sections(random, (40, 50), (30, 70)))
    folders = {"--model": "model", "--data": "data", "--out": "out"}
    return ["evaluate", *(part for key, name in folders.items() for part in (key, str(tmp_path / name))), "--jobs", "1"]


def test_programs_read_the_metrics_document_and_people_the_headline_and_the_tissues(words, tmp_path):
    result = runner.invoke(app, [*words, "--json", "--no-pictures", "--overlap", "8", "--device", "cpu"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document == json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert document["stitching"] == {"window": 64, "overlap": 8}
    assert document["command"][0] == "ntrm"
    assert not list((tmp_path / "out").glob("*.png"))
    text = " ".join(runner.invoke(app, [*words, "--overlap", "8", "--robustness"]).stdout.split())
    assert "mine on 2 sections of 1 patient (test, 6.7 µm/px)" in text
    assert f"mean IoU {document['pooled']['macro']['iou']:.3f}" in text
    assert all(name in text for name in ("EPI", "RET", "BKG", "SCC", "coarse head alone", "JPEG: quality 10"))
    assert (tmp_path / "out" / "examples.png").is_file()


@pytest.fixture
def calibration(tmp_path, random, monkeypatch):
    gaussians.register(monkeypatch)
    shapes = {("one", "train"): (32, 32), ("two", "val"): (90, 90), ("three", "test"): (32, 32)}
    gaussians.write_sections(tmp_path / "data", random, shapes)
    gaussians.make_network(open_splits(tmp_path / "data").schema, 3.0).save_pretrained(tmp_path / "model")
    folders = ["--model", str(tmp_path / "model"), "--data", str(tmp_path / "data")]
    return ["calibrate", *folders, "--device", "cpu", "--no-pictures"]


def test_people_and_programs_read_before_and_after_and_why_no_reference_was_made(calibration, tmp_path):
    result = runner.invoke(app, calibration)
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "calibration" / "calibration.json").read_text())
    assert f"temperature {found['temperature']:.4g} (it was 1)" in result.stdout
    assert f"{found['after']['expected_calibration_error']:.4f}" in result.stdout
    said = " ".join(result.stderr.split())
    assert "no reference was made: too few sections for a reference: 1 in the split train, expected at least 8" in said
    again = runner.invoke(app, [*calibration, "--json", "--no-reference", "--out", str(tmp_path / "findings")])
    assert (again.exit_code, "no reference" in again.stderr) == (0, False), again.output
    document, config = json.loads(again.stdout), json.loads((tmp_path / "model" / "config.json").read_text())
    assert document["temperature"] == config["temperature"] == pytest.approx(3, rel=0.2)
    assert document["out"] == str(tmp_path / "findings")


@pytest.fixture
def outs(tmp_path, random):
    truth = truth_counts(random, sections=16)
    return [
        str(write_evaluation(tmp_path / f"{arch}-{seed}", confusions(random, truth, skill), arch=arch, seed=seed))
        for arch, skill in (("good", 0.9), ("bad", 0.5))
        for seed in (0, 1)
    ]


def test_people_read_a_verdict_and_programs_a_document(outs, tmp_path):
    result = runner.invoke(app, ["compare", *outs, "--draws", "200"])
    assert result.exit_code == 0, result.output
    for text in ("Mean IoU over 16 sections of 8 patients", "good scores higher than bad (+", "2 and 2 training seeds"):
        assert text in result.stdout
    path, words = tmp_path / "found.json", ["--json", "--draws", "200", "--measure", "accuracy", "--out"]
    document = json.loads(runner.invoke(app, ["compare", *outs, *words, str(path)]).stdout)
    assert document == json.loads(path.read_text())
    assert (document["measure"], document["draws"]) == ("accuracy", 200)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "found.txt"], ".csv or .json"),
        (["--measure", "f1"], "one of iou, dice, accuracy"),
        (["nowhere"], "holds no evaluation"),
    ],
)
def test_wrong_use_of_compare_is_refused(outs, arguments, said):
    result = runner.invoke(app, ["compare", *outs, *arguments])
    assert (result.exit_code, result.stdout, said in result.stderr) == (2, "", True)
