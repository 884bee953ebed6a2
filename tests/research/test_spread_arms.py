"""The arms that the product is compared with, on graphs made by hand."""

import numpy as np
import pytest
from research.spread_arms import ARMS, names_after
from tests.correction.test_spread import BCC, EPI, LOOKS, RET, K, chain, random_graph

from ntrm.correction.spread import DEFAULT, Settings, spread


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
