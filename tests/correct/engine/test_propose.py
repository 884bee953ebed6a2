"""What a click would change: on chains of parts, and on random graphs against two spreads compared part by part."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.correct.engine.test_spread import BCC, BKG, EPI, RET, chain

from ntrm.core.labels import SKIN
from ntrm.correct.engine.propose import MOST_AT_ONCE, MOST_CLICKS, learned, propose
from ntrm.correct.engine.spread import spread
from ntrm.correct.log import Log, MaskRecord, Step
from ntrm.correct.state import State, state_of

TISSUES = [EPI, RET, BCC, BKG]


def nothing(graph):
    """No corrections so far."""
    return State(graph.runs.shape, SKIN)


def clicked(places, tissue, reach=1.0, **more):
    return Step(action="name", tissue=tissue, places=tuple(places), reach=reach, **more)


def step_of(proposal):
    return proposal.step(SKIN, 1e-4)


def after(graph, *steps):
    """The corrections of these steps."""
    height, width = graph.runs.shape
    record = MaskRecord(slide_id="a", mask="0" * 64, height=height, width=width, classes=SKIN.names)
    numbered = tuple(Step(**{**vars(step), "number": number}) for number, step in enumerate(steps, 1))
    return state_of(Log(record, numbered), SKIN, graph.runs.shape)


def at(*nodes):
    """A place in each of these parts of a chain."""
    return tuple((0, 2 * node) for node in nodes)


def painted(graph, corrections):
    """(N,) the class of each part after the corrections; all its pixels must have it."""
    mask, nodes = corrections.paint(graph.mask()), graph.runs.dense()
    found = [np.unique(mask[nodes == node]) for node in range(len(graph))]
    assert all(len(names) == 1 for names in found)
    return [int(names[0]) for names in found]


@st.composite
def graphs(draw):
    count = draw(st.integers(2, 8))
    tissue = draw(st.lists(st.sampled_from(TISSUES), min_size=count, max_size=count))
    looks = draw(st.lists(st.sampled_from([0.0, 0.1, 1.0, 5.0]), min_size=count, max_size=count))
    return chain(tissue, looks, region=draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)))


@given(graphs(), st.data())
def test_what_follows_is_the_difference_that_the_click_makes(graph, data):
    nodes = st.integers(0, len(graph) - 1)
    first, second = data.draw(nodes), data.draw(nodes)
    one, other = (data.draw(st.sampled_from(["EPI", "RET"])) for _ in range(2))
    done = after(graph, step_of(propose(graph, nothing(graph), clicked(at(first), one))))
    proposal = propose(graph, done, clicked(at(second), other))
    before = {first: SKIN.index(one)}
    without, now = (spread(graph, clicks).tissue for clicks in (before, before | {second: SKIN.index(other)}))
    expected = [node for node in range(len(graph)) if now[node] != without[node] and node not in (first, second)]
    assert proposal.nodes.tolist() == [second]
    assert proposal.followers.tolist() == expected
    assert proposal.names.tolist() == [now[node] for node in expected]
    assert proposal.regions == 1 + len(expected)
    assert proposal.pixels == proposal.regions * 4


@given(graphs(), st.data())
def test_an_accepted_proposal_paints_what_it_showed(graph, data):
    node = data.draw(st.integers(0, len(graph) - 1))
    whole = data.draw(st.booleans())
    proposal = propose(graph, nothing(graph), clicked(at(node), "RET", whole_regions=whole))
    expected = graph.tissue.copy()
    expected[proposal.followers] = proposal.names
    expected[proposal.nodes] = RET
    assert painted(graph, after(graph, step_of(proposal))) == expected.tolist()


def test_what_a_person_named_or_took_out_does_not_follow():
    graph = chain([BCC] * 4, [0.0] * 4)
    free = propose(graph, nothing(graph), clicked(at(0), "EPI"))
    assert free.followers.tolist() == [1, 2, 3]
    named = after(graph, Step(action="name", tissue="BCC", places=at(2), named="4+2 6+2"))
    drawn = after(graph, Step(action="draw", tissue="BCC", named="2+1"))
    for corrections, left_out, kept in ((named, (), 2), (drawn, (), 1), (nothing(graph), at(3), 3)):
        proposal = propose(graph, corrections, clicked(at(0), "EPI", left_out=left_out))
        assert kept not in proposal.followers
    # Of a part that was drawn over in one place, the rest still follows.
    assert propose(graph, drawn, clicked(at(0), "EPI")).followed[EPI].pixels == 4 * 3 - 1


def test_what_was_taken_out_once_stays_out_of_later_clicks():
    graph = chain([BCC] * 4, [0.0] * 4)
    step = step_of(propose(graph, nothing(graph), clicked(at(0), "EPI", left_out=at(3))))
    assert step.left_out == at(3)
    later = propose(graph, after(graph, step), clicked(at(1), "RET", reach=4.0))
    assert 3 not in later.followers


def test_a_click_in_one_slide_is_carried_on_to_another():
    here, there = chain([BCC, RET], [0.0, 5.0]), chain([BCC, BCC, RET], [0.1, 0.0, 5.0])
    click = clicked(at(0), "EPI", reach=0.25)
    proposal = propose(there, nothing(there), click, learned(here, nothing(here)))
    assert proposal.followers.tolist() == [0, 1]
    assert not proposal.named
    step = step_of(proposal)
    assert (step.places, step.named) == ((), "")
    assert painted(there, after(there, step)) == [EPI, EPI, RET]


def test_of_many_parts_named_at_once_all_are_named_and_some_are_carried_on():
    count = 5 * MOST_AT_ONCE
    graph = chain([BCC] * count, [0] * count)
    clicks = tuple((place, RET) for place in at(*range(MOST_CLICKS)))
    for before, follows in (((), True), (clicks, False)):
        state = State(graph.runs.shape, SKIN, clicks=before)
        found = propose(graph, state, clicked(at(*range(MOST_CLICKS, count - 1)), "EPI"))
        assert found.nodes.tolist() == [*range(MOST_CLICKS, count - 1)]
        assert (count - 1 in found.followers) == follows
