"""The steps of a log, one laid over the other, against painting a dictionary pixel by pixel."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.correct.steps import CLASSES, SHAPE, SIZE, logs, record

from ntrm.core.labels import LabelSchema, Tissue
from ntrm.correct.log import Log, Step
from ntrm.correct.state import state_of

SCHEMA = LabelSchema(tuple(Tissue(k, name, name, (k, k, k)) for k, name in enumerate(CLASSES)), background="BKG")


def pixels(text):
    """The flattened indices of a text."""
    at, found = 0, set()
    for skip, take in (part.split("+") for part in text.split()):
        found |= {*range(at + int(skip), at + int(skip) + int(take))}
        at += int(skip) + int(take)
    return found


def literal(log):
    """Class by pixel, and who named it, of the steps that were not undone; and which can be done again."""
    done, undone = [], []
    for step in log.steps:
        if step.action == "undo":
            undone.append(done.pop())
        elif step.action == "redo":
            done.append(undone.pop())
        else:
            done, undone = [*done, step], []
    names, who = {}, {}
    for step in done:
        named = pixels(step.named)
        for tissue, text in step.followed.items():
            for pixel in pixels(text) - named:
                names[pixel] = CLASSES.index(tissue)
                who.setdefault(pixel, "followed")
        for pixel in named:
            names[pixel], who[pixel] = CLASSES.index(step.tissue), "hand"
    return names, who, done, undone


@given(logs(), st.randoms(use_true_random=False))
def test_replaying_a_log_is_painting_its_steps_one_by_one(log, random):
    mask = np.array([random.randrange(len(CLASSES)) for _ in range(SIZE)], dtype=np.uint8).reshape(SHAPE)
    found, (names, _, done, undone) = state_of(log, SCHEMA, SHAPE), literal(log)
    expected = mask.copy()
    for pixel, tissue in names.items():
        expected.flat[pixel] = tissue
    np.testing.assert_array_equal(found.paint(mask), expected)
    top = random.randrange(SHAPE[0])
    np.testing.assert_array_equal(found.paint(mask[top:], top), expected[top:])
    rows, columns = np.arange(SHAPE[0]), np.arange(0, SHAPE[1], 2)
    np.testing.assert_array_equal(found.at(rows, columns, mask[np.ix_(rows, columns)]), expected[np.ix_(rows, columns)])
    assert (found.steps, log.undone) == (tuple(done), tuple(undone))


@given(logs())
def test_what_is_by_hand_and_what_followed_are_told_apart(log):
    found, (_, who, done, _) = state_of(log, SCHEMA, SHAPE), literal(log)
    every = np.arange(SIZE)
    assert {*every[found.by_hand.holds(every)].tolist()} == {pixel for pixel, one in who.items() if one == "hand"}
    followed = {*every[found.followed.holds(every)].tolist()}
    assert {pixel for pixel, one in who.items() if one == "followed"} <= followed
    assert found.regions == sum(max(step.regions, 1) for step in done)


def test_places_outside_the_mask_are_left_as_they_are():
    log = Log(record(), (Step(number=1, action="draw", tissue="EPI", named=f"0+{SIZE}"),))
    found = state_of(log, SCHEMA, SHAPE)
    seen = found.at(np.array([-1, 0]), np.array([0, SHAPE[1]]), np.full((2, 2), 2, dtype=np.uint8))
    assert seen.tolist() == [[2, 2], [0, 2]]


@given(logs(), st.data())
def test_what_is_known_of_earlier_steps_does_not_change_what_a_log_comes_to(log, data):
    counts = data.draw(st.lists(st.integers(0, len(log.steps)), max_size=3))
    known = [state_of(Log(log.record, log.steps[:count]), SCHEMA, SHAPE) for count in counts]
    fresh, found = state_of(log, SCHEMA, SHAPE), state_of(log, SCHEMA, SHAPE, known)
    assert found.steps == fresh.steps
    assert {index: pixels.text for index, pixels in found.tissue.items()} == {
        index: pixels.text for index, pixels in fresh.tissue.items()
    }
    assert (found.by_hand.text, found.followed.text) == (fresh.by_hand.text, fresh.followed.text)
