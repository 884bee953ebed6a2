"""Simulated clicks: where they go, and what is counted."""

import numpy as np
import pytest
from bench.correction_curves import Section, Truth, middle_of_largest, next_click, simulate
from bench.skin_pas import LENIENT, TISSUES, confusion, tissue_ious
from tests.correction.test_spread import BCC, EPI, RET, chain

from ntrm.core.labels import IGNORE, SKIN
from ntrm.correction.spread import Settings


def test_a_click_goes_to_the_middle_of_the_largest_wrong_region():
    wrong = np.zeros((9, 12), dtype=np.uint8)
    wrong[0, :6] = 1
    wrong[2:7, 5:10] = 2
    assert middle_of_largest(wrong) == (4, 7)


def test_mean_iou_of_skin_pas_is_that_of_its_score(random):
    truth = random.choice([0, 1, 2, 3, IGNORE], (30, 30)).astype(np.uint8)
    predicted = random.integers(0, len(SKIN), (30, 30)).astype(np.uint8)
    table = confusion(truth, predicted)
    expected = np.mean(list(tissue_ious(table, LENIENT).values()))
    assert Truth.of_skin_pas(truth).mean_iou(table) == pytest.approx(expected)
    assert len(Truth.of_skin_pas(truth).name) == len(TISSUES)


def section():
    """Three nodes of 2 × 2 pixels; the second is wrong, and half of the third."""
    truth = np.array([[EPI, EPI, RET, RET, BCC, EPI]] * 2, dtype=np.uint8)
    return Section(chain([EPI, BCC, BCC], [0, 1, 2]), Truth.of_phantom(truth))


def test_scores_count_pixels_by_node():
    own = section()
    named = np.array([EPI, RET, EPI])
    assert own.truth.mean_iou(own.confusion(own.graph.tissue)) == pytest.approx((4 / 6 + 0 + 2 / 8) / 3)
    assert own.truth.mean_iou(own.confusion(named)) == pytest.approx((6 / 8 + 1 + 0) / 3)
    assert own.truth.mean_iou(own.confusion(named, [1])) == pytest.approx((6 / 8 + 0) / 2)
    assert own.broken(named) == pytest.approx(2 / 12)


def test_clicks_name_the_truth_until_nothing_else_is_wrong(random):
    own = section()
    assert next_click(own, own.graph.tissue, [], "largest", random) == (1, RET)
    assert next_click(own, np.array([EPI, RET, BCC]), [1, 2], "largest", random) is None
    curve = simulate(own, "part", "largest", Settings())
    assert [row["iou"] for row in curve[:2]] == pytest.approx([(4 / 6 + 2 / 8) / 3, (4 / 6 + 1 + 2 / 4) / 3])
