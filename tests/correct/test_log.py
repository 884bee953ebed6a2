"""The log of corrections: nothing is lost, whoever is killed, and however full the disk is."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.correct.steps import record, steps
from tests.helpers import PATIENCE

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.correct.log import MOST_BYTES, MOST_STEPS, ConflictError, Step, append, read_log

DRAW = Step(action="draw", tissue="EPI", named="0+3")
UNDO, REDO = Step(action="undo"), Step(action="redo")


def lines(folder):
    return (folder / "corrections.jsonl").read_text(encoding="utf-8").splitlines()


def plain(step):
    """A step without what ``append`` sets."""
    return replace(step, number=0, when="", of=None)


@given(st.lists(steps(), min_size=1, max_size=4))
def test_steps_are_read_back_as_they_were_written(tmp_path_factory, given_steps):
    folder = tmp_path_factory.mktemp("log")
    for step in given_steps:
        append(folder, record(), step)
    log = read_log(folder)
    assert log.record == record()
    assert [plain(step) for step in log.steps] == given_steps
    assert [step.number for step in log.steps] == [*range(1, len(given_steps) + 1)]
    assert log.version == len(given_steps)


def test_to_undo_is_a_step_that_says_what_it_undoes_where_there_is_something(tmp_path):
    with pytest.raises(UsageError, match="nothing to undo"):
        append(tmp_path, record(), UNDO)
    for step in (DRAW, replace(DRAW, tissue="RET"), UNDO, UNDO, REDO):
        log = append(tmp_path, record(), step)
    told = [("undo", 2, "RET"), ("undo", 1, "EPI"), ("redo", 1, "EPI")]
    assert [(step.action, step.of, step.tissue) for step in log.steps[2:]] == told
    assert log == read_log(tmp_path)
    append(tmp_path, record(), DRAW)
    with pytest.raises(UsageError, match="nothing to redo"):
        append(tmp_path, record(), REDO)


def test_a_last_line_cut_off_anywhere_was_never_written(tmp_path):
    append(tmp_path, record(), DRAW)
    before = (tmp_path / "corrections.jsonl").read_bytes()
    append(tmp_path, record(), replace(DRAW, tissue="RET"))
    after = (tmp_path / "corrections.jsonl").read_bytes()
    for cut in {len(before), len(before) + 1, (len(before) + len(after)) // 2, len(after) - 1}:
        (tmp_path / "corrections.jsonl").write_bytes(after[:cut])
        assert read_log(tmp_path).version == 1
        log = append(tmp_path, record(), UNDO)
        assert [step.action for step in read_log(tmp_path).steps] == ["draw", "undo"] == [s.action for s in log.steps]


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.correct.steps import record
from ntrm.correct.log import Step, append
folder, moment = Path(sys.argv[1]), sys.argv[2]
append(folder, record(), Step(action="draw", tissue="EPI", named="0+3"))
kill = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
if moment == "before":
    import ntrm.correct.log as log
    log.open_for_update = kill
else:
    os.fsync = kill
append(folder, record(), Step(action="draw", tissue="RET", named="5+3"))
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_killed_while_it_writes_loses_nothing_that_was_told(tmp_path, moment):
    killed = run_python(KILLED, tmp_path, moment)
    assert killed.wait(PATIENCE) == -signal.SIGKILL
    assert read_log(tmp_path).version in (1, 2)
    # The lock went with its holder, and nobody waits for it.
    log = append(tmp_path, record(), replace(DRAW, tissue="BKG"))
    assert [step.tissue for step in log.steps] in (["EPI", "BKG"], ["EPI", "RET", "BKG"])


APPENDING = """
import sys
from pathlib import Path
from tests.correct.steps import record
from ntrm.correct.log import Step, append
for number in range(25):
    append(Path(sys.argv[1]), record(), Step(action="draw", tissue="EPI", named=f"{number}+1", by=sys.argv[2]))
