import re

from ntrm.models.registry import ARCHITECTURES
from ntrm.paper.published import FIGURES, QUOTED_MIT, SYSTEMS, TABLE_1, TABLE_2, TITLES, dice_gains

ROWS = {**TABLE_1, **{f"at {level}": row for level, row in TABLE_2.items()}, "MiT": QUOTED_MIT}


def test_the_tables_give_the_gains_that_the_papers_abstract_states():
    # "4.9 % to 31.25 % higher": these are points, and the first is rounded.
    least, *_, most = dice_gains()
    assert (round(least, 1), round(most, 2)) == (4.9, 31.25)
    assert len(dice_gains()) == len(TABLE_1) - 1


def test_the_caption_says_what_the_table_says():
    said = re.findall(r"([0-9.]+)/([0-9.]+)/([0-9.]+) at ([0-9]+x)", FIGURES["resolutions"])
    assert {level: tuple(map(float, scores)) for *scores, level in said} == TABLE_2


def test_every_system_is_a_network_with_a_title():
    assert set(SYSTEMS) <= set(ARCHITECTURES) <= set(TITLES)
    assert set(SYSTEMS) - set(TABLE_1) == {"mit-b2"}
