"""The order of regions, and the part in the middle of each, against loops."""

import numpy as np
import pytest
from tests.correct.engine.test_graph import made
from tests.correct.engine.test_parts import blocks

from ntrm.core.labels import SKIN
from ntrm.correct.engine.graph import RegionGraph
from ntrm.correct.engine.parts_engine import likely_errors, likely_errors_first, middle_parts


def with_probabilities(graph, random):
    wild = random.random((len(graph), len(SKIN))).astype(np.float32)
    return RegionGraph(**{**vars(graph), "probabilities": wild / wild.sum(axis=1, keepdims=True)})


def test_the_middle_of_a_region_is_its_part_nearest_to_the_centre_that_is_no_sliver(random):
    graph = made(blocks(random))
    nodes = graph.runs.dense()
    for region, found in enumerate(middle_parts(graph).tolist()):
        parts = np.flatnonzero(graph.region == region)
        centre = np.argwhere(np.isin(nodes, parts)).mean(axis=0)
        sizes = {part: int((nodes == part).sum()) for part in parts.tolist()}
        large = [part for part, size in sizes.items() if size >= max(sizes.values()) / 2]
        away = {part: np.linalg.norm(np.argwhere(nodes == part).mean(axis=0) - centre) for part in large}
        assert found in large
        assert away[found] <= min(away.values()) + 1e-9


@pytest.mark.failed_once(921706515)  # a mask of two regions
def test_regions_come_by_area_times_squared_doubt(random):
    graph = with_probabilities(made(blocks(random)), random)
    expected = []
    for region in range(graph.region.max() + 1):
        parts = np.flatnonzero(graph.region == region).tolist()
        pixels = sum(int(graph.pixels[part]) for part in parts)
        sure = sum(graph.pixels[part] * graph.probabilities[part, graph.tissue[part]] for part in parts) / pixels
        expected.append(pixels * (1 - sure) ** 2)
    np.testing.assert_allclose(likely_errors(graph), expected, rtol=1e-5)
    nodes = graph.runs.dense().ravel()
    seen = [expected[graph.region[nodes[at]]] for at in likely_errors_first(graph).first]
    np.testing.assert_allclose(seen, sorted(expected, reverse=True), rtol=1e-5)
