"""``ntrm correct``: its words, what people and programs read, exit codes; what a correction does is tested below it."""

import json
import shutil

import pytest
from tests.report.segmented import made
from typer.testing import CliRunner

from ntrm.cli.main import app
from ntrm.correct.folder import FolderCorrections
from ntrm.correct.log import read_log

pytestmark = pytest.mark.usefixtures("quick_readers")
WHOLE = ("--whole-region", "--no-spread", "--by", "AB")
CLICK = ("--click", "one", 60, 90)  # in its tumour


@pytest.fixture
def out(tmp_path):
    return shutil.copytree(made(), tmp_path / "out")


@pytest.fixture
def correct(out, monkeypatch):
    """The command on a copy of results."""
    monkeypatch.setenv("COLUMNS", "160")
    return lambda *words: CliRunner().invoke(app, ["correct", str(out), *map(str, words)])


def test_programs_read_every_step_and_people_where_it_was_written(out, correct):
    shown = correct(*WHOLE, *CLICK, "RET", "--preview", "--json")
    (change,) = json.loads(shown.stdout)["changes"]
    assert (change["slide_id"], change["step"], change["action"], change["tissue"]) == ("one", 1, "name", "RET")
    assert "a preview: nothing was written" in shown.stderr
    assert not (out / "one" / "corrections.jsonl").exists()
    written = correct(*WHOLE, *CLICK, "RET", *CLICK, "EPI")
    assert (written.exit_code, "2 steps" in written.stdout) == (0, True), written.output
    assert f"written: {out / 'one' / 'corrected'}" in written.stderr
    assert [(step.tissue, step.by, step.spread) for step in read_log(out / "one").steps] == [
        ("RET", "AB", None), ("EPI", "AB", None),
    ]  # fmt: skip
    for action in ("undo", "redo", "undo"):
        (change,) = json.loads(correct(f"--{action}", "one", "--json").stdout)["changes"]
        assert (change["action"], change["of"]) == (action, 2)
    listed = json.loads(correct("--list", "--json").stdout)["steps"]
    assert [(each["action"], each["active"]) for each in listed] == [
        ("name", True), ("name", False), *[(action, False) for action in ("undo", "redo", "undo")],
    ]  # fmt: skip
    assert json.loads(correct("--list", "--slide", "two", "--json").stdout)["steps"] == []
    assert "command" in correct("--list").stdout


def test_what_was_done_before_an_error_stays_done_and_is_told(correct):
    words = (*WHOLE, *CLICK, "RET", "--click", "one", 5000, 1, "RET")
    result = correct(*words)
    assert (result.exit_code, "written before this error: 1 step" in result.stderr) == (2, True)
    document = json.loads(correct(*words, "--json").stdout)
    assert (list(document), [change["step"] for change in document["changes"]]) == (["error", "changes"], [2])


def test_areas_are_read_from_a_file_and_those_left_out_are_told(correct, tmp_path):
    ring = [[20, 70], [60, 70], [60, 99], [20, 99], [20, 70]]
    area = {"type": "Feature", "geometry": {"type": "Polygon", "coordinates": [ring]}}
    named = [{**area, "properties": {"classification": {"name": name}}} for name in ("SCC", "")]
    path = tmp_path / "drawn.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": named}))
    result = correct("--from", path, "--slide", "two")
    assert (result.exit_code, "SCC" in result.stdout) == (0, True), result.output
    assert "two: annotations left out or changed: 1 without a class" in result.stderr


def test_a_slide_to_which_a_name_could_not_be_carried_is_told_and_fails(correct, monkeypatch):
    monkeypatch.setattr(FolderCorrections, "click", lambda found, *_, **how: found.failures.update(two=str(how)))
    result = correct(*CLICK, "RET", "--all-slides", "--how-far", 2, "--json")
    how = {"all_slides": True, "spread": True, "reach": 2.0, "whole_regions": False}
    assert (result.exit_code, json.loads(result.stdout)["failures"]) == (1, [{"slide_id": "two", "reason": str(how)}])


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--click", "one", "a", 1, "EPI"], "unreadable click"),
        (["--click", "one", 1, 1], "unreadable click"),
        (["--click=one 1 1"], "unreadable click"),
        (["--click", "one", 1, 1, "EPI", "--slide", "two"], "--slide goes with --from or --list"),
        (["--undo", "one", "--list"], "what to do is not clear"),
        ([], "what to do is not clear"),
    ],
)
def test_words_that_cannot_be_read_are_wrong_usage(correct, words, what):
    result = correct(*words, "--json")
    assert (result.exit_code, json.loads(result.stdout)["error"]["what"]) == (2, what)
