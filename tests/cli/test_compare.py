import json

import pytest
import typer
from tests.evaluation.evaluations import confusions, truth_counts, write_evaluation
from typer.testing import CliRunner

from ntrm.cli.compare import compare

runner = CliRunner()
app = typer.Typer()
app.command()(compare)


@pytest.fixture
def outs(tmp_path, random):
    truth = truth_counts(random, sections=16)
    return [
        str(write_evaluation(tmp_path / f"{arch}-{seed}", confusions(random, truth, skill), arch=arch, seed=seed))
        for arch, skill in (("good", 0.9), ("bad", 0.5))
        for seed in (0, 1)
    ]


def test_people_read_a_table_and_a_verdict(outs):
    result = runner.invoke(app, [*outs, "--draws", "200"])
    assert result.exit_code == 0, result.output
    assert "Mean IoU over 16 sections of 8 patients" in result.stdout
    assert "good scores higher than bad (+" in result.stdout
    assert "2 and 2 training seeds" in result.stdout


def test_json_and_the_file_are_the_same_document(outs, tmp_path):
    path = tmp_path / "found.json"
    result = runner.invoke(app, [*outs, "--json", "--draws", "200", "--measure", "accuracy", "--out", str(path)])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document == json.loads(path.read_text())
    assert document["measure"] == "accuracy"
    assert document["draws"] == 200


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--out", "found.txt"], 2, ".csv or .json"),
        (["--measure", "f1"], 2, "one of iou, dice, accuracy"),
        (["--draws", "3"], 2, "impossible number of draws"),
        (["--reference", "worst"], 2, "not among the models"),
        (["nowhere"], 1, "holds no evaluation"),
    ],
)
def test_wrong_use_is_told(outs, arguments, code, said):
    result = runner.invoke(app, [*outs, *arguments])
    assert result.exit_code == code
    assert said in result.stderr
    assert result.stdout == ""
