import pytest

from ntrm.models.registry import ARCHITECTURES
from ntrm.reproduction.paper import OURS, QUOTED_MIT, SYSTEMS, TABLE_1, TABLE_2, TITLES


def test_the_numbers_give_the_gains_that_the_paper_states():
    gains = [100 * (TABLE_1[OURS].dice - TABLE_1[arch].dice) for arch in TABLE_1 if arch != OURS]
    # "4.9 % to 31.25 %" are points.
    assert (min(gains), max(gains)) == pytest.approx((4.89, 31.25))
    relative = [100 * (TABLE_1[OURS].dice / TABLE_1[arch].dice - 1) for arch in TABLE_1 if arch != OURS]
    assert (round(min(relative)), round(max(relative))) == (6, 62)


def test_the_tables_agree_with_each_other():
    assert TABLE_2["10x"] == TABLE_1[OURS]
    assert QUOTED_MIT.accuracy > max(row.accuracy for row in TABLE_1.values())
    assert QUOTED_MIT.iou < TABLE_1[OURS].iou


def test_every_system_is_a_network_with_a_title():
    assert len(SYSTEMS) == 6
    assert set(SYSTEMS) <= set(ARCHITECTURES)
    assert set(ARCHITECTURES) <= set(TITLES)
    assert set(SYSTEMS) - set(TABLE_1) == {"mit-b2"}
