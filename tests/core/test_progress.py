import io
import json
import sys
from types import SimpleNamespace

import pytest
from tests.helpers import Terminal

from ntrm.core.errors import UsageError
from ntrm.core.progress import SILENT, BarProgress, JsonProgress, as_progress, make_progress


@pytest.mark.parametrize("kind", [SILENT, JsonProgress(), BarProgress()])
def test_items_pass_through_unchanged(kind):
    assert list(kind.track(iter("abc"), 3, "letters")) == ["a", "b", "c"]


def test_json_events_end_with_everything_done(capsys, monkeypatch):
    monkeypatch.setattr(JsonProgress, "interval_s", 0.0)
    list(JsonProgress().track(range(4), 4, "work"))
    out, err = capsys.readouterr()
    events = [json.loads(line) for line in err.splitlines()]
    assert out == ""
    assert [event["done"] for event in events] == [1, 2, 3, 4]
    assert events[-1]["seconds_left"] == 0
    assert all(event["total"] == 4 and event["label"] == "work" for event in events)


def test_no_items_is_no_error(capsys):
    assert list(JsonProgress().track([], 0, "nothing")) == []
    assert json.loads(capsys.readouterr().err)["seconds_left"] is None


def test_a_bar_needs_a_terminal_and_an_unknown_kind_lists_the_choices():
    assert make_progress("bar") is SILENT
    assert make_progress("none") is SILENT
    with pytest.raises(UsageError, match="bar, json, none"):
        make_progress("fancy")


def test_from_python_a_bar_is_shown_where_somebody_may_see_it(monkeypatch):
    mine = JsonProgress()
    assert as_progress(mine) is mine
    for wrong in (None, "bar", 1):
        with pytest.raises(UsageError, match="True, False"):
            as_progress(wrong)
    assert as_progress(True) is as_progress(False) is SILENT
    with monkeypatch.context() as terminal:
        terminal.setattr(sys, "stderr", Terminal())
        assert isinstance(as_progress(True), BarProgress)
        assert as_progress(False) is SILENT
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel="one"))
    with monkeypatch.context() as notebook:
        notebook.setitem(sys.modules, "IPython", kernel)
        notebook.setattr(sys, "stderr", shown := io.StringIO())
        assert list(as_progress(True).track("abc", 3, "letters")) == ["a", "b", "c"]
        assert "letters" in shown.getvalue()
        # A notebook writes a line again, and knows no way up.
        assert "\x1b[1A" not in shown.getvalue()


def test_a_bar_within_another_stands_below_it_while_it_lasts(monkeypatch):
    monkeypatch.setattr(sys, "stderr", shown := Terminal())
    bars = BarProgress()
    for _ in bars.track(range(2), 2, "slides"):
        assert list(bars.track("ab", 2, "windows")) == ["a", "b"]
    last = shown.getvalue().rsplit("\r", 1)[1]
    assert ("slides" in last, "windows" in last, "windows" in shown.getvalue()) == (True, False, True)
