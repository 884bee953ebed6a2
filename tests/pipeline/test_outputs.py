"""Maps, probabilities and the network's relations of a slide."""

import json

import numpy as np
import pytest
import tifffile
import torch
from tests.evaluation.small import MPP, NAMES, ByColour, schema_of
from tests.pipeline.small import BKG, fingerprints, paint, write_slide

from ntrm.data.image_files import read_image
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import stitch
from ntrm.models.registry import create
from ntrm.pipeline.batch import segment_slides
from ntrm.pipeline.options import Options
from ntrm.pipeline.relations_mean import KEPT

pytestmark = pytest.mark.usefixtures("quick_readers")


@pytest.fixture
def slide(tmp_path, random):
    return write_slide(tmp_path / "in" / "a.tif", paint(random, width=150))


@pytest.fixture
def trm(seed):
    torch.manual_seed(seed)
    return create("ntrm-paper", schema_of(), width=0.125, dim=16).describe(window=64, mpp=MPP)


def run(slide, out, model, **options):
    found = segment_slides(slide, out=out, model=model, device="cpu", batch=3, options=Options(**options))
    assert found.exit_code == 0, [each.reason for each in found.slides]
    return out / "a"


def pixels_of(slide):
    return np.ascontiguousarray(read_image(slide))


def test_maps_are_those_of_the_section_in_memory(tmp_path, slide, trm):
    folder = run(slide, tmp_path / "out", trm, maps=True, tissue_mask=False)
    whole = stitch(Predictor(trm, "cpu", batch=3), pixels_of(slide), coarse=True)
    for name, expected in (
        ("mask", whole.mask + 1),
        ("coarse", whole.coarse_mask + 1),
        ("confidence", np.rint(whole.confidence * 255)),
    ):
        np.testing.assert_array_equal(tifffile.imread(folder / f"{name}.ome.tif", series=0), expected)
    with tifffile.TiffFile(folder / "confidence.ome.tif") as tiff:
        assert tiff.is_ome
        assert "255 = certainty 1" in tiff.ome_metadata


def test_without_a_coarse_head_there_is_no_initial_mask(tmp_path, slide):
    folder = run(slide, tmp_path / "out", ByColour(coarse=False), maps=True)
    assert (folder / "confidence.ome.tif").exists()
    assert not (folder / "coarse.ome.tif").exists()


def test_nothing_more_is_written_than_was_asked_for(tmp_path, slide):
    pytest.importorskip("zarr")
    bare = fingerprints(run(slide, tmp_path / "bare", ByColour(), report=False))
    more = fingerprints(run(slide, tmp_path / "more", ByColour(), maps=True, probabilities=True))
    assert "report.html" not in bare
    extra = {name.split("/")[0] for name in more.keys() - bare.keys()}
    assert extra == {"confidence.ome.tif", "coarse.ome.tif", "probabilities.zarr", "report.html"}
    # The options are named in every file, and nothing else differs.
    assert {name for name in bare if bare[name] == more[name]} >= {"slide.jpg", "thumbnail.jpg"}
    masks = [tifffile.imread(tmp_path / each / "a" / "mask.ome.tif", series=0) for each in ("bare", "more")]
    np.testing.assert_array_equal(*masks)


def test_a_report_more_or_less_is_no_other_run(tmp_path, slide):
    folder = run(slide, tmp_path / "out", ByColour(), report=False)
    assert run(slide, tmp_path / "out", ByColour()) == folder


def test_probabilities_are_those_of_the_section_in_memory(tmp_path, slide, trm):
    zarr = pytest.importorskip("zarr")
    folder = run(slide, tmp_path / "out", trm, probabilities=True, tissue_mask=False)
    stored = zarr.open_group(folder / "probabilities.zarr", mode="r")["0"][:]
    whole = stitch(Predictor(trm, "cpu", batch=3), pixels_of(slide), probabilities=True)
    np.testing.assert_allclose(stored, whole.probabilities * 255, atol=0.501)


@pytest.mark.parametrize("options", [{}, {"edge_weight": True}, {"nodes": "region", "regions": 2}])
def test_the_networks_relations_are_means_over_the_windows_that_have_the_edge(tmp_path, slide, seed, options):
    torch.manual_seed(seed)
    trained = bool(options.get("edge_weight"))
    network = create("ntrm-paper", schema_of(), width=0.125, dim=16, **options)
    trm = network.describe(window=64, mpp=MPP)
    folder = run(slide, tmp_path / "out", trm, tissue_mask=False)
    found = json.loads((folder / "graph.json").read_text())["network"]
    predictor, image = Predictor(trm, "cpu", batch=3), pixels_of(slide)
    size, windows = len(NAMES), Options().stitching(64).windows(*image.shape[:2])
    attention, weights = (np.zeros((n, size, size)) for n in (3, 1))
    count, edges = 0, np.zeros((size, size), dtype=int)
    for window in windows:
        graph = predictor.predict(image[window.slices], graph=True).graph
        assert (graph.edge_weights is not None) == trained
        if any(graph.presence[k] for k in range(size) if k != BKG):
            count += 1
            edges += graph.adjacency
            attention += graph.attention
            weights += graph.edge_weights if trained else 0
    assert found["names"] == list(NAMES)
    assert found["windows"] == count > 0
    assert found["note"] == "what the network used, not biology"
    assert found["edge_windows"] == edges.tolist()
    np.testing.assert_allclose(found["attention"], attention / np.maximum(edges, 1), atol=1e-4)
    if trained:
        np.testing.assert_allclose(found["edge_weight"], (weights / np.maximum(edges, 1))[0], atol=1e-4)
    else:
        assert found["edge_weight"] is None
    places = {(window.top, window.left) for window in windows}
    for edge in found["strongest_windows"]:
        i, j = NAMES.index(edge["source"]), NAMES.index(edge["target"])
        assert len(edge["windows"]) == min(edges[i, j], KEPT)
        assert {(window["top"], window["left"]) for window in edge["windows"]} <= places


def test_a_network_without_relations_says_null(tmp_path, slide):
    folder = run(slide, tmp_path / "out", ByColour())
    assert json.loads((folder / "graph.json").read_text())["network"] is None
