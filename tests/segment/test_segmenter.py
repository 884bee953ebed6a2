"""An error is one slide's own; what is meant to stop everything does; two processes share a folder."""

import logging
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.evaluation.small import NAMES, ByColour
from tests.helpers import wait_for
from tests.segment.small import BKG, fingerprints, paint, rows_of, run, write_slide
from typer.testing import CliRunner

from ntrm.cli.main import app
from ntrm.core.errors import DataError
from ntrm.models.registry import ARCHITECTURES
from ntrm.results.slide_state import alone, remember_failure, remembered
from ntrm.segment import segmenter as segmenter_module
from ntrm.segment.segmenter import LONGEST, reason_of
from ntrm.slides.inputs import SlideInput

pytestmark = pytest.mark.usefixtures("quick_readers")

runner = CliRunner()


class Brittle(ByColour):
    """Raises where it sees much cancer."""

    error = None

    def segment(self, x, *, coarse, graph):
        found = super().segment(x, coarse=coarse, graph=graph)
        much = (found.final.argmax(dim=1) == NAMES.index("SCC")).float().mean()
        if self.error is not None and much > 0.25:
            raise self.error
        return found


@pytest.fixture
def slides(tmp_path, random):
    """Three slides; the second is called after a patient and is all cancer."""
    masks = [paint(random) for _ in range(3)]
    masks[1][masks[1] != BKG] = NAMES.index("SCC")
    names = ("a.tif", "Jane Doe.tif", "c.tif")
    for name, mask in zip(names, masks, strict=True):
        write_slide(tmp_path / "in" / name, mask)
    table = tmp_path / "list.csv"
    rows = [f"in/{name},{slide_id},7" for name, slide_id in zip(names, "abc", strict=True)]
    table.write_text("\n".join(["slide,slide_id,age", *rows, ""]), encoding="utf-8")
    return table


def failure(out):
    (row,) = [row for row in rows_of(out) if row["slide_id"] == "b"]
    return row


def test_a_bug_in_one_slide_does_not_stop_the_others(tmp_path, slides, caplog):
    run(slides, tmp_path / "whole")
    network = Brittle()
    network.error = RuntimeError("the size of tensor a (3) must match that of 'Jane Doe'")
    with caplog.at_level(logging.DEBUG, logger="ntrm"):
        found = run(slides, tmp_path / "out", network)
    assert [(each.slide_id, each.status, each.unexpected) for each in found.slides] == [
        ("a", "done", False),
        ("b", "failed", True),
        ("c", "done", False),
    ]
    assert found.exit_code == 1
    row = failure(tmp_path / "out")
    assert row["status"] == "failed"
    assert row["age"] == "7"
    assert row["reason"].startswith("unexpected RuntimeError: the size of tensor a (3) must match that of …")
    assert "Jane" not in row["reason"]
    assert "Traceback" in caplog.text
    # Fixed, the same command goes on and comes to the same end.
    network.error = None
    again = run(slides, tmp_path / "out", network)
    assert [each.status for each in again.slides] == ["kept", "done", "kept"]
    assert fingerprints(tmp_path / "out") == fingerprints(tmp_path / "whole")


def test_a_failure_is_not_written_over_the_work_of_another_process(tmp_path):
    folder = tmp_path / "out" / "a"
    with alone(folder):
        remember_failure(folder, "a", "too late", {})
        assert remembered(folder) is None
    remember_failure(folder, "a", "in time", {})
    assert remembered(folder).row["reason"] == "in time"


STOPPED = """
import os, sys, time
from tests.evaluation.small import ByColour
from tests.segment.small import InProcess
from ntrm.cli.main import app
from ntrm.models.registry import ARCHITECTURES
from ntrm.slides import isolated

class Slow(ByColour):
    def segment(self, x, *, coarse, graph):
        open(f"{out}.working", "w").close()
        while not os.path.exists(f"{out}.signalled"):
            time.sleep(0.01)
        return super().segment(x, coarse=coarse, graph=graph)

ARCHITECTURES["by-colour"], isolated.ReadingProcess = Slow, InProcess
slides, model, out = sys.argv[1:]
app(["segment", slides, "--model", model, "--out", out, "--device", "cpu", "--batch", "2"])
"""


