import itertools
import math
from xml.etree import ElementTree

import pytest

from ntrm.core.wording import OUTSIDE
from ntrm.report.graph_layout import HEIGHT, LARGE, SMALL, THICK, THIN, WIDTH, graph_drawing
from ntrm.report.html import render
from ntrm.results.documents import Edge, Node

NAMES = ("EPI", "RET", "BKG", "SCC", "BCC")
NODES = [
    Node("EPI", "tissue", "epidermis", area_mm2=1.0, regions=3),
    Node("RET", "tissue", "dermis", area_mm2=4.0, regions=1),
    Node("SCC", "tissue", "cancer", area_mm2=0.25, regions=2),
]
EDGES = [
    Edge("EPI", "RET", 2.0, 0.5, 0.25, 4),
    Edge("RET", "SCC", 1.0, 0.1, 0.75, 2),
    Edge("RET", OUTSIDE, 8.0, 0.6, 1.0, 1),
]


def drawn(graph):
    return ElementTree.fromstring(render("graph.svg", graph=graph))


def of_class(root, name):
    return [each for each in root.iter() if name in each.get("class", "").split()]


def test_nodes_are_as_large_as_tissues_and_edges_as_wide_as_boundaries():
    root = drawn(graph_drawing(NODES, EDGES, NAMES, {"SCC"}))
    nodes = of_class(root, "node")
    sizes = {
        each.find("title").text.split(",")[0]: float(each.get("r")) for each in nodes if each.find("title") is not None
    }
    for node in NODES:
        assert sizes[node.id] == pytest.approx(SMALL + (LARGE - SMALL) * math.sqrt(node.area_mm2 / 4.0), abs=0.01)
    widths = {each.find("title").text.split(":")[0]: float(each.get("stroke-width")) for each in of_class(root, "edge")}
    for edge in EDGES:
        expected = THIN + (THICK - THIN) * edge.boundary_mm / 8.0
        assert widths[f"{edge.source} – {edge.target}"] == pytest.approx(expected, abs=0.01)
    assert [each.find("title").text for each in of_class(root, "cancer")] == [
        "RET – SCC: 1.00 mm, 10.0% of RET, 75.0% of SCC"
    ]


def test_everything_stays_in_the_drawing_and_apart_with_twelve_tissues():
    names = tuple(f"T{k:02d}" for k in range(12))
    nodes = [Node(name, "tissue", name, area_mm2=1.0, regions=1) for name in names]
    root = drawn(graph_drawing(nodes, [Edge(names[0], OUTSIDE, 1.0, 1.0, 1.0, 1)], names, set()))
    circles = [(float(each.get("cx")), float(each.get("cy")), float(each.get("r"))) for each in of_class(root, "node")]
    assert len(circles) == 13
    for x, y, r in circles:
        assert r <= x <= WIDTH - r
        assert r <= y <= HEIGHT - r
    for (x1, y1, r1), (x2, y2, r2) in itertools.combinations(circles, 2):
        assert math.dist((x1, y1), (x2, y2)) > r1 + r2
    for text in root.iter("text"):
        wide = 8.0 * len("".join(text.itertext()))
        x, anchor = float(text.get("x")), text.get("text-anchor")
        left = {"start": x, "middle": x - wide / 2, "end": x - wide}[anchor]
        assert left >= 0
        assert left + wide <= WIDTH
        assert 10 <= float(text.get("y")) <= HEIGHT
