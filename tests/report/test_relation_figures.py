import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch
from tests.report.looking import stumbles, words

from ntrm.core.labels import SKIN
from ntrm.inference.predictor import TissueRelations
from ntrm.report.drawing import new_figure
from ntrm.report.relation_figures import draw_graph, edge_width, shown_tissues


def relations(random, presence, adjacency):
    size = len(presence)
    area = np.where(presence, random.integers(1, 900, size=size), 0).astype(np.float32)
    boundary = random.random((size, size)).astype(np.float32) * presence[:, None]
    nothing = np.zeros((size, size), dtype=np.float32)
    return TissueRelations(
        SKIN.names[:size], presence, area, adjacency, boundary, nothing[None], nothing, np.zeros((size, 4), np.float32)
    )


@pytest.fixture
def graph(random):
    presence = random.random(12) < 0.6
    presence[:2] = True
    adjacency = (random.random((12, 12)) < 0.4) & presence[:, None] & presence[None]
    np.fill_diagonal(adjacency, False)
    adjacency[0, 1] = True
    return relations(random, presence, adjacency)


def drawn(graph):
    figure = new_figure(4, 4)
    axes = figure.add_axes((0, 0, 1, 1))
    draw_graph(axes, graph, SKIN)
    return figure, axes


def edges_of(axes):
    arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
    return {tuple(map(int, arrow.get_gid().split()[1:])): arrow for arrow in arrows}


def test_arrows_are_the_adjacency_and_their_widths_the_boundary_ratios(graph):
    _, axes = drawn(graph)
    arrows = edges_of(axes)
    assert set(arrows) == {(int(a), int(b)) for a, b in np.argwhere(graph.adjacency)}
    for (source, target), arrow in arrows.items():
        assert arrow.get_linewidth() == pytest.approx(0.5 + 4.5 * graph.boundary[source, target])


def test_nodes_have_their_tissues_colours_names_and_sizes(graph):
    figure, axes = drawn(graph)
    nodes = {int(line.get_gid().split()[1]): line for line in axes.lines}
    assert sorted(nodes) == np.flatnonzero(graph.presence).tolist() == shown_tissues(graph)
    for tissue, node in nodes.items():
        assert np.allclose(node.get_markerfacecolor(), SKIN.palette[tissue] / 255)
    order = sorted(nodes, key=lambda tissue: graph.area[tissue])
    sizes = [nodes[tissue].get_markersize() for tissue in order]
    assert sizes == sorted(sizes)
    assert set(words(figure)) == {SKIN.names[tissue] for tissue in nodes}
    assert not stumbles(figure)


def test_absent_tissues_appear_only_with_an_edge_and_hollow(random):
    presence = np.array([True, True, False, False])
    adjacency = np.zeros((4, 4), dtype=bool)
    adjacency[2, 0] = adjacency[2, 1] = True
    figure, axes = drawn(relations(random, presence, adjacency))
    assert sorted(words(figure)) == ["(INF)", "EPI", "GLD"]
    assert next(line for line in axes.lines if line.get_gid() == "node 2").get_markerfacecolor() == "white"
    assert set(edges_of(axes)) == {(2, 0), (2, 1)}


def test_one_tissue_alone_and_none_at_all(random):
    alone = np.eye(1, 12, 3, dtype=bool)[0]
    none = np.zeros((12, 12), dtype=bool)
    figure, _ = drawn(relations(random, alone, none))
    assert words(figure) == ["RET"]
    figure, _ = drawn(relations(random, none[0], none))
    assert words(figure) == ["no tissue was proposed"]


def test_widths_grow_with_the_ratio():
    assert edge_width(0.2) < edge_width(0.3)
    assert edge_width(7.0) == edge_width(1.0)
