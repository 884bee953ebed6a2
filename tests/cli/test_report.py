import json
import shutil
from pathlib import Path

import pytest
from tests.report.segmented import made
from typer.testing import CliRunner

from ntrm.cli.main import app

runner = CliRunner()


@pytest.fixture
def out(tmp_path):
    return Path(shutil.copytree(made(), tmp_path / "out"))


def test_people_are_told_what_was_made(out):
    result = runner.invoke(app, ["report", str(out)])
    assert result.exit_code == 0, result.output
    assert " ".join(result.stdout.split()) == f"2 reports and {out / 'index.html'}"
    assert (out / "one" / "report.html").is_file()


def test_json_names_reports_and_failures_and_the_exit_code_tells_of_them(out):
    (out / "two" / "graph.json").unlink()
    result = runner.invoke(app, ["report", str(out), "--json", "--progress", "json", "--jobs", "1"])
    assert result.exit_code == 1, result.output
    document = json.loads(result.stdout)
    assert document["reported"] == ["one"]
    assert document["without_results"] == ["broken"]
    assert [failure["slide_id"] for failure in document["failures"]] == ["two"]
    assert "error: two: two has no graph.json" in result.stderr
    events = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    assert events[-1]["done"] == 2


def test_a_folder_without_results_is_told(tmp_path):
    result = runner.invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 1
    assert "holds no results" in result.stderr
    assert runner.invoke(app, ["report"]).exit_code == 2
