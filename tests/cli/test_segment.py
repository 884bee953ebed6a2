import json
import shutil
from pathlib import Path

import pytest
from tests.evaluation.small import MPP, ByColour
from tests.report.segmented import made
from tests.segment.judged import STRANGE, WHY, judge_as
from tests.segment.small import paint, write_slide
from typer.testing import CliRunner

from ntrm.cli.main import app
from ntrm.models.registry import ARCHITECTURES

pytestmark = pytest.mark.usefixtures("quick_readers")
runner = CliRunner()


@pytest.fixture
def words(tmp_path, monkeypatch, random):
    """The command on one small slide with a small network."""
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setitem(ARCHITECTURES, "by-colour", ByColour)
    ByColour().describe(name="mine").save_pretrained(tmp_path / "model")
    slide = write_slide(tmp_path / "in" / "first.tif", paint(random))
    return ["segment", str(slide), "--model", str(tmp_path / "model"), "--out", str(tmp_path / "out"), "--batch", "2"]


def test_json_names_slides_model_and_options_and_other_options_are_refused(words):
    result = runner.invoke(app, [*words, "--json", "--overlap", "8", "--device", "cpu", "--gzip", "--min-area", "400"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    (slide,) = document["slides"]
    assert (slide["slide_id"], slide["status"], slide["cancers"]) == ("first", "done", ["SCC"])
    assert document["model"]["name"] == "mine"
    assert [document["options"][key] for key in ("overlap", "gzip", "min_area_um2")] == [8, True, 400]
    other = runner.invoke(app, [*words, "--json", "--overlap", "8", "--gzip", "--min-area", "500"])
    assert other.exit_code == 3
    assert json.loads(other.stdout)["error"]["got"] == "options min_area_um2 400.0, not 500.0"


def test_people_read_a_table_what_failed_and_what_is_unfamiliar(words, tmp_path, monkeypatch):
    judge_as(monkeypatch, STRANGE)
    (tmp_path / "broken.svs").write_bytes(b"nothing")
    words = [*words, str(tmp_path / "broken.svs")]
    result = runner.invoke(app, words)
    assert result.exit_code == 1, result.output
    text = " ".join(result.stdout.replace("│", " ").split())  # cells break into lines
    assert all(said in text for said in ("2 slides, for research only", "not assessed", "unlike what"))
    result = runner.invoke(app, [*words, "--quiet", "--json"])
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: broken: ")
    slide = next(each for each in json.loads(result.stdout)["slides"] if each["slide_id"] == "first")
    facts = [slide[key] for key in ("status", "cancers", "familiarity", "familiarity_p")]
    assert facts == ["kept", None, "unfamiliar", 0.002]
    assert slide["warnings"].startswith(STRANGE.warning)
    assert WHY in slide["warnings"]


def test_what_a_person_should_know_is_noted_and_pseudonyms_stay_secret(words, tmp_path, random):
    other = write_slide(tmp_path / "more" / "first.tif", paint(random))
    result = runner.invoke(app, [*words, str(tmp_path / "in"), str(other), "--json"])
    ids = [slide["slide_id"] for slide in json.loads(result.stdout)["slides"]]
    said = " ".join(result.stderr.split())
    assert "note: given more than once, segmented once: 1 slide" in said
    assert "note: familiarity: no reference on 2 of 2: the model has no reference" in said
    assert all(f"note: {name} is {place}/first.tif" in said for name, place in zip(ids, ("in", "more"), strict=True))
    hidden = [*words[:-4], "--out", str(tmp_path / "secret"), "--pseudonymise", str(tmp_path / "key.csv")]
    result = runner.invoke(app, [*hidden, str(other)])
    assert (result.exit_code, "first" in result.output) == (0, False), result.output


@pytest.mark.parametrize(
    ("more", "code"),
    [
        (["--shard", "3/2"], 2),
        (["--min-area", "nan"], 2),
        (["--out", "file"], 2),
        (["no.svs"], 2),
        (["--mpp", str(MPP * 100)], 3),
        (["--pseudonymise", "out/key.csv"], 3),
    ],
)
def test_exit_codes_of_refusal_and_wrong_usage(words, tmp_path, monkeypatch, more, code):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert runner.invoke(app, [*words, *more]).exit_code == code


def test_the_bundled_model_is_taken_with_a_notice(words, tmp_path):
    result = runner.invoke(app, [*words[:2], "--out", str(tmp_path / "other"), "--json"])
    assert result.exit_code == 0, result.output
    assert "bundled" in result.stderr
    assert json.loads(result.stdout)["model"]["mpp"] == pytest.approx(6.7)


def test_failures_of_reports_that_are_made_anew_are_told(tmp_path):
    results = Path(shutil.copytree(made(), tmp_path / "out"))
    (results / "two" / "graph.json").unlink()
    result = runner.invoke(app, ["report", str(results), "--json", "--progress", "json", "--jobs", "1"])
    assert result.exit_code == 1, result.output
    document = json.loads(result.stdout)
    assert (document["reported"], document["without_results"]) == (["one"], ["broken"])
    assert [failure["slide_id"] for failure in document["failures"]] == ["two"]
    assert "error: two has no graph.json" in result.stderr
    events = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    assert events[-1]["done"] == 2
    assert runner.invoke(app, ["report", str(tmp_path)]).exit_code == 2