"""


def test_two_processes_append_without_losing_a_step(tmp_path):
    writers = [run_python(APPENDING, tmp_path, name) for name in ("A", "B")]
    assert [writer.wait(PATIENCE) for writer in writers] == [0, 0]
    log = read_log(tmp_path)
    assert [step.number for step in log.steps] == [*range(1, 51)]
    for name in ("A", "B"):
        assert [step.named for step in log.steps if step.by == name] == [f"{k}+1" for k in range(25)]


def run_python(code, *words):
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen([sys.executable, "-c", code, *map(str, words)], env={**os.environ, "PYTHONPATH": paths})


@pytest.mark.parametrize("first", [True, False])
def test_a_full_disk_is_told_and_leaves_nothing_half_written(tmp_path, monkeypatch, first):
    if not first:
        append(tmp_path, record(), DRAW)
    before = read_log(tmp_path)

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(DataError, match="cannot write") as found:
            append(tmp_path, record(), replace(DRAW, tissue="RET"))
    assert "free space" in found.value.hint
    assert read_log(tmp_path) == before
    append(tmp_path, record(), DRAW)
    assert read_log(tmp_path).version == before.version + 1


def test_who_saw_an_older_version_is_told_and_nothing_is_written(tmp_path):
    append(tmp_path, record(), DRAW, after=0)
    with pytest.raises(ConflictError, match="corrected elsewhere") as found:
        append(tmp_path, record(), replace(DRAW, tissue="RET"), after=0)
    assert (found.value.got, found.value.expected) == ("version 0", "version 1")
    assert read_log(tmp_path).version == 1
    append(tmp_path, record(), replace(DRAW, tissue="RET"), after=1)


def test_a_damaged_line_is_told_with_its_number(tmp_path):
    for _ in range(3):
        append(tmp_path, record(), DRAW)
    whole = lines(tmp_path)
    wrong = {
        "not JSON": (2, "{"),
        "a list": (2, "[]"),
        "a missing key": (2, "{}"),
        "another number": (2, whole[2].replace('"number": 2', '"number": 7')),
        "an unknown action": (2, whole[2].replace('"draw"', '"erase"')),
        "an unknown tissue": (2, whole[2].replace('"EPI"', '"BONE"')),
        "an undo of nothing": (1, whole[1].replace('"draw"', '"undo"')),
        "a format of another version": (0, whole[0].replace("corrections/1", "corrections/9")),
    }
    for what, (number, line) in wrong.items():
        text = "\n".join([*whole[:number], line, *whole[number + 1 :]]) + "\n"
        (tmp_path / "corrections.jsonl").write_text(text, encoding="utf-8")
        for act in (read_log, lambda folder: append(folder, record(), DRAW)):
            with pytest.raises(
                DataError, match="damaged in line 4" if number == 1 else f"damaged in line {number + 1}"
            ):
                act(tmp_path)
        assert (tmp_path / "corrections.jsonl").read_text(encoding="utf-8") == text, what


def test_steps_about_another_mask_are_refused(tmp_path):
    append(tmp_path, record(), DRAW)
    for act in (lambda other: append(tmp_path, other, DRAW), read_log(tmp_path).check):
        with pytest.raises(RefusedError, match="about another mask"):
            act(record(mask="1" * 64))


@pytest.mark.parametrize("initials", ["", "ABCDEFGHI", "A\nB", "\x1b[1m"])
def test_initials_are_short_and_printable(initials):
    with pytest.raises(UsageError, match="impossible initials"):
        replace(DRAW, by=initials)


def test_a_log_is_full_before_it_cannot_be_read_any_more(tmp_path):
    path = tmp_path / "corrections.jsonl"
    append(tmp_path, record(), DRAW)
    first, step = lines(tmp_path)
    most = [step.replace('"number": 1', f'"number": {number}') for number in range(1, MOST_STEPS + 1)]
    path.write_text("\n".join([first, *most, ""]))
    with pytest.raises(RefusedError, match="no further correction fits"):
        append(tmp_path, record(), DRAW)
    assert read_log(tmp_path).version == MOST_STEPS
    path.write_text("\n".join([first, *most, step, ""]))
    with pytest.raises(DataError, match="is damaged in line 5002"):
        read_log(tmp_path)
    long = step.replace("0+3", "0+3" + " 1+1" * (MOST_BYTES // 8))
    path.write_text("\n".join([first, long, ""]))
    assert append(tmp_path, record(), DRAW).version == 2
    size = path.stat().st_size
    with pytest.raises(RefusedError, match="no further correction fits"):
        append(tmp_path, record(), replace(DRAW, named=json.loads(long)["named"]))
    assert (path.stat().st_size, read_log(tmp_path).version) == (size, 2)
    path.write_text("\n".join([first, long, long.replace('"number": 1', '"number": 2'), ""]))
    with pytest.raises(DataError, match="at most 64 MB are read"):
        read_log(tmp_path)
