import errno
import io
import json
import subprocess
import sys

import pytest
import typer
from rich.table import Table
from typer.testing import CliRunner

from ntrm.cli.console import GOES_ON, Console, command, prepare_streams
from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError


def call(action, *words):
    app = typer.Typer()

    @app.command()
    @command
    def act(name: str = "x", resume: bool = False, *, console: Console) -> None:
        """Act."""
        action(name, console)

    return CliRunner().invoke(app, words)


@pytest.mark.parametrize("kind", [NtrmError, DataError, UsageError, RefusedError])
def test_errors_become_exit_codes_with_the_hint_on_stderr_and_documents(kind):
    def fail(name, console):
        raise kind("broken [thing]", got="[red]", hint="fix it")

    result = call(fail)
    assert (result.exit_code, result.stdout) == (kind.exit_code, "")
    assert "error: broken [thing]" in result.stderr
    assert "got:      [red]" in result.stderr
    assert "fix it" in result.stderr
    told = json.loads(call(fail, "--json").stdout)["error"]
    assert told == {"what": "broken [thing]", "got": "[red]", "expected": None, "hint": "fix it"}


def test_json_prints_one_document_and_nothing_else_on_stdout_whatever_comes_after_it():
    def late(name, console):
        console.note("a note")
        list(console.progress.track(range(3), 3, "work"))
        console.result({"name": name, "unit": "µm"}, "for people")
        raise RefusedError("too late")

    result = call(late, "--name", "BCC", "--json", "--progress", "json")
    assert (result.exit_code, json.loads(result.stdout)) == (3, {"name": "BCC", "unit": "µm"})
    assert all(text in result.stderr for text in ("a note", '"event": "progress"', "too late"))
    assert call(late).stdout == "for people\n"


def test_an_interrupt_is_130_and_says_how_to_go_on():
    def interrupt(name, console):
        raise KeyboardInterrupt

    for words, resumes in (["--json"], True), (["--json", "--resume"], False):
        result = call(interrupt, *words)
        told = json.loads(result.stdout)["error"]
        assert (result.exit_code, "to continue" in result.stderr) == (130, True)
        assert (told["what"], "--resume" in told["hint"]) == ("interrupted", resumes)


def test_quiet_silences_notes_and_bar_only():
    def speak(name, console):
        console.note("a note")
        console.failed("a slide [1]")
        for reason in ("is cut off", "b: is cut off", "b/corrected: is cut off", "b has no mask"):
            console.failed(reason, "b")
        list(console.progress.track(range(1), 1, "work"))
        console.result({}, "result")

    result = call(speak, "--quiet")
    lines = "a slide [1]", "b: is cut off", "b: is cut off", "b/corrected: is cut off", "b has no mask"
    assert (result.stdout, result.stderr) == ("result\n", "".join(f"error: {line}\n" for line in lines))


def test_wrong_usage_is_2():
    for words in ["--nonsense"], ["--progress", "fancy"]:
        assert call(lambda name, console: None, *words).exit_code == 2


def test_what_the_system_refuses_is_told_without_a_traceback(tmp_path):
    def fail(name, console):
        raise PermissionError(errno.EACCES, "Permission denied", name)

    result = call(fail, "--json", "--name", "results")
    error = json.loads(result.stdout)["error"]
    assert (result.exit_code, error["what"], error["got"]) == (1, "cannot read or write results", "Permission denied")
    assert "Traceback" not in result.stderr
    assert "in fail" in call(fail, "-v").stderr


STRANGE = "0.5 µm/px … → été 皮 \U0001f9b4 \udce9"


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_tables_and_documents_come_out_whatever_the_locale_says(monkeypatch, encoding):
    def printed(action):
        stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
        monkeypatch.setattr(sys, "stdout", stream)
        prepare_streams()
        action()
        stream.flush()
        return stream.buffer.getvalue().decode()

    table = Table("name", title="→")
    table.add_row("a … b")
    *lines, last = printed(lambda: Console().result({}, table, STRANGE)).splitlines()
    assert "name" in "".join(lines)
    assert last == STRANGE.encode(errors="backslashreplace").decode()
    assert json.loads(printed(lambda: Console(json=True).result({"name": STRANGE}))) == {"name": STRANGE}


POOL = """
import os, signal, sys
import typer
from ntrm.cli.console import command
from ntrm.core.processes import parallel_map

def end_parent(number):
    if number == 0:
        os.kill(os.getppid(), signal.SIGTERM)

@command
def act(*, console):
    list(parallel_map(end_parent, [0, 1], jobs=2))
    signal.pause()

if __name__ == "__main__":
    typer.run(act)
"""


def test_sigterm_ends_a_command_with_its_pool_like_an_interrupt(tmp_path):
    (tmp_path / "act.py").write_text(POOL)
    done = subprocess.run(
        [sys.executable, tmp_path / "act.py"], check=False, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 130
    assert done.stderr == f"interrupted; {GOES_ON}\n"
