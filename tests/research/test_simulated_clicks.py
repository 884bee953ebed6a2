"""A person who clicks on what is wrong: where, what it is worth, and what is scored."""

import numpy as np
import pytest
from research.simulated_clicks import (
    CORES_AS_SKIN,
    ORDERS,
    Names,
    Truth,
    disc,
    from_nothing,
    middle_of_largest,
    simulate,
)
from scipy import ndimage
from tests.correct.test_engine import NAMES, SCHEMA, SHAPE, seen

from ntrm.core.labels import IGNORE, SKIN


def bands():
    """The truth of ``seen``: left, middle and right."""
    truth = np.ones(SHAPE, dtype=np.uint8)
    truth[:, 20:40], truth[:, 40:], truth[:2] = 3, 2, IGNORE
    return truth


def truth_of(slide):
    return Truth.of(bands(), Names.same(NAMES), slide.schema)


@pytest.mark.parametrize("order", ORDERS[:3])
def test_clicks_mend_what_is_wrong_and_what_was_named_stays(order):
    slide = seen(sure=0.7)
    scores, state = simulate(slide, truth_of(slide), order, most=8)
    assert len(scores) == 9
    assert scores[-1].iou > scores[0].iou + 0.3
    for step, (named, _) in zip(state.steps[::-1], state.changes[::-1], strict=True):
        if not any(named & later for later, _ in state.changes[step.number :]):
            assert (state.paint(slide.labels)[named.rows(0, *SHAPE)] == SCHEMA.index(step.tissue)).all()


def test_from_nothing_everything_is_unnamed_until_there_are_two_names():
    slide = from_nothing(seen(sure=0.7))
    truth = truth_of(slide)
    scores, state = simulate(slide, truth, most=4)
    assert (slide.labels == slide.schema.unnamed_index).all()
    assert scores[0].iou == 0
    assert scores[1].iou < 0.1
    assert scores[4].iou > 0.8
    assert state.paint(slide.labels).max() < slide.schema.unnamed_index


def test_mean_iou_is_that_of_the_definition(random):
    truth = Truth.of(random.choice([0, 1, 2, 3, 4, IGNORE], (9, 9)).astype(np.uint8), CORES_AS_SKIN, SKIN)
    labels = random.integers(0, len(SKIN), (9, 9)).astype(np.uint8)
    expected = []
    for tissue in range(3):
        own = truth.mask == tissue
        said = truth.right[tissue][labels] & (truth.mask != IGNORE)
        expected.append((own & said).sum() / (own | said).sum())
    assert truth.mean_iou(labels) == pytest.approx(np.mean(expected))
    np.testing.assert_array_equal(
        truth.wrong(labels, np.zeros((9, 9), bool)) > 0, (truth.mask != IGNORE) & ~truth.is_right(labels)
    )


def test_the_middle_of_the_largest_wrong_region_is_farthest_from_its_border(random):
    wrong = (random.random((30, 30)) < 0.55).astype(np.uint8) * 2
    row, column = middle_of_largest(wrong)
    numbers, _ = ndimage.label(wrong)
    largest = numbers == np.bincount(numbers[numbers > 0]).argmax()
    assert largest[row, column]
    others = np.argwhere(~np.pad(largest, 1))
    away = [np.hypot(*(others - (y + 1, x + 1)).T).min() for y, x in np.argwhere(largest)]
    assert np.hypot(*(others - (row + 1, column + 1)).T).min() == pytest.approx(max(away))


def test_a_click_names_a_disc():
    assert disc((0, 0), (5, 5)).sum() == 11
