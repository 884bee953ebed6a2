"""The regions of graph.json, regions.csv and regions.geojson are the same ones under the same numbers.

The reference is scipy's labelling of each tissue in each piece, shapely's areas and a loop over all pixel sides.
"""

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import shapely
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import ndimage

from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution
from ntrm.export.geojson import write_geojson
from ntrm.regions import polygons as polygon_engine
from ntrm.regions import regions as engine
from ntrm.regions import runs
from ntrm.regions.graph import tissue_graph_of
from ntrm.regions.small_regions import remove_small_regions
from ntrm.segment.measurements import region_rows, scan_slide
from ntrm.slides.pieces import PieceMap

FOUR = ndimage.generate_binary_structure(2, 1)
MPP, COARSE = Resolution(x=4.0, y=10.0), Resolution(x=12.0, y=30.0)
"""A pixel of the map of pieces is three by three of the mask."""
BKG, BCC, RET = (SKIN.index(name) for name in ("BKG", "BCC", "RET"))
SHAPES = st.tuples(st.integers(1, 13), st.integers(1, 13))
RING = np.array([[RET] * 5, [RET, BKG, BKG, BKG, RET], [RET, BKG, BCC, BKG, RET], [RET, BKG, BKG, BKG, RET], [RET] * 5])
DIAGONAL = np.where(np.eye(9, dtype=bool), BCC, RET)


def labelled(mask, pieces):
    """Number of the region at each pixel, 0 for none: every tissue of every piece on its own, then in reading order."""
    found = np.zeros(mask.shape, dtype=int)
    for tissue in set(range(len(SKIN))) - {BKG}:
        for piece in np.unique(pieces):
            own, _ = ndimage.label((mask == tissue) & (pieces == piece), FOUR)
            found[own > 0] = own[own > 0] + found.max()
    _, first, place = np.unique(found, return_index=True, return_inverse=True)
    order = np.argsort(np.argsort(np.where(found.ravel()[first] == 0, -1, first)))
    return order[place].reshape(mask.shape) + int(found.min() > 0)


def contacts(numbers, pieces):
    """Pixel sides in mm between each two regions of one piece."""
    lengths = Counter()
    for axis, side in ((0, MPP.x), (1, MPP.y)):
        here, there = (np.take(numbers, range(a, numbers.shape[axis] - 1 + a), axis).ravel() for a in (0, 1))
        same = np.equal(*(np.take(pieces, range(a, numbers.shape[axis] - 1 + a), axis).ravel() for a in (0, 1)))
        for one, other in zip(here[same].tolist(), there[same].tolist(), strict=True):
            if one and other and one != other:
                lengths[min(one, other), max(one, other)] += side / 1000
    return lengths


def node_link(regions, pieces):
    """The graphs of all pieces and of what lies outside them, as one."""
    tables = [regions.table.of_piece(piece) for piece in range(int(pieces.max()) + 1)]
    graphs = [tissue_graph_of(table, SKIN).as_node_link() for table in tables]
    nodes = {node["number"]: node for graph in graphs for node in graph["nodes"] if node["kind"] == "region"}
    edges = [edge for graph in graphs for edge in graph["edges"] if edge["kind"] == "contact"]
    return nodes, edges


@given(
    arrays.arrays(np.uint8, SHAPES, elements=st.sampled_from([RET, RET, BCC, 0, BKG, IGNORE])),
    arrays.arrays(np.uint16, (5, 5), elements=st.integers(0, 2)),
    st.integers(0, 4),
    st.integers(1, 60),
)
@example(RING.astype(np.uint8), np.ones((5, 5), np.uint16), 0, 7)
@example(DIAGONAL.astype(np.uint8), np.ones((5, 5), np.uint16), 0, 9)
@example(np.kron(DIAGONAL, [[1, 1, 1]]).astype(np.uint8)[:, :13], np.ones((5, 5), np.uint16), 4, 5)
def test_regions_are_the_same_everywhere_and_those_of_scipy(tmp_path_factory, mask, coarse, smallest, strip):
    folder = tmp_path_factory.mktemp("regions")
    whole = PieceMap((), coarse, COARSE)
    engine.STRIP_PIXELS, kept = strip, (engine.STRIP_PIXELS, runs.STRIP_RUNS, polygon_engine.CORNERS)
    runs.STRIP_RUNS = polygon_engine.CORNERS = strip
    try:
        if smallest:
            mask = mask.copy()
            remove_small_regions(mask, smallest)
        confidence = (np.arange(mask.size) % 256).astype(np.uint8).reshape(mask.shape)
        regions = scan_slide(mask, confidence, whole, schema=SKIN, resolution=MPP)
        rows = [*region_rows("s", regions.table, grid=SimpleNamespace(to_level0=(1, 1)), schema=SKIN)]
        written = write_geojson(folder / "r.geojson", regions, SKIN)
    finally:
        engine.STRIP_PIXELS, runs.STRIP_RUNS, polygon_engine.CORNERS = kept
    features = json.loads(written.read_text())["features"]
    pieces = coarse[np.ix_(*(np.arange(size) // 3 for size in mask.shape))]
    numbers, (nodes, edges) = labelled(mask, pieces), node_link(regions, coarse)
    assert sorted(nodes) == [row["region"] for row in rows] == [*range(1, int(numbers.max()) + 1)]
    assert [feature["properties"]["measurements"]["Region"] for feature in features] == sorted(nodes)
    for row, feature in zip(rows, features, strict=True):
        own, node = numbers == row["region"], nodes[row["region"]]
        polygon, told = shapely.Polygon(*_rings(feature)), feature["properties"]["measurements"]
        name = SKIN.names[mask[own][0]]
        assert name == row["tissue"] == node["tissue"] == feature["properties"]["classification"]["name"]
        assert (row["piece"], told["Piece"]) == (pieces[own][0], pieces[own][0])
        assert polygon.is_valid
        assert polygon.area == own.sum()
        places = np.argwhere(own)
        assert shapely.contains_xy(polygon, places[:, 1] + 0.5, places[:, 0] + 0.5).all()
        np.testing.assert_allclose([row["area_mm2"], node["area_mm2"], told["Area mm^2"]], own.sum() * 40e-6, rtol=1e-5)
        around = shapely.transform(polygon, lambda points: points * (MPP.x, MPP.y)).length / 1000
        np.testing.assert_allclose([row["perimeter_mm"], node["perimeter_mm"], told["Perimeter mm"]], around, rtol=1e-5)
        sure = confidence[own].mean() / 255
        np.testing.assert_allclose([row["mean_confidence"], node["confidence"]], sure, atol=1e-6)
    found = {(int(edge["source"][7:]), int(edge["target"][7:])): edge["boundary_mm"] for edge in edges}
    expected = contacts(numbers, pieces)
    assert found.keys() == expected.keys()
    np.testing.assert_allclose([found[pair] for pair in expected], [*expected.values()], atol=1e-6)


def _rings(feature):
    exterior, *holes = feature["geometry"]["coordinates"]
    return exterior, holes
