import json

import pytest

from ntrm.core.errors import UsageError
from ntrm.core.progress import SILENT, BarProgress, JsonProgress, make_progress


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
