"""`make fuzz`: quick tests are drawn most often, failures are kept, and no end of a process is overlooked."""

import json
import random
import subprocess
import sys
from types import SimpleNamespace

import pytest
from tests import fuzz

KNOWN = {"node": "tests/a.py::test_a", "seed": 5}


class Clock:
    """Time that passes only in tests."""

    now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def rounds(tmp_path, monkeypatch):
    """Rounds whose tests take as long as they are called, and fail if they are called so."""
    clock = Clock()
    monkeypatch.setattr(fuzz, "time", clock)

    class Pretended(fuzz.Rounds):
        drawn = 0

        def once(self, item, _session):
            self.drawn += 1
            clock.now += item.seconds
            self.failed[item.nodeid] += item.fails

    made = Pretended(1e9, tmp_path / "log")
    made.until, made.draw = 1e9, random.Random(0)
    return made


def some(rounds, seconds, fails=False, times=1):
    """How often a test is drawn in some rounds."""
    for _ in range(times):
        rounds.some(SimpleNamespace(nodeid=f"{seconds}", seconds=seconds, fails=fails), None)
    return rounds.drawn


def test_a_quick_test_is_drawn_often_in_a_round(rounds):
    assert some(rounds, 0.125) == 8


def test_nothing_is_drawn_without_end(rounds):
    assert some(rounds, 0.0) == fuzz.MOST


def test_a_long_test_is_drawn_in_the_first_round_and_then_rarely(rounds):
    assert some(rounds, 30) == 1
    assert some(rounds, 30, times=100) < 30


def test_a_test_that_fails_is_left_alone_after_a_while(rounds):
    assert some(rounds, 0.0, fails=True, times=5) == fuzz.ENOUGH


def test_failures_are_told_with_their_seeds(capsys):
    assert fuzz.summary([KNOWN, KNOWN]) == 0
    assert fuzz.summary([KNOWN, {**KNOWN, "failed": "AssertionError"}]) == 1
    assert "NTRM_TEST_SEED=5 pytest 'tests/a.py::test_a'\n1 draws of 1 tests, 1 failures" in capsys.readouterr().out


def test_to_draw_nothing_is_no_success():
    assert fuzz.summary([]) == 1


@pytest.mark.parametrize(
    ("program", "complaint"),
    [("", None), ("raise SystemExit(3)", "ended with 3"), ("input()", "no end")],
)
def test_a_process_that_ends_too_soon_or_too_late_is_a_failure(tmp_path, program, complaint):
    (tmp_path / "log").write_text(json.dumps(KNOWN) + "\n")
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    with child:
        begun, *failures = fuzz.ended(child, tmp_path / "log", 1 if complaint == "no end" else 60)
    assert begun == KNOWN
    assert [complaint in entry["failed"] and entry["seed"] for entry in failures] == ([5] if complaint else [])
