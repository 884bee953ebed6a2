"""Many parts named at once: all of them get the name, and a bounded number is carried on."""

import numpy as np
import pytest
from tests.correction.engine.test_spread import BCC, EPI, RET, chain

from ntrm.core.labels import SKIN
from ntrm.correction.engine import Click
from ntrm.correction.engine import propose as proposals
from ntrm.correction.engine.propose import MOST_AT_ONCE, MOST_CLICKS, propose
from ntrm.correction.state import State


def place(node):
    return 0, 2 * node


@pytest.fixture
def clicked(monkeypatch):
    """The clicks of each spreading, in their order."""
    seen, plain = [], proposals.spread
    monkeypatch.setattr(
        proposals, "spread", lambda graph, clicks, *how: seen.append(clicks) or plain(graph, clicks, *how)
    )
    return seen


def test_all_are_named_and_some_evenly_chosen_ones_are_carried_on(clicked):
    count = 5 * MOST_AT_ONCE
    graph = chain([BCC] * count, [0] * count)
    click = Click(tuple(place(node) for node in range(count - 1)), "EPI")
    found = propose(graph, State(graph.runs.shape, SKIN), click)
    assert found.nodes.tolist() == [*range(count - 1)]
    before, after = clicked
    assert before == {}
    assert len(after) == MOST_AT_ONCE
    assert np.diff(sorted(after)).max() <= count / MOST_AT_ONCE + 1
    assert set(after.values()) == {EPI}
    assert found.followers.tolist() == [count - 1]


def test_older_clicks_make_room(clicked):
    count = MOST_CLICKS + 10
    graph = chain([BCC] * count, [0] * count)
    clicks = tuple((place(node), RET) for node in range(MOST_CLICKS))
    now = State(graph.runs.shape, SKIN, clicks=clicks)
    propose(graph, now, Click((place(count - 1), place(count - 2)), "EPI"))
    before, after = clicked
    assert list(before) == [*range(2, MOST_CLICKS)]
    assert list(after) == [*range(2, MOST_CLICKS), count - 2, count - 1]
