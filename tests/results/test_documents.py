import numpy as np
import pytest
from tests.report.segmented import change, document, network_relations

from ntrm.core.errors import DataError
from ntrm.results.documents import read_slide, read_summary, tissues_in


def test_everything_is_read_as_it_stands(results):
    for count, name in enumerate(("one", "two"), start=1):
        slide = read_slide(results / name)
        summary, graph = document(results / name / "summary.json"), document(results / name / "graph.json")
        assert slide.slide_id == name
        assert slide.areas_mm2 == summary["areas_mm2"]
        assert slide.tissue_fractions == summary["tissue_fractions"]
        assert (slide.grid.height, slide.grid.width) == (summary["grid"]["height"], summary["grid"]["width"])
        assert [piece.number for piece in slide.pieces] == list(range(1, count + 1))
        for piece, told, own, drawn in zip(slide.pieces, summary["pieces"], slide.graphs, graph["pieces"], strict=True):
            assert {key: each.value for key, each in piece.measurements.items()} == {
                key: each["value"] for key, each in told["measurements"].items()
            }
            assert list(own.text) == drawn["text"]
            boundaries = [edge for edge in drawn["graph"]["edges"] if edge["kind"] == "boundary"]
            assert [edge.boundary_mm for edge in own.edges] == [edge["boundary_mm"] for edge in boundaries]


def test_what_was_read_is_written_as_it_stood(results, tmp_path):
    for name in ("one", "two"):
        read_summary(results / name).write(tmp_path)
        again, before = document(tmp_path / "summary.json"), document(results / name / "summary.json")
        assert again == before
        assert [*again] == [*before]


def test_confidence_is_weighted_by_area(results):
    slide = read_slide(results / "two")
    regions = [
        node
        for piece in document(results / "two" / "graph.json")["pieces"]
        for node in piece["graph"]["nodes"]
        if node["kind"] == "region"
    ]
    for tissue in ("EPI", "RET", "SCC"):
        own = [(node["confidence"], node["area_mm2"]) for node in regions if node["tissue"] == tissue]
        values, areas = zip(*own, strict=True)
        assert tissues_in(slide.graphs)[tissue].confidence == pytest.approx(np.average(values, weights=areas), rel=1e-9)
    assert "BKG" not in tissues_in(slide.graphs)


def test_the_networks_relations_are_optional_and_checked(results):
    folder = results / "one"
    relations = network_relations(document(folder / "summary.json")["classes"])
    change(folder / "graph.json", lambda it: it.update(network=None))
    assert read_slide(folder).network is None
    change(folder / "graph.json", lambda it: it.pop("network"))
    assert read_slide(folder).network is None
    change(folder / "graph.json", lambda it: it.update(network=relations))
    network = read_slide(folder).network
    assert network.windows == 7
    assert [[list(row) for row in layer] for layer in network.attention] == relations["attention"]
    assert [list(row) for row in network.edge_windows] == relations["edge_windows"]
    np.testing.assert_allclose(network.mean_attention, np.mean(relations["attention"], axis=0))
    (edge,) = network.strongest_windows
    assert (edge.source, edge.target, edge.windows[0].width) == (network.names[-1], network.names[-2], 50)


@pytest.mark.parametrize(
    "damage",
    [
        lambda it: it["attention"][1].pop(),
        lambda it: it.pop("edge_windows"),
        lambda it: it["strongest_windows"][0].update(source="nobody"),
        lambda it: it["strongest_windows"][0]["windows"][0].pop("top"),
    ],
)
def test_damaged_relations_are_refused(results, damage):
    folder = results / "one"
    relations = network_relations(document(folder / "summary.json")["classes"])
    damage(relations)
    change(folder / "graph.json", lambda it: it.update(network=relations))
    with pytest.raises(DataError, match=r"cannot read graph.json"):
        read_slide(folder)


@pytest.mark.parametrize("name", ["summary.json", "graph.json"])
def test_missing_and_damaged_files_are_told_with_what_to_do(results, name):
    path = results / "one" / name
    path.write_text("[]")
    with pytest.raises(DataError, match=f"cannot read {name}") as found:
        read_slide(results / "one")
    assert "run the same ntrm segment again" in found.value.hint
    path.unlink()
    with pytest.raises(DataError, match=f"has no {name}"):
        read_slide(results / "one")


DAMAGES = {
    "a missing key": ("summary.json", lambda it: it.pop("grid")),
    "text for an area": ("summary.json", lambda it: it["areas_mm2"].update(EPI="much")),
    "a number for pieces": ("summary.json", lambda it: it.update(pieces=7)),
    "true for a length": ("summary.json", lambda it: first_length(it).update(value=True)),
    "half a line": ("summary.json", lambda it: first_length(it).update(line_px=[[1, 2]])),
    "no scale": ("summary.json", lambda it: it["grid"].update(mpp=[0, 1])),
    "NaN": ("summary.json", lambda it: it["model"].update(mpp=float("nan"))),
    "a graph of nothing": ("graph.json", lambda it: it.update(pieces=3)),
    "no verdict": ("summary.json", lambda it: it["familiarity"].update(verdict="fine")),
    "unfamiliar, without a p-value": (
        "summary.json",
        lambda it: it["pieces"][0]["familiarity"].update(verdict="unfamiliar", p_value=None),
    ),
}


def first_length(summary):
    return summary["pieces"][0]["measurements"]["deep_clearance"]


@pytest.mark.parametrize(("name", "damage"), DAMAGES.values(), ids=DAMAGES)
def test_what_goes_missing_or_changes_its_kind_is_told(results, name, damage):
    change(results / "two" / name, damage)
    with pytest.raises(DataError, match=f"cannot read {name}"):
        read_slide(results / "two")


def test_files_of_two_slides_do_not_mix(results):
    change(results / "one" / "graph.json", lambda it: it.update(slide_id="other"))
    with pytest.raises(DataError, match="not of one slide"):
        read_slide(results / "one")
