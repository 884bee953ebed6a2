"""The public functions of ``ntrm``: what a user imports, and nothing else."""

import numpy as np
import pytest
import torch

import ntrm
from ntrm.core.errors import UsageError


def test_dir_shows_the_public_names_alone():
    assert dir(ntrm) == sorted(ntrm.__all__)
    assert all(getattr(ntrm, name) is not None for name in ntrm.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Any'"):
        ntrm.Any  # noqa: B018 - asked for


def test_every_listed_model_can_be_made():
    names = ntrm.list_models()
    assert names[0] == "ntrm"
    assert {"ntrm-paper", "ntrm-control", "unet-resnet18", "mit-b0"} <= set(names)
    for name in names:
        if not name.startswith("mit"):
            assert ntrm.create(name, width=0.05 if name != "deeplabv3plus" else 0.125).config.classes == 12


def test_the_graph_of_a_mask_needs_its_mpp_alone():
    mask = np.array([[7, 0, 5, 255]], dtype=np.uint8)
    graph = ntrm.tissue_graph(mask, mpp=10)
    assert graph.as_node_link() == ntrm.tissue_graph(mask, 10.0, ntrm.SKIN).as_node_link()
    assert [graph.names[i] for i, _ in graph.interfaces] == ["EPI", "EPI", "PAP"]


def test_an_unknown_option_of_segment_slides_names_the_nearest(tmp_path):
    picture = tmp_path / "a.png"
    picture.write_bytes(b"")
    with pytest.raises(UsageError, match="unknown option of segment_slides") as caught:
        ntrm.segment_slides(picture, out=tmp_path / "out", min_area=3)
    assert caught.value.hint == "did you mean min_area_um2?"


def test_a_slide_is_opened_and_read_in_a_block(tmp_path, random):
    from PIL import Image

    pixels = random.integers(0, 256, (30, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    with ntrm.open_slide(tmp_path / "a.png") as slide:
        assert (slide.info.width, slide.info.height, slide.info.resolution) == (40, 30, None)
        np.testing.assert_array_equal(slide.read(5, 6, 10, 8, 0), pixels[6:14, 5:15])
        assert (slide.dimensions, slide.mpp) == ((40, 30), None)
        np.testing.assert_array_equal(slide.read(5, 6, 10, 8, 0), pixels[6:14, 5:15])
        np.testing.assert_array_equal(slide.thumbnail(), pixels)
        assert slide.thumbnail(20).size == slide.thumbnail((20, 40)).size == (20, 15)
        assert slide.thumbnail((40, 3)).size == (4, 3)


def test_no_result_prints_pages(random):
    network = ntrm.create("ntrm", classes=["stroma", "tumour"], width=0.05)
    images = random.integers(0, 256, (2, 3, 64, 64), dtype=np.uint8)
    found = ntrm.Predictor(network, "cpu")(images[0].transpose(1, 2, 0), graph=True, coarse=True)
    graph = ntrm.tissue_graph(random.integers(0, 2, (90, 90)), mpp=5, schema=network.config.schema)
    batch = ntrm.normalise(torch.from_numpy(images), network)
    for result in (found, found.graph, graph, graph.regions, network.eval()(batch, graph=True)):
        assert repr(result).startswith(type(result).__name__)
        assert len(repr(result)) < 600
    assert "probabilities=float32 (2, 64, 64)" in repr(found)


def test_bytes_become_what_a_network_expects(random):
    network = ntrm.create("ntrm-control", width=0.05).describe(mean=(0.1, 0.2, 0.3), std=(0.5, 0.4, 0.2)).eval()
    images = random.integers(0, 256, (2, 64, 64, 3), dtype=np.uint8)
    x = ntrm.normalise(torch.from_numpy(images).permute(0, 3, 1, 2), network)
    expected = (images / 255 - (0.1, 0.2, 0.3)) / (0.5, 0.4, 0.2)
    np.testing.assert_allclose(x.permute(0, 2, 3, 1), expected, rtol=1e-5, atol=1e-6)
    for wrong in (x, torch.from_numpy(images), images):
        with pytest.raises(UsageError, match="no RGB bytes"):
            ntrm.normalise(wrong, network)
