"""Every command that a page marks with ``<!-- run -->`` works, and prints what the page shows."""

import contextlib
import io
import re
import shlex
import subprocess

import pytest
from tests.docs.markdown import PAGES, ROOT, blocks
from typer.testing import CliRunner

from ntrm.cli.main import app

RUNNING = [page for page in PAGES if any(block.runs for block in blocks(page))]
GUIDES = ("README", "install", "quickstart", "data", "development", "train", "evaluate", "reproduce", "cluster")
GUIDES += ("report", "correct")
SMALL = "35"  # Seed of a phantom of small sections; pages may show another one, since numbers are not compared
SHARED = {"phantom", "check", "stats", "resample"}
"""Commands that share their work among processes, each of which would spend its time importing."""
OWN = {"README.md", *(f"docs/{name}.md" for name in GUIDES)}


@pytest.mark.slow
def test_the_commands_of_the_pages_work_in_their_order(tmp_path, monkeypatch):
    # One test and one folder for all pages: a phantom that one page has drawn is there already for the next.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NTRM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NTRM_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "100")
    for block in (block for page in RUNNING for block in blocks(page) if block.runs):
        code, printed = run(block)
        assert code == block.exit_code, f"{block.where}\n{printed}"
        missing = [line for line in block.output if not shows(printed, line)]
        assert not missing, f"{block.where} shows {missing}, but the command printed\n{printed}"


def run(block):
    """Exit code and output of a block; commands after one that fails are not run."""
    if block.language == "python":
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block.text, block.where, "exec"), {})
        return 0, printed.getvalue()
    everything = ""
    for command in block.commands:
        code, printed = call(shlex.split(command))
        everything += printed
        if code:
            return code, everything
    return 0, everything


def call(words):
    if words[:2] == ["ntrm", "phantom"]:
        words = [*words, "--seed", SMALL]  # the last one counts
    if words[0] == "ntrm" and SHARED & {*words[1:3]}:
        words = [*words, "--jobs", "1"]
    if words[0] == "ntrm":  # in this process, since a new one spends its time importing
        result = CliRunner().invoke(app, words[1:])
        return result.exit_code, result.output
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def shows(printed, line):
    """Whether the words of a line were printed one after the other; "…" stands for anything."""
    pattern = ".*".join(re.escape(part) for part in plain(line).split("…"))
    return re.search(rf"(?<!\S){pattern}(?!\S)", plain(printed)) is not None


def plain(text):
    """Words without table borders, whatever the width of the terminal; with every number as #."""
    return " ".join(re.sub(r"\d[\d,.]*", "#", re.sub(r"[─-╿]", " ", text)).split())


def test_every_block_of_the_guides_says_whether_it_is_run():
    guides = [page for page in PAGES if page.relative_to(ROOT).as_posix() in OWN]
    unmarked = [
        block.where
        for page in guides
        for block in blocks(page)
        if block.language in {"bash", "console", "python"} and not block.marker
    ]
    assert len(guides) == len(OWN)
    assert unmarked == []
