"""Maps, probabilities and the network's relations of a slide."""

import numpy as np
import pytest
import tifffile
import torch
from tests.evaluation.small import MPP, NAMES, ByColour, schema_of
from tests.segment.small import BKG, document, paint, run, write_slide

from ntrm.data.image_files import read_image
from ntrm.models.predictor import Predictor
from ntrm.models.registry import create
from ntrm.models.windows import stitch
from ntrm.segment.options import Options
from ntrm.segment.predict import KEPT

pytestmark = pytest.mark.usefixtures("quick_readers")


@pytest.fixture
def slide(tmp_path, random):
    return write_slide(tmp_path / "in" / "a.tif", paint(random, width=150))


@pytest.fixture
def trm(seed):
    torch.manual_seed(seed)
    return create("ntrm-paper", schema_of(), width=0.125, dim=16).describe(window=64, mpp=MPP)


def outputs(slide, out, model, **options):
    found = run(slide, out, model, batch=3, **options)
    assert found.exit_code == 0, [each.reason for each in found.slides]
    return out / "a"


def pixels_of(slide):
    return np.ascontiguousarray(read_image(slide))


def test_maps_are_those_of_the_section_in_memory(tmp_path, slide, trm):
    zarr = pytest.importorskip("zarr")
    folder = outputs(slide, tmp_path / "out", trm, maps=True, probabilities=True, tissue_mask=False)
    whole = stitch(Predictor(trm, "cpu", batch=3), pixels_of(slide), coarse=True, probabilities=True)
    for name, expected in (
        ("mask", whole.mask + 1),
        ("coarse", whole.coarse_mask + 1),
        ("confidence", np.rint(whole.confidence * 255)),
    ):
        np.testing.assert_array_equal(tifffile.imread(folder / f"{name}.ome.tif", series=0), expected)
    with tifffile.TiffFile(folder / "confidence.ome.tif") as tiff:
        assert tiff.is_ome
        assert "255 = certainty 1" in tiff.ome_metadata
    stored = zarr.open_group(folder / "probabilities.zarr", mode="r")["0"][:]
    np.testing.assert_allclose(stored, whole.probabilities * 255, atol=0.501)


def test_the_networks_relations_are_means_over_the_windows_that_have_the_edge(tmp_path, slide, seed):
    torch.manual_seed(seed)
    network = create("ntrm-paper", schema_of(), width=0.125, dim=16, edge_weight=True).describe(window=64, mpp=MPP)
    folder = outputs(slide, tmp_path / "out", network, tissue_mask=False)
    found = document(folder, "graph.json")["network"]
    predictor, image = Predictor(network, "cpu", batch=3), pixels_of(slide)
    windows = Options().stitching(64).windows(*image.shape[:2])
    graphs = [predictor.predict(image[window.slices], graph=True).graph for window in windows]
    tissues = [k for k in range(len(NAMES)) if k != BKG]
    graphs = [graph for graph in graphs if graph.presence[tissues].any()]
    edges = sum(graph.adjacency.astype(int) for graph in graphs)
    assert found["names"] == list(NAMES)
    assert found["windows"] == len(graphs) > 0
    assert found["note"] == "what the network used, not biology"
    assert found["edge_windows"] == edges.tolist()
    for name, sums in (("attention", [g.attention for g in graphs]), ("edge_weight", [g.edge_weights for g in graphs])):
        np.testing.assert_allclose(found[name], sum(sums) / np.maximum(edges, 1), atol=1e-4)
    assert [len(edge["windows"]) for edge in found["strongest_windows"]] == np.minimum(edges, KEPT)[edges > 0].tolist()
    for edge in found["strongest_windows"]:
        at = NAMES.index(edge["source"]), NAMES.index(edge["target"])
        attention = [graph.attention[:, *at].mean() for graph in graphs if graph.adjacency[at]]
        told = [window["attention"] for window in edge["windows"]]
        np.testing.assert_allclose(told, sorted(attention, reverse=True)[:KEPT], atol=1e-4)
        assert {(each["top"], each["left"]) for each in edge["windows"]} <= {(each.top, each.left) for each in windows}


def test_a_network_that_says_no_numbers_is_one_slides_error(tmp_path, slide):
    network = ByColour()
    torch.nn.init.constant_(network.colours, torch.nan)
    (failed,) = run(slide, tmp_path / "out", network).slides
    assert (failed.status, "not numbers" in failed.reason) == ("failed", True)


def test_a_network_without_relations_or_a_coarse_head_says_so(tmp_path, slide):
    folder = outputs(slide, tmp_path / "out", ByColour(coarse=False), maps=True, report=False)
    assert document(folder, "graph.json")["network"] is None
    assert (folder / "confidence.ome.tif").exists()
    assert not (folder / "coarse.ome.tif").exists()
    assert not (folder / "report.html").exists()
    # A report more or less is no other run.
    assert run(slide, tmp_path / "out", ByColour(coarse=False), batch=3, maps=True).slides[0].status == "kept"
