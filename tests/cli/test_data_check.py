import json

import pytest
import typer
from tests.data.broken import broken_plain, broken_queensland, sound_queensland
from typer.testing import CliRunner

from ntrm.cli.data import check

runner = CliRunner()


def invoke(*arguments):
    app = typer.Typer()
    app.command()(check)
    return runner.invoke(app, [*map(str, arguments), "--jobs", "1"], env={"COLUMNS": "200"})


def test_a_clean_dataset(tmp_path):
    result = invoke(sound_queensland(tmp_path))
    assert result.exit_code == 0, result.output
    assert "clean" in result.stdout
    assert "10x: 2 sections at 6.7 µm/px" in result.stdout


def test_every_fault_is_printed_for_people(tmp_path):
    expected = broken_plain(tmp_path)
    result = invoke(tmp_path)
    assert result.exit_code == 1
    for code, file in expected:
        assert code in result.stdout
        assert file.split("/")[-1] in result.stdout


def test_every_fault_is_in_the_json_document(tmp_path):
    expected = broken_plain(tmp_path)
    result = invoke(tmp_path, "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert {(fault["code"], fault["file"]) for fault in document["faults"]} == expected
    assert document["clean"] is False


def test_markup_in_file_names_is_shown_as_it_is(tmp_path):
    sound_queensland(tmp_path)
    (tmp_path / "data/10x/Images/[bold]x[green].txt").write_text("")
    assert "[bold]x[green].txt" in invoke(tmp_path).stdout


def test_notes_do_not_change_the_exit_code(tmp_path):
    broken_queensland(tmp_path)
    assert invoke(tmp_path).exit_code == 1
    sound_queensland(tmp_path, names=("SCC_2",))
    result = invoke(tmp_path)
    assert result.exit_code == 0, result.output
    assert "missing-level" in result.stdout


@pytest.mark.parametrize(("limit", "code"), [(10**6, 0), (100, 1)])
def test_the_pixel_limit_can_be_set(tmp_path, limit, code):
    result = invoke(sound_queensland(tmp_path), "--max-pixels", limit)
    assert result.exit_code == code
    assert ("too-large" in result.stdout) == bool(code)


def test_no_dataset(tmp_path):
    result = invoke(tmp_path)
    assert result.exit_code == 1
    assert "layout plain" in result.stderr
