import numpy as np
import pytest
import torch
from tests.report.looking import pictures, stumbles, words

from ntrm.core.errors import UsageError
from ntrm.core.labels import SKIN
from ntrm.models.registry import create
from ntrm.report.network_figures import architecture_figure, pipeline_figure, trm_figure
from ntrm.report.network_trace import trace_relation
from ntrm.report.relation_figures import draw_relation, norm, robust_top

VARIANTS = [
    (12, {}),
    (3, {"masks": "soft", "absent": "linked", "graph": "complete", "edge_weight": True, "layers": 4}),
    (3, {"masks": "plain", "layer": "sum"}),
    (3, {"graph": "none"}),
]


@pytest.fixture
def image(random):
    """Broad patches, so that an untrained network is sure of something somewhere."""
    coarse = random.integers(256, size=(4, 4, 3), dtype=np.uint8)
    return np.kron(coarse, np.ones((16, 16, 1), dtype=np.uint8))


def sure(arch="ntrm-paper", classes=3, seed=0, **options):
    """An untrained network whose coarse head commits itself, so that there are regions."""
    torch.manual_seed(seed)
    network = create(arch, classes, width=0.125, **options)
    with torch.no_grad():
        network.coarse.classify.weight.mul_(1000)
    return network


def sizes(figure):
    return {text.get_gid(): text.get_text() for text in figure.axes[0].texts if text.get_gid()}


def test_numbers_in_the_architecture_are_the_tensors_shapes():
    network = create("ntrm-paper", 3, width=0.25).eval()
    shown = sizes(architecture_figure(network))
    with torch.inference_mode():
        x = torch.zeros(1, 3, 256, 256)
        stages = network.encoder(x)
        d1 = network.upper.blocks[0](stages[4], stages[3])
        d2 = network.upper.blocks[1](d1, stages[2])
        coarse = network.coarse(stages[4])
        refined, graph = network.relation(d2, coarse.softmax(dim=1))
        d3 = network.lower.blocks[0](refined, stages[1])
        d4 = network.lower.blocks[1](d3, stages[0])
        d5 = network.lower.blocks[2](d4)
        final = network.classify(d5)
    tensors = dict(zip(["D1", "D2", "D2'", "D3", "D4", "D5"], (d1, d2, refined, d3, d4, d5), strict=True))
    tensors |= {f"E{number}": stage for number, stage in enumerate(stages, start=1)}
    tensors |= {"image": x, "φ": coarse, "final": final}
    for name, tensor in tensors.items():
        assert shown[f"size {name}"] == " × ".join(map(str, tensor.shape[1:])), name
    assert shown["size coarse"] == "3 × 256 × 256"
    assert shown["size TRM"] == f"nodes 3 × {graph.nodes.shape[2]}"


def arrows(figure):
    return {patch.get_gid().removeprefix("arrow ") for patch in figure.axes[0].patches if patch.get_gid()}


def test_arrows_are_the_wiring():
    skips = {"E4 D1", "E3 D2", "E2 D3", "E1 D4"}
    spine = {"image E1", "E1 E2", "E2 E3", "E3 E4", "E4 E5", "E5 D1", "D1 D2", "D3 D4", "D4 D5", "D5 final", "φ coarse"}
    relation = {"D2 TRM", "φ TRM", "TRM D2'", "D2 D2'", "D2' D3"}
    assert arrows(architecture_figure(sure())) == skips | spine | relation | {"E5 φ"}
    assert arrows(architecture_figure(sure(coarse="d2"))) == skips | spine | relation | {"D2 φ"}
    assert arrows(architecture_figure(sure("ntrm-control"))) == skips | spine | {"D2 D3", "E5 φ"}


@pytest.mark.parametrize("options", [{}, {"coarse": "d2", "graph": "none"}, {"encoder": "resnet50", "layer": "sum"}])
def test_the_architecture_can_be_read(options):
    assert not stumbles(architecture_figure(sure(classes=12, **options)))


def test_the_pipeline_shows_each_step_of_the_forward_pass(image):
    network = sure(classes=12)
    trace = trace_relation(network, image)
    figure = pipeline_figure(network, image)
    shown = pictures(figure)
    coarse, final = SKIN.colourise(trace.coarse), SKIN.colourise(trace.mask)
    expected = [image, norm(trace.features), coarse, norm(trace.refined), final]
    for one, other in zip(shown, expected, strict=True):
        assert np.allclose(one, other, atol=1e-4)
    texts = words(figure)
    titles = ["window", "features", "coarse prediction", "tissue graph", "refined features", "final mask"]
    assert [text for text in texts if text in titles] == titles
    edges = [patch for axes in figure.axes for patch in axes.patches if str(patch.get_gid()).startswith("edge")]
    assert len(edges) == trace.graph.adjacency.sum()
    assert not stumbles(figure)


@pytest.mark.parametrize(("classes", "options"), VARIANTS)
def test_the_stages_of_every_variant_can_be_read(image, classes, options):
    trace = trace_relation(sure(classes=classes, **options), image)
    figure = draw_relation(trace)
    layers = len(trace.graph.attention)
    # window, coarse prediction and final mask; a mask for each tissue; D2, S' and D2'; heat maps have two layers.
    maps = [axes for axes in figure.axes if len(axes.images) == 1]
    assert len(maps) == 3 + len(trace.present) + 3
    heats = [axes for axes in figure.axes if len(axes.images) == 2]
    weighted = bool(options.get("edge_weight"))
    assert len(heats) == 1 + weighted + layers
    assert np.allclose(heats[0].images[0].get_array(), trace.graph.boundary)
    if weighted:
        assert np.allclose(heats[1].images[0].get_array(), trace.graph.edge_weights)
    for axes, attention in zip(heats[1 + weighted :], trace.graph.attention, strict=True):
        assert np.allclose(axes.images[0].get_array(), attention)
    texts = words(figure)
    message = "No messages" if options.get("graph") == "none" else ("Sum" if "layer" in options else "Attn")
    assert {"Reg", "Node · Adj · Bnd", message, "Proj"} <= set(texts)
    unused = any("edge weights: not used by this model" in text for text in texts)
    assert unused == (not weighted and options.get("graph") != "none")
    assert not stumbles(figure)
    assert trace.present
    for picture, tissue in zip(pictures(figure)[2:], trace.present if classes == 12 else [], strict=False):
        coloured = (np.asarray(picture) == SKIN.palette[tissue]).all(axis=2)
        assert np.array_equal(coloured, trace.masks[tissue] > 0), SKIN.names[tissue]


def test_norm_and_scale_against_numpy(random):
    features = random.normal(size=(5, 7, 9)).astype(np.float32)
    assert norm(features) == pytest.approx(np.linalg.norm(features.astype(float), axis=0))
    assert robust_top(np.zeros((3, 3))) == 1.0
    assert robust_top(np.arange(101.0), np.arange(101.0)) == 99.0


@pytest.mark.parametrize("arch", ["ntrm-control", "unet-resnet18"])
def test_networks_without_the_module_are_refused_politely(image, arch):
    network = create(arch, 3, width=0.125)
    for draw in (pipeline_figure, trm_figure):
        with pytest.raises(UsageError, match=f"(?s)no tissue relation module.*{arch}.*ntrm-paper"):
            draw(network, image)
