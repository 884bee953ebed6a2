"""Simulated clicks: where they go, and what is counted."""

from dataclasses import replace

import numpy as np
import pytest
from research.simulated_clicks import ARMS, CORES, Section, Truth, middle_of_largest, names_after, next_click, simulate
from research.skin_pas import LENIENT, TISSUES, confusion, tissue_ious
from tests.correct.engine.test_spread import BCC, EPI, LOOKS, RET, K, chain, random_graph

from ntrm.core.labels import IGNORE, SKIN, LabelSchema, Tissue
from ntrm.correct.engine import DEFAULT
from ntrm.correct.engine.spread import Settings, spread
from ntrm.regions.runs import runs_of


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


def test_tissues_for_which_the_same_is_right_are_one():
    words = ("background", "benign gland", "malignant gland")
    schema = LabelSchema(tuple(Tissue(index, name, "", (index, 0, 0)) for index, name in enumerate(words)))
    truth = Truth.of(np.array([[0, 1, 2, 3, 4, IGNORE]], dtype=np.uint8), CORES, schema)
    assert truth.mask.tolist() == [[0, 1, 2, 2, 2, IGNORE]]
    assert truth.right.tolist() == np.eye(3, dtype=bool).tolist()
    assert truth.name.tolist() == [0, 1, 2]


def test_the_best_names_of_parts_keep_a_name_that_no_other_beats():
    assert section().best().tolist() == [EPI, RET, BCC]


def large_section(tissue, truth):
    """Three nodes of 20 × 20 pixels of 10 µm: large enough for a cancer to be named."""
    graph = chain(tissue, [0, 1, 2])
    mask = np.repeat(np.repeat(np.arange(3)[None], 20, axis=0), 20, axis=1)
    graph = replace(graph, runs=runs_of(mask), pixels=np.full(3, 400))
    return Section(graph, Truth.of_phantom(np.array(truth, dtype=np.uint8)[mask]))


def test_cancers_are_right_if_exactly_the_true_ones_are_named():
    own = large_section([EPI, RET, BCC], [EPI, RET, RET])
    assert own.cancers == frozenset()
    assert own.cancers_right(own.graph.tissue) == 0
    assert own.cancers_right(np.array([EPI, RET, RET])) == 1
    assert large_section([EPI, RET, RET], [EPI, RET, BCC]).cancers == {"BCC"}


def test_the_graph_is_scored_by_its_edges():
    own = large_section([EPI, RET, BCC], [EPI, RET, RET])
    assert own.graph_f1(np.array([EPI, RET, RET])) == 1
    assert own.graph_f1(own.graph.tissue) == pytest.approx(2 / 3)  # one edge is right, one invented


def test_the_clicked_part_alone_is_renamed():
    assert names_after(chain([BCC] * 4, [0] * 4, region=[0] * 4), {1: EPI}, "part").tolist() == [BCC, EPI, BCC, BCC]


def test_the_connected_region_is_renamed_by_the_nearer_of_two_clicks():
    graph = chain([BCC] * 6, [0] * 6, region=[0, 0, 0, 0, 0, 1])
    # The middle one goes with the first.
    assert names_after(graph, {0: EPI, 4: RET}, "region").tolist() == [EPI, EPI, EPI, RET, RET, BCC]


def test_what_touches_follows_whatever_it_looks_like():
    graph = chain([BCC] * 4, [0.0, 5.0, -5.0, 0.0], edges=[(0, 1), (2, 3)])
    assert names_after(graph, {0: EPI}, "relations").tolist() == [EPI, EPI, BCC, BCC]


def test_looks_are_the_products_without_walks(random):
    graph = random_graph(random)
    clicks = {node: int(random.integers(K)) for node in range(0, len(graph), 3)}
    for settings in (LOOKS, Settings(steps=0)):
        np.testing.assert_array_equal(
            names_after(graph, clicks, "looks", settings), spread(graph, clicks, settings).tissue
        )
    np.testing.assert_array_equal(names_after(graph, clicks, DEFAULT), spread(graph, clicks).tissue)


@pytest.mark.parametrize("how", ARMS)
def test_clicked_nodes_have_the_name_they_were_given_and_without_clicks_all_keep_theirs(how, random):
    graph = random_graph(random)
    clicks = {node: int(random.integers(K)) for node in range(0, len(graph), 3)}
    names = names_after(graph, clicks, how)
    assert {node: int(names[node]) for node in clicks} == clicks
    assert (names_after(graph, {}, how) == graph.tissue).all()
