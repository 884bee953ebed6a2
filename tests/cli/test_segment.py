import json
import shutil
from pathlib import Path

import pytest
from tests.evaluation.small import MPP, NAMES, ByColour
from tests.pipeline.judged import STRANGE, WHY, judge_as
from tests.pipeline.small import paint, write_slide
from tests.report.segmented import made
from typer.testing import CliRunner

from ntrm.cli.main import app
from ntrm.models.registry import ARCHITECTURES
from ntrm.results.tables import read_results

runner = CliRunner()


@pytest.fixture
def words(tmp_path, monkeypatch, random):
    """The command on one small slide with a small network."""
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setitem(ARCHITECTURES, "by-colour", ByColour)
    ByColour().describe(name="mine").save_pretrained(tmp_path / "model")
    slide = write_slide(tmp_path / "in" / "first.tif", paint(random))
    return ["segment", str(slide), "--model", str(tmp_path / "model"), "--out", str(tmp_path / "out"), "--batch", "2"]


def test_json_names_slides_model_and_options(words):
    result = runner.invoke(app, [*words, "--json", "--overlap", "8", "--device", "cpu", "--gzip"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [(slide["slide_id"], slide["status"]) for slide in document["slides"]] == [("first", "done")]
    assert document["slides"][0]["cancers"] == ["SCC"]
    assert document["model"]["name"] == "mine"
    assert document["options"]["overlap"] == 8
    assert document["options"]["gzip"] is True


def test_files_on_request_and_the_report_that_is_not_wanted(words, tmp_path):
    pytest.importorskip("zarr")
    result = runner.invoke(app, [*words, "--json", "--maps", "--probabilities", "--no-report"])
    assert result.exit_code == 0, result.output
    options = json.loads(result.stdout)["options"]
    assert options["maps"] is options["probabilities"] is True
    names = {path.name for path in (tmp_path / "out" / "first").iterdir()}
    assert {"confidence.ome.tif", "coarse.ome.tif", "probabilities.zarr"} <= names
    assert "report.html" not in names


def test_the_least_area_is_an_option_of_the_run_and_nonsense_is_wrong_usage(words, tmp_path):
    result = runner.invoke(app, [*words, "--json", "--min-area", "400"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["options"]["min_area_um2"] == 400
    assert json.loads((tmp_path / "out" / "first" / "summary.json").read_text())["small_regions"] is not None
    other = runner.invoke(app, [*words, "--json", "--min-area", "500"])
    assert other.exit_code == 3
    assert json.loads(other.stdout)["error"]["got"] == "options min_area_um2 400.0, not 500.0"
    for wrong in ("-1", "nan", "1e6"):
        refused = runner.invoke(app, [*words, "--json", "--min-area", wrong])
        assert refused.exit_code == 2
        told = json.loads(refused.stdout)["error"]
        assert (told["what"], told["expected"]) == ("impossible least area in µm²", "a number from 0 to 20000")


def test_people_read_a_table_and_what_failed(words, tmp_path):
    broken = tmp_path / "broken.svs"
    broken.write_bytes(b"nothing")
    result = runner.invoke(app, [*words, str(broken)])
    assert result.exit_code == 1, result.output
    text = " ".join(result.stdout.split())
    assert "2 slides, for research only" in text
    assert "SCC" in text
    assert "error: broken:" in result.stderr
    quiet = runner.invoke(app, [*words, str(broken), "--quiet"])
    assert quiet.exit_code == 1
    (line,) = quiet.stderr.splitlines()
    assert line.startswith("error: broken: ")
    again = runner.invoke(app, words)
    assert again.exit_code == 0
    assert "kept" in again.stdout


def test_no_cancer_found_is_told_from_a_slide_that_failed(words, tmp_path, random):
    healthy = paint(random)
    healthy[healthy == NAMES.index("SCC")] = NAMES.index("RET")
    write_slide(tmp_path / "in" / "healthy.tif", healthy)
    (tmp_path / "in" / "broken.tif").write_bytes(b"nothing")
    result = runner.invoke(app, ["segment", str(tmp_path / "in"), *words[2:], "--json"])
    slides = json.loads(result.stdout)["slides"]
    assert [slide["cancers_looked_for"] for slide in slides] == [None, ["SCC"], ["SCC"]]
    found = {slide["slide_id"]: slide["cancers"] for slide in slides}
    assert found == {"broken": None, "first": ["SCC"], "healthy": []}
    lines = runner.invoke(app, ["segment", str(tmp_path / "in"), *words[2:]]).stdout.splitlines()
    cells = {each[0]: each[3] for each in ([cell.strip() for cell in line.split("│")[1:]] for line in lines) if each}
    assert cells == {"broken": "–", "first": "SCC", "healthy": "none"}


def test_a_model_without_cancers_says_everywhere_that_none_was_looked_for(words, tmp_path):
    ByColour(classes=3).save_pretrained(tmp_path / "model")
    result = runner.invoke(app, [*words, "--json"])
    (slide,) = json.loads(result.stdout)["slides"]
    assert (slide["cancers"], slide["cancers_looked_for"]) == ([], [])
    assert "not looked for" in runner.invoke(app, words).stdout
    (row,) = read_results(tmp_path / "out").slides
    assert row["cancers_looked_for"] == "none"
    summary = json.loads((tmp_path / "out/first/summary.json").read_text())
    assert (summary["cancers"], summary["cancers_looked_for"]) == ({}, [])
    for page in ("index.html", "first/report.html"):
        text = (tmp_path / "out" / page).read_text(encoding="utf-8")
        assert "no class called BCC, SCC or IEC: no cancer was looked for" in text
        assert "<td>not looked for</td>" in text
        assert "most cancer first" not in text


def test_a_slide_given_twice_and_two_of_one_name_are_told(words, tmp_path, random):
    other = write_slide(tmp_path / "more" / "first.tif", paint(random))
    result = runner.invoke(app, [*words, str(tmp_path / "in"), str(other), "--json"])
    assert result.exit_code == 0, result.output
    ids = [slide["slide_id"] for slide in json.loads(result.stdout)["slides"]]
    assert len(ids) == len(set(ids)) == 2
    assert "note: given more than once, segmented once: 1 slide" in result.stderr
    for slide_id, place in zip(ids, ("in", "more"), strict=True):
        assert f"note: {slide_id} is {place}/first.tif" in result.stderr
    hidden = [*words[:-4], "--out", str(tmp_path / "secret"), "--pseudonymise", str(tmp_path / "key.csv")]
    result = runner.invoke(app, [*hidden, str(other)])
    assert result.exit_code == 0, result.output
    assert "first" not in result.output


def test_exit_codes_of_refusal_and_wrong_usage(words, tmp_path):
    assert runner.invoke(app, [*words, "--shard", "3/2"]).exit_code == 2
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        result = runner.invoke(app, [*words, "--out", str(out)])
        assert (result.exit_code, "not a folder" in result.output) == (2, True)
    assert runner.invoke(app, ["segment", str(tmp_path / "no.svs"), *words[2:]]).exit_code == 2
    assert runner.invoke(app, [*words, "--mpp", str(MPP * 100)]).exit_code == 3
    assert runner.invoke(app, [*words, "--pseudonymise", str(tmp_path / "out" / "key.csv")]).exit_code == 3


def test_the_bundled_model_is_taken_with_a_notice(words, tmp_path):
    result = runner.invoke(app, [*words[:2], "--out", str(tmp_path / "other"), "--json"])
    assert result.exit_code == 0, result.output
    assert "bundled" in result.stderr
    assert json.loads(result.stdout)["model"]["mpp"] == pytest.approx(6.7)


@pytest.fixture
def results(tmp_path):
    return Path(shutil.copytree(made(), tmp_path / "out"))


def test_reports_are_made_anew(results):
    result = runner.invoke(app, ["report", str(results)])
    assert result.exit_code == 0, result.output
    assert " ".join(result.stdout.split()) == f"2 reports and {results / 'index.html'}"
    assert (results / "one" / "report.html").is_file()


def test_json_names_reports_and_failures_and_the_exit_code_tells_of_them(results):
    (results / "two" / "graph.json").unlink()
    result = runner.invoke(app, ["report", str(results), "--json", "--progress", "json", "--jobs", "1"])
    assert result.exit_code == 1, result.output
    document = json.loads(result.stdout)
    assert document["reported"] == ["one"]
    assert document["without_results"] == ["broken"]
    assert [failure["slide_id"] for failure in document["failures"]] == ["two"]
    assert "error: two has no graph.json" in result.stderr
    (results / "two" / "graph.json").write_text("{")
    told = runner.invoke(app, ["report", str(results), "--jobs", "1", "--quiet"]).stderr
    assert told.startswith("error: two: cannot read graph.json")
    events = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    assert events[-1]["done"] == 2


def test_a_folder_without_results_is_refused(tmp_path):
    result = runner.invoke(app, ["report", str(tmp_path)])
    assert result.exit_code == 1
    assert "holds no results" in result.stderr
    assert runner.invoke(app, ["report", str(tmp_path / "nowhere")]).exit_code == 2
    assert runner.invoke(app, ["report"]).exit_code == 2


def test_people_and_programs_are_told_of_an_unfamiliar_slide(words, monkeypatch):
    judge_as(monkeypatch, STRANGE)
    people = runner.invoke(app, words)
    assert people.exit_code == 0, people.output
    # Cells of the table break into lines.
    text = " ".join(people.stdout.replace("│", " ").split())
    assert "not assessed" in text
    assert "unlike what" in text
    programs = runner.invoke(app, [*words, "--json"])
    (slide,) = json.loads(programs.stdout)["slides"]
    assert (slide["status"], slide["cancers"]) == ("kept", None)
    assert (slide["familiarity"], slide["familiarity_p"]) == ("unfamiliar", 0.002)
    assert slide["warnings"].startswith(STRANGE.warning)
    assert WHY in slide["warnings"]


def test_a_model_without_a_reference_is_noted_and_warns_of_nothing(words):
    result = runner.invoke(app, [*words, "--json"])
    (slide,) = json.loads(result.stdout)["slides"]
    assert slide["familiarity"] == "no reference"
    assert "unlike" not in slide["warnings"]
    assert "note: familiarity: no reference on 1 of 1: the model has no reference" in " ".join(result.stderr.split())
