import errno
import json

import pytest
import typer
from typer.testing import CliRunner

from ntrm.cli.console import Console, command
from ntrm.errors import DataError, NtrmError, RefusedError, UsageError

runner = CliRunner()


def app_that(action) -> typer.Typer:
    app = typer.Typer()

    @app.command()
    @command
    def act(name: str = "x", *, console: Console) -> None:
        """Act."""
        action(name, console)

    return app


@pytest.mark.parametrize("kind", [NtrmError, DataError, UsageError, RefusedError])
def test_errors_become_exit_codes_with_the_mend_on_stderr(kind):
    def fail(name, console):
        raise kind("broken [thing]", got="[red]", expected="good", mend="mend it")

    result = runner.invoke(app_that(fail), [])
    assert result.exit_code == kind.exit_code
    assert result.stdout == ""
    assert "error: broken [thing]" in result.stderr
    assert "got:      [red]" in result.stderr
    assert "mend it" in result.stderr


def test_json_prints_one_document_and_nothing_else_on_stdout():
    def succeed(name, console):
        console.note("a note")
        list(console.progress.track(range(3), 3, "work"))
        console.result({"name": name, "unit": "µm"}, lambda out: out.print("for people"))

    result = runner.invoke(app_that(succeed), ["--name", "BCC", "--json", "--progress", "json"])
    assert json.loads(result.stdout) == {"name": "BCC", "unit": "µm"}
    assert "a note" in result.stderr
    assert '"event": "progress"' in result.stderr
    assert runner.invoke(app_that(succeed), []).stdout == "for people\n"


def test_json_errors_are_documents_too():
    def fail(name, console):
        raise RefusedError("no µm/px", got=None, mend="give --mpp")

    result = runner.invoke(app_that(fail), ["--json"])
    assert result.exit_code == 3
    assert json.loads(result.stdout)["error"] == {
        "what": "no µm/px",
        "got": None,
        "expected": None,
        "mend": "give --mpp",
    }


def test_an_interrupt_is_130():
    def interrupt(name, console):
        raise KeyboardInterrupt

    result = runner.invoke(app_that(interrupt), [])
    assert result.exit_code == 130
    assert "goes on" in result.stderr


def test_quiet_silences_notes_and_bar_only():
    def speak(name, console):
        console.note("a note")
        list(console.progress.track(range(1), 1, "work"))
        console.result({}, lambda out: out.print("result"))

    result = runner.invoke(app_that(speak), ["--quiet"])
    assert (result.stdout, result.stderr) == ("result\n", "")


def test_wrong_usage_is_2():
    assert runner.invoke(app_that(lambda name, console: None), ["--nonsense"]).exit_code == 2
    assert runner.invoke(app_that(lambda name, console: None), ["--progress", "fancy"]).exit_code == 2


def test_what_the_system_refuses_is_told_without_a_traceback(tmp_path):
    def fail(name, console):
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "results"))

    result = runner.invoke(app_that(fail), ["--json"])
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert (error["what"], error["got"]) == (f"cannot read or write {tmp_path / 'results'}", "Permission denied")
    assert "Traceback" not in result.stderr
    assert "in fail" in runner.invoke(app_that(fail), ["-v"]).stderr

    def fail_without_a_name(name, console):
        raise OSError("the drive went away")

    assert "the drive went away" in runner.invoke(app_that(fail_without_a_name), []).stderr


def test_a_reader_that_went_away_is_no_error_of_ours():
    def fail(name, console):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    result = runner.invoke(app_that(fail), [])
    assert result.exit_code == 1
    assert "error:" not in result.stderr


def test_help_flows_as_wide_as_the_terminal():
    app = typer.Typer()

    @app.command()
    @command
    def act(*, console: Console) -> None:
        """Act.

        One
        sentence.
        """

    assert "One sentence." in runner.invoke(app, ["--help"]).stdout
