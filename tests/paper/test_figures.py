from dataclasses import replace

import numpy as np
from tests.paper.synthetic import read, tiny_plan
from tests.paper.test_result_tables import facts

from ntrm.core.labels import IGNORE, SKIN
from ntrm.data.split import open_splits
from ntrm.paper import result_tables
from ntrm.paper.figures import FigureFile, choose_windows, draw_ablation, draw_resolutions


def test_one_window_for_each_cancer_of_the_test_part_with_the_most_tissues(stripes):
    parts = open_splits(stripes, resolution="10x")
    shown = choose_windows(parts, 64)
    # The test part has no IEC.
    assert [each.name for each in shown] == ["BCC (BCC_9)", "SCC (SCC_9)"]
    for each, cancer in zip(shown, ("BCC", "SCC"), strict=True):
        assert each.image.shape == (64, 64, 3)
        assert (each.truth == SKIN.index(cancer)).any()
        assert each.tissues == len(np.unique(each.truth[each.truth != IGNORE]))
        # Seven stripes over 96 rows: 64 rows show five or six of them.
        assert each.tissues >= 5


def test_the_window_is_a_piece_of_its_section(stripes):
    parts = open_splits(stripes, resolution="5x")
    shown = choose_windows(parts, 128)
    assert len(shown) == 2
    for each in shown:
        assert all((row == row[0]).all() for row in each.truth), "stripes are level"


def test_a_section_smaller_than_the_window_is_padded(stripes):
    shown = choose_windows(open_splits(stripes, resolution="10x"), 256)
    assert len(shown) == 2
    assert all(each.image.shape == (256, 256, 3) for each in shown)
    assert all((each.truth[96:] == IGNORE).all() and (each.image[96:] == 255).all() for each in shown)


def test_classes_without_cancers_show_sections_with_the_most_classes(stripes):
    parts = open_splits(stripes, resolution="10x")
    names = dict(zip(("BCC", "SCC", "IEC"), ("one", "two", "three"), strict=True))
    tissues = tuple(replace(t, name=names.get(t.name, t.name)) for t in SKIN.tissues)
    renamed = replace(parts.dataset, schema=replace(SKIN, tissues=tissues))
    shown = choose_windows(replace(parts, dataset=renamed), 64)
    assert sorted(each.name for each in shown) == ["BCC_9", "SCC_9"]


def test_every_figure_that_the_paper_has_stands_beside_our_words_for_it(tmp_path):
    for name in ("pipeline", "architecture", "trm", "qualitative", "improvement", "resolutions"):
        assert FigureFile(name, tmp_path, "").paper.startswith("The paper")
    assert FigureFile("ablation", tmp_path, "").paper == "The paper has no ablation."
    assert FigureFile("dataset", tmp_path, "").paper == ""


def test_figures_without_enough_to_show_are_left_out(tmp_path):
    plan = tiny_plan(levels=("10x",), seeds=(0,))
    results = read(tmp_path, plan)
    assert draw_resolutions(results, {"10x": facts("10x")}, tmp_path) is None
    assert draw_ablation(result_tables.ablation_table(results), tmp_path) is None
