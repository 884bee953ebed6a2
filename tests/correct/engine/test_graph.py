"""The region graph: borders and ratios against the tissue graph and against loops."""

import itertools

import numpy as np
import pytest
from tests.correct.engine.test_parts import MPP, blocks

from ntrm.core.errors import DataError
from ntrm.core.labels import SKIN, LabelSchema
from ntrm.correct.engine.graph import RegionGraph, region_graph_of
from ntrm.correct.engine.parts import parts_of
from ntrm.regions.graph import tissue_graph

RET, BKG, EPI = (SKIN.index(name) for name in ("RET", "BKG", "EPI"))


def made(mask, side=8):
    parts = parts_of(mask, SKIN, MPP, side=side)
    count = len(parts.table)
    return region_graph_of(
        parts, SKIN, np.zeros((count, len(SKIN)), np.float32), {"colour": np.ones((count, 6), np.float32)}
    )


def literal_borders(nodes):
    """µm of the pixel sides between each two nodes; -1 is nothing."""
    lengths = {}
    for row, column in itertools.product(*map(range, nodes.shape)):
        for down, right, side in ((0, 1, MPP.y), (1, 0, MPP.x)):
            if row + down < nodes.shape[0] and column + right < nodes.shape[1]:
                pair = tuple(sorted((int(nodes[row, column]), int(nodes[row + down, column + right]))))
                if pair[0] != pair[1]:
                    lengths[pair] = lengths.get(pair, 0.0) + side
    return lengths


def test_edges_carry_the_share_of_the_border_on_each_side(random):
    graph = made(blocks(random))
    lengths = literal_borders(graph.runs.dense())
    whole = [sum(length for pair, length in lengths.items() if node in pair) for node in range(len(graph))]
    expected = {pair: length for pair, length in lengths.items() if pair[0] >= 0}
    assert {tuple(pair) for pair in graph.edges.tolist()} == set(expected)
    for (one, other), ratios in zip(graph.edges.tolist(), graph.ratios, strict=True):
        length = expected[one, other]
        assert ratios == pytest.approx([length / whole[one], length / whole[other]])


def test_undivided_one_region_of_each_tissue_has_the_shares_of_the_tissue_graph():
    mask = np.array([[0, 0, 3, 3], [0, 0, 5, 5], [255, 7, 7, 5]], dtype=np.uint8)
    graph, tissues = made(mask), tissue_graph(mask, MPP)
    assert sorted(graph.tissue.tolist()) == tissues.present
    assert graph.pixels * MPP.pixel_area_um2 / 1e6 == pytest.approx(tissues.areas_mm2[graph.tissue])
    for (one, other), ratios in zip(graph.tissue[graph.edges], graph.ratios, strict=True):
        assert ratios == pytest.approx([tissues.boundary_share[one, other], tissues.boundary_share[other, one]])


def test_depth_is_the_distance_to_the_nearest_glass():
    mask = np.full((40, 8), RET, dtype=np.uint8)
    mask[:8] = BKG
    graph = made(mask)
    depth = dict(zip(graph.centroid[:, 0].tolist(), graph.features["depth"][:, 0].tolist(), strict=True))
    # The middles of glass and of four cells; the last row of glass is 7, and the nearest column half a pixel away.
    assert depth.pop(3.5) == 0
    assert depth == {row: pytest.approx(np.hypot((row - 7) * 10, 2) / 1e3) for row in (11.5, 19.5, 27.5, 35.5)}
    assert made(mask[8:]).features["depth"].tolist() == [[0.0]] * 4


def test_a_place_has_a_node_and_names_become_a_mask(random):
    mask = blocks(random)
    graph = made(mask)
    assert (graph.mask() == mask).all()
    nodes = graph.runs.dense()
    row, column = np.argwhere(nodes >= 0)[0].tolist()
    assert graph.region[nodes[row, column]] == graph.regions.at((row, column))
    assert graph.parts.at((row, column)) == nodes[row, column]
    named = graph.tissue.copy()
    named[0] = EPI
    assert (graph.mask(named) == np.where(nodes == 0, EPI, mask)).all()


def test_a_graph_is_read_as_it_was_saved(random, tmp_path):
    graph = made(blocks(random))
    graph.save(tmp_path / "graph.npz", "slide 1")
    again = RegionGraph.read(tmp_path / "graph.npz", SKIN, "slide 1")
    for name in ("tissue", "region", "pixels", "centroid", "edges", "ratios", "probabilities"):
        assert (getattr(again, name) == getattr(graph, name)).all()
    assert (again.mask() == graph.mask()).all()
    assert again.resolution == graph.resolution
    assert {name: values.tolist() for name, values in again.features.items()} == {
        name: values.tolist() for name, values in graph.features.items()
    }
    for schema, origin in ((LabelSchema(SKIN.tissues[:3]), "slide 1"), (SKIN, "slide 2")):
        with pytest.raises(DataError, match="is not the region graph"):
            RegionGraph.read(tmp_path / "graph.npz", schema, origin)


def test_shape_is_compactness_and_size_of_the_region():
    mask = np.full((8, 16), RET, dtype=np.uint8)
    shape = made(mask).features["shape"]
    part = 4 * np.pi * (64 * 40) / (2 * 8 * 4 + 2 * 8 * 10) ** 2
    whole = 4 * np.pi * (128 * 40) / (2 * 16 * 4 + 2 * 8 * 10) ** 2
    assert shape == pytest.approx(np.tile([part, np.log(128 * 40 / 1e6), whole], (2, 1)), rel=1e-5)
