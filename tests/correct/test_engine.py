"""What follows from clicks: accepted means accepted, reach is nested, and texture is found again."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from ntrm.core.errors import RefusedError
from ntrm.core.labels import LabelSchema, Tissue
from ntrm.correct.engine import ALL, CLICKED, LEAST_PIXELS, NONE, propose, suggestions
from ntrm.correct.learning import Seen, examples_of, learn
from ntrm.correct.log import Step
from ntrm.correct.pixels import PixelSet
from ntrm.correct.state import State
from ntrm.correct.texture import Texture, numbers_of

SHAPE = (40, 60)
NAMES = "glass", "left", "right", "middle"
SCHEMA = LabelSchema(tuple(Tissue(k, name, name.title(), (k, 0, 0)) for k, name in enumerate(NAMES)), "glass")


def seen(labels=None, sure=None, trusted=False, seed=0):
    """Three bands that look different, left, middle and right, under a mask that calls all of them left."""
    random = np.random.default_rng(seed)
    size = numbers_of((1,))
    looks = np.zeros((*SHAPE, size), dtype=np.float32)
    looks[:, :20, 0], looks[:, 40:, 0], looks[:, 20:40, 1] = -1, 1, 1
    values = (looks + random.normal(0, 0.1, looks.shape)).astype(np.float16)
    texture = Texture(SHAPE, 1, (1,), np.ones((1, 1), dtype=bool), np.eye(size), values)
    labels = np.ones(SHAPE, dtype=np.uint8) if labels is None else labels
    confidence = None if sure is None else np.full(SHAPE, sure, dtype=np.float32)
    return Seen(SCHEMA, labels, texture, confidence, trusted)


def disc(row, column):
    inside = np.zeros(SHAPE, dtype=bool)
    inside[row - 3 : row + 4, column - 3 : column + 4] = True
    return PixelSet.of_window(inside, 0, 0, SHAPE[1])


def said(tissue, row, column, **more):
    return Step(action="name", tissue=tissue, places=((row, column),), spread="texture", **more), disc(row, column)


def accepted(slide, state, click, named, **how):
    """The state after a click and what followed."""
    step = propose(slide, state, click, named, **how).step(SCHEMA, 1.0)
    return state.with_step(replace(step, number=len(state.steps) + 1))


def start():
    return State(SHAPE, SCHEMA)


def test_what_looks_alike_follows():
    slide = seen(sure=0.7)
    found = propose(slide, start(), *said("right", 20, 50))
    followed = found.followed[2].rows(0, *SHAPE)
    assert followed[:, 42:].sum() > 0.9 * (18 * 40 - 49)
    assert not followed[:, :38].any()
    assert not followed[17:24, 47:54].any()  # named itself
    assert found.pieces[0].why == "looks like what you named Right, and touches it"
    assert all(piece.pixels >= LEAST_PIXELS for piece in found.pieces)


def test_without_a_network_two_names_are_needed():
    slide = seen()
    state = accepted(slide, start(), *said("right", 20, 50))
    assert state.followed.pixels == 0
    state = accepted(slide, state, *said("middle", 20, 30))
    painted = state.paint(slide.labels)
    assert (painted[:, 42:] == 2).mean() > 0.95
    assert (painted[:, 22:38] == 3).mean() > 0.95


def test_what_a_person_named_never_changes_by_what_follows():
    slide = seen(sure=0.7)
    state = accepted(slide, start(), *said("middle", 8, 50))
    state = accepted(slide, state, *said("right", 30, 50))
    state = accepted(slide, state, *said("right", 20, 55), revise=ALL)
    assert (state.paint(slide.labels)[5:12, 47:54] == 3).all()


@pytest.mark.parametrize(("revise", "changes"), [(NONE, False), (CLICKED, True), (ALL, True)])
def test_accepted_followers_change_where_the_click_lies_among_them(revise, changes):
    slide = seen(sure=0.7)
    state = accepted(slide, start(), *said("middle", 20, 50))
    before = state.followed
    assert before.rows(0, *SHAPE)[:, 42:].mean() > 0.8
    found = propose(slide, state, *said("right", 30, 45), revise=revise)
    both = sum((pixels & before).pixels for pixels in found.followed.values())
    assert (both > 0) == changes
    assert found.touched == ({1: both} if changes else {})


def test_followers_of_another_step_stay():
    slide = seen(sure=0.7)
    state = accepted(slide, start(), *said("right", 20, 50))
    state = accepted(slide, state, *said("middle", 20, 30))
    first = state.changes[0][1]
    found = propose(slide, state, *said("left", 20, 25))
    assert all(not pixels & first for pixels in found.followed.values())


def test_reach_is_nested():
    slide, followed = seen(sure=0.7), []
    for reach in (0.25, 0.5, 1.0, 2.0, 4.0):
        found = propose(slide, start(), *said("right", 20, 50, reach=reach))
        followed.append(found.followed.get(2, PixelSet.empty()))
    for small, large in pairwise(followed):
        assert not small - large
    assert followed[0].pixels < followed[-1].pixels


def test_left_out_pieces_do_not_follow():
    slide = seen(sure=0.7)
    found = propose(slide, start(), *said("right", 20, 50, left_out=((5, 50),)))
    assert not found.followed.get(2, PixelSet.empty()).holds(np.array([5 * SHAPE[1] + 50])).any()


def test_on_a_familiar_slide_only_what_touches_follows():
    labels = np.ones(SHAPE, dtype=np.uint8)
    slide = seen(sure=0.7, trusted=True)
    values = slide.texture.values.copy()
    values[:, :5] = values[:, 50:55]  # looks the same far away
    slide = replace(slide, texture=replace(slide.texture, values=values), labels=labels)
    near = propose(slide, start(), *said("right", 20, 52))
    far = propose(replace(slide, trusted=False), start(), *said("right", 20, 52))
    assert not near.followed.get(2, PixelSet.empty()).rows(0, *SHAPE)[:, :10].any()
    assert far.followed[2].rows(0, *SHAPE)[:, :5].any()


def test_glass_stays_glass_without_a_network_unless_a_person_found_tissue_there():
    labels = np.ones(SHAPE, dtype=np.uint8)
    labels[:, 55:] = 0
    slide = seen(labels)
    state = accepted(slide, start(), *said("middle", 20, 30))
    state = accepted(slide, state, *said("right", 20, 46))
    assert (state.paint(labels)[:, 55:] == 0).all()
    state = accepted(slide, state, *said("right", 20, 56))
    assert (state.paint(labels)[:, 55:] == 2).mean() > 0.8


def test_clicks_on_one_slide_are_applied_to_another():
    one, other = seen(sure=0.7), seen(sure=0.6, seed=1)
    state = accepted(one, start(), *said("right", 20, 50))
    classifier = learn([(one, state)])
    click = Step(action="name", tissue="right", spread="texture")
    found = propose(other, start(), click, PixelSet.empty(), classifier=classifier)
    assert found.followed[2].rows(0, *SHAPE)[:, 42:].mean() > 0.9
    assert classifier.about.named == ("right",)
    texture = replace(other.texture, zooms=(7, 3))
    with pytest.raises(RefusedError, match="resolution"):
        propose(replace(other, texture=texture), start(), click, PixelSet.empty(), classifier=classifier)
    names = LabelSchema(SCHEMA.tissues[:3], "glass")
    with pytest.raises(RefusedError, match="tissues"):
        propose(replace(other, schema=names), start(), click, PixelSet.empty(), classifier=classifier)


def test_the_latest_word_about_a_pixel_counts():
    slide, state = seen(), start()
    for tissue in ("middle", "right"):
        state = state.with_step(replace(said(tissue, 20, 50)[0], named=disc(20, 50).text))
    assert set(examples_of(slide, state).tissue.tolist()) == {2}


def test_suggestions_lie_where_two_names_are_close_or_nothing_like_it_was_named():
    slide = seen(sure=0.7)
    state = accepted(slide, start(), *said("right", 20, 50))
    found = suggestions(slide, state)
    assert found
    assert {each.why for each in found} <= {"unlike everything named so far", "between two tissues"}