def test_a_signal_stops_the_command_which_then_goes_on(tmp_path, slides, monkeypatch, forks):
    monkeypatch.setitem(ARCHITECTURES, "by-colour", ByColour)
    ByColour().save_pretrained(tmp_path / "model")
    outs = {number: tmp_path / number.name for number in (signal.SIGTERM, signal.SIGINT)}
    for number, out in outs.items():
        pid = forks.start(STOPPED, slides, tmp_path / "model", out)
        wait_for("the network", Path(f"{out}.working").exists)
        os.kill(pid, number)
        Path(f"{out}.signalled").touch()
        ended = forks.wait()
        assert ended.status == 130
        assert "same command again to continue" in ended.errors
        assert "Traceback" not in ended.errors
        assert not (out / "slides.csv").exists()
        assert remembered(out / "a") is None
    for out in (outs[signal.SIGTERM], tmp_path / "whole"):  # how it goes on is the same for both
        words = ["segment", slides, "--model", tmp_path / "model", "--out", out, "--device", "cpu", "--batch", 2]
        again = runner.invoke(app, [*map(str, words)])
        assert again.exit_code == 0, again.output
    assert fingerprints(outs[signal.SIGTERM]) == fingerprints(tmp_path / "whole")


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Slides, and the fingerprints of their results."""
    random, folder = np.random.default_rng(2), tmp_path_factory.mktemp("three")
    slides = [write_slide(folder / f"{name}.tif", paint(random)) for name in "abc"]
    run(slides, folder / "whole")
    return slides, fingerprints(folder / "whole")


def test_shards_at_the_same_time_leave_the_tables_of_one_run(tmp_path, three):
    slides, expected = three
    start = threading.Barrier(3)

    def shard(part):
        start.wait()
        return run(slides, tmp_path / "out", shard=f"{part}/3")

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(shard, (1, 2, 3)))
    assert [each.exit_code for each in found] == [0, 0, 0]
    assert fingerprints(tmp_path / "out") == expected


def test_the_same_command_twice_at_the_same_time_does_every_slide_once(tmp_path, three, monkeypatch):
    slides, expected = three
    start = threading.Barrier(2)
    finished = []
    original = segmenter_module.write_slide

    def counted(found, work):
        state = original(found, work)
        finished.append(found.files.slide_id)
        return state

    monkeypatch.setattr(segmenter_module, "write_slide", counted)

    def same(_):
        start.wait()
        return run(slides, tmp_path / "out")

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(same, range(2)))
    assert sorted(finished) == ["a", "b", "c"]
    assert {each.status for both in found for each in both.slides} <= {"done", "kept", "busy"}
    # Whoever ends last has the tables of all; a busy slide may still have been under way for the other.
    assert run(slides, tmp_path / "out").exit_code == 0
    assert fingerprints(tmp_path / "out") == expected


SLIDE = SlideInput(Path("/archive/Doe, Jane/Jane Doe 1950.svs"), "Jane Doe 1950.svs")


def reason(error):
    try:
        raise error
    except Exception as raised:  # noqa: BLE001 - a traceback is wanted
        return reason_of(raised, SLIDE, "s7")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("no date: 'Jane Doe, 1950'"), "unexpected ValueError: no date: …"),
        (ValueError('bad "O\'Neill" here'), "unexpected ValueError: bad … here"),
        (AttributeError("'Look' object has no attribute 'x'"), "unexpected AttributeError: 'Look' object has no"),
        (RuntimeError("in /home/jane.doe/x.py line 3"), "unexpected RuntimeError: in … line 3"),
        (RuntimeError(f"reading {SLIDE.path} failed"), "unexpected RuntimeError: reading"),
        (OSError(28, "No space left on device", "/archive/Doe, Jane/x"), "OSError: No space left on device"),
        (MemoryError(), "MemoryError: the memory is full"),
        (DataError("damaged", got="Jane Doe 1950.svs", hint="copy"), "damaged; got s7; copy"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried"), "unexpected OutOfMemoryError: CUDA out of memory. Tried"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_reasons_say_what_happened_and_not_to_whom(error, expected):
    text = reason(error)
    assert text.startswith(expected), text
    assert "Doe" not in text
    assert "Jane" not in text
    assert "O'Neill" not in text
    assert "\n" not in text


def test_the_place_in_the_program_is_told_for_bugs_and_pages_of_text_are_cut():
    from ntrm.slides.grid import SlideGrid

    try:
        SlideGrid(None, 1.0)
    except AttributeError as error:
        text = reason_of(error, SLIDE, "s7")
    assert "(at slides/grid.py:" in text
    assert "NoneType" in text
    assert len(reason(RuntimeError("much " * 1000))) == LONGEST
