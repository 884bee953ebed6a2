"""The tissue graph against literal loops over pixels and against NetworkX."""

import itertools
import sys
from dataclasses import replace

import networkx
import numpy as np
import pytest
from skimage.measure import label
from tests.regions.blocks import BCC, block, measured

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.labels import IGNORE, SKIN, LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.core.wording import PURPOSE
from ntrm.regions.graph import NO_TISSUE, tissue_graph

MPP = Resolution(x=4.0, y=10.0)
K = len(SKIN)


def draw(random, size=14):
    small = random.choice([0, 3, 7, 8, 9, IGNORE], size=(size, size))
    return np.kron(small, np.ones((2, 1))).astype(np.uint8)


def labelled(mask):
    """Number of the region at each pixel in reading order, 0 outside, and how many there are: by scikit-image."""
    seen = np.where(np.isin(mask, [SKIN.background_index, IGNORE]), 0, mask + 1)
    return label(seen, background=0, connectivity=1, return_num=True)


def literal_sides(values, mpp):
    """Length in mm of the pixel sides between each two different values."""
    lengths = {}
    for row, column in itertools.product(*map(range, values.shape)):
        for to_row, to_column, side in ((row, column + 1, mpp.y), (row + 1, column, mpp.x)):
            if to_row < values.shape[0] and to_column < values.shape[1]:
                pair = tuple(sorted((int(values[row, column]), int(values[to_row, to_column]))))
                if pair[0] != pair[1]:
                    lengths[pair] = lengths.get(pair, 0.0) + side / 1000
    return lengths


def test_areas_boundaries_and_shares_are_those_of_a_loop(random):
    mask = draw(random)
    graph = tissue_graph(mask, MPP, SKIN)
    seen = np.where(np.isin(mask, [8, IGNORE]), K, mask)
    expected = literal_sides(seen, MPP)
    assert {(i, j): graph.boundary_mm[i, j] for i, j in graph.interfaces} == pytest.approx(expected)
    for tissue in range(K):
        assert graph.areas_mm2[tissue] == pytest.approx((seen == tissue).sum() * 40e-6)
    assert graph.fractions.sum() == pytest.approx(1.0)
    total = sum(length for pair, length in expected.items() if 9 in pair)
    assert graph.boundary_share[9, K] == pytest.approx(expected.get((9, K), 0.0) / total)


def test_regions_and_contacts_are_those_of_another_library(random):
    mask = draw(random)
    graph, (parts, count) = tissue_graph(mask, MPP, SKIN), labelled(mask)
    table, sides = graph.regions, literal_sides(parts, MPP)
    assert len(table) == count
    contacts = {tuple(pair): mm for pair, mm in zip((table.contacts + 1).tolist(), table.contact_mm, strict=True)}
    assert contacts == pytest.approx({pair: mm for pair, mm in sides.items() if pair[0] > 0})
    for region in range(count):
        where = np.argwhere(parts == region + 1)
        assert table.pixels[region] == len(where)
        assert table.tissue[region] == mask[tuple(where[0])]
        assert np.allclose(table.centroid[region], where.mean(axis=0))
        top, left, height, width = table.box[region]
        assert (top, left, height, width) == (*where.min(axis=0), *(np.ptp(where, axis=0) + 1))
        around = sum(mm for pair, mm in literal_sides(np.pad(parts, 1), MPP).items() if region + 1 in pair)
        assert table.perimeter_mm[region] == pytest.approx(around)
    tissue = {region + 1: int(table.tissue[region]) for region in range(count)}
    pairs = [{tissue[a], tissue[b]} for a, b in sides if a > 0]
    for i, j in itertools.combinations(graph.present, 2):
        assert graph.contact_counts[i, j] == graph.contact_counts[j, i] == pairs.count({i, j})
    assert graph.contact_counts[9, K] == sum(tissue[b] == 9 for a, b in sides if a == 0)


def test_confidence_is_the_mean_of_each_region(random):
    mask = draw(random)
    confidence = random.random(mask.shape)
    table = tissue_graph(mask, MPP, SKIN, confidence=confidence).regions
    parts, count = labelled(mask)
    assert np.allclose(table.confidence, [confidence[parts == k].mean() for k in range(1, count + 1)])
    with pytest.raises(DataError, match="not of one section"):
        tissue_graph(mask, MPP, SKIN, confidence=confidence[1:])


NOTHING = np.zeros((2, 2), np.uint8)


@pytest.mark.parametrize(
    ("error", "mask", "mpp", "options"),
    [
        (DataError, [[0.0, 0.0], [0.0, 0.0]], 1.0, {}),
        (DataError, [[0, -1], [0, 0]], 1.0, {}),
        (DataError, np.full((2, 2), 300), 1.0, {}),
        (DataError, [[[0, 0]]], 1.0, {}),
        (UsageError, [[0, 0], [0]], 1.0, {}),
        (UsageError, np.ma.masked_array(NOTHING), 1.0, {}),
        (UsageError, NOTHING, None, {}),
        (UsageError, NOTHING, (0.5, 0.5), {}),
        (UsageError, NOTHING, "0.5", {}),
        (UsageError, NOTHING, True, {}),
        (DataError, NOTHING, 1.0, {"confidence": np.full((2, 2), 200, np.uint8)}),
        (DataError, NOTHING, 1.0, {"confidence": np.full((2, 2), np.nan)}),
        (DataError, NOTHING, 1.0, {"confidence": np.full((2, 2), "x")}),
        (UsageError, NOTHING, 1.0, {"confidence": np.ma.masked_array(NOTHING)}),
    ],
)
def test_what_is_no_mask_resolution_or_confidence_is_refused_in_words(error, mask, mpp, options):
    with pytest.raises(error) as refused:
        tissue_graph(mask, mpp, **options)
    assert refused.value.got
    assert refused.value.expected


def test_the_view_by_networkx_is_the_document(random, monkeypatch):
    graph = tissue_graph(draw(random), MPP, SKIN)
    view, read = graph.to_networkx(), networkx.node_link_graph(graph.as_node_link(), edges="edges")
    assert networkx.utils.graphs_equal(view, read)
    assert view.graph == read.graph
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(RefusedError, match="pip install networkx"):
        graph.to_networkx()


def test_plain_words():
    mask = block()
    mask[40:50, 60:80] = BCC
    words = " ".join(tissue_graph(mask, MPP, SKIN).sentences())
    assert "mm² of tissue, most of it reticular dermis" in words
    assert "Basal cell carcinoma: 0.01 mm² in 1 region, bordering mostly on reticular dermis (100%)." in words
    plain = LabelSchema(tuple(replace(tissue, title="") for tissue in SKIN.tissues), SKIN.background)
    assert "BCC: 0.01 mm² in 1 region" in " ".join(tissue_graph(mask, MPP, plain).sentences())
    nothing = tissue_graph(np.full((5, 4), IGNORE, dtype=np.uint8), MPP, SKIN)
    assert (nothing.present, nothing.interfaces, len(nothing.regions)) == ([], [], 0)
    assert nothing.sentences() == (NO_TISSUE,)
    assert nothing.as_node_link()["nodes"] == []
    lines = measured(mask, SKIN, MPP).sentences
    assert lines[0].startswith("Deep clearance: 0.40 mm")
    assert lines[-1] == f"These numbers are {PURPOSE}."
