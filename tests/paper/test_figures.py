from dataclasses import replace

import numpy as np

from ntrm.core.labels import IGNORE, SKIN
from ntrm.data.split import open_splits
from ntrm.paper.figures import choose_windows


def test_one_window_for_each_cancer_of_the_test_part_with_the_most_tissues(stripes):
    shown = choose_windows(open_splits(stripes, resolution="10x"), 64)
    # The test part has no IEC.
    assert [each.name for each in shown] == ["BCC (BCC_9)", "SCC (SCC_9)"]
    for each, cancer in zip(shown, ("BCC", "SCC"), strict=True):
        assert each.image.shape == (64, 64, 3)
        assert (each.truth == SKIN.index(cancer)).any()
        # Seven level stripes over 96 rows: 64 rows show five or six of them.
        assert len(np.unique(each.truth[each.truth != IGNORE])) >= 5
        assert all((row == row[0]).all() for row in each.truth)


def test_a_section_smaller_than_the_window_is_padded(stripes):
    shown = choose_windows(open_splits(stripes, resolution="10x"), 256)
    assert len(shown) == 2
    assert all((each.truth[96:] == IGNORE).all() and (each.image[96:] == 255).all() for each in shown)


def test_classes_without_cancers_show_sections_with_the_most_classes(stripes):
    parts = open_splits(stripes, resolution="10x")
    names = dict(zip(("BCC", "SCC", "IEC"), ("one", "two", "three"), strict=True))
    tissues = tuple(replace(t, name=names.get(t.name, t.name)) for t in SKIN.tissues)
    renamed = replace(parts.dataset, schema=replace(SKIN, tissues=tissues))
    shown = choose_windows(replace(parts, dataset=renamed), 64)
    assert sorted(each.name for each in shown) == ["BCC_9", "SCC_9"]
