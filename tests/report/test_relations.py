import numpy as np
import pytest
import torch
from tests.report.looking import pictures, stumbles, words

from ntrm.core.errors import UsageError
from ntrm.core.labels import SKIN
from ntrm.models.predictor import Predictor
from ntrm.models.registry import create
from ntrm.models.trm.edges import contacts
from ntrm.models.trm.nodes import propose
from ntrm.report.relations import norm, pipeline_figure, trace_relation, trm_figure

VARIANTS = [
    (12, {}),
    (3, {"masks": "soft", "absent": "linked", "graph": "complete", "edge_weight": True, "layers": 2}),
    (3, {"masks": "plain", "layer": "sum", "graph": "none"}),
]


@pytest.fixture
def image(random):
    """Broad patches, so that an untrained network is sure of something somewhere."""
    coarse = random.integers(256, size=(4, 4, 3), dtype=np.uint8)
    return np.kron(coarse, np.ones((16, 16, 1), dtype=np.uint8))


def untrained(arch="ntrm-paper", classes=3, *, sure=1, **options):
    """A network whose coarse head, if ``sure`` is large, commits itself, so that there are regions."""
    torch.manual_seed(0)
    network = create(arch, classes, width=0.125, **options)
    with torch.no_grad():
        network.coarse.classify.weight.mul_(sure)
    return network


def test_the_pipeline_shows_each_step_of_the_forward_pass(image):
    network = untrained(classes=12, sure=1000)
    trace = trace_relation(network, image)
    figure = pipeline_figure(network, image)
    coarse, final = SKIN.colourise(trace.coarse), SKIN.colourise(trace.mask)
    expected = [image, norm(trace.features), coarse, norm(trace.refined), final]
    for one, other in zip(pictures(figure), expected, strict=True):
        assert np.allclose(one, other, atol=1e-4)
    marks = {str(mark.get_gid()): mark for axes in figure.axes for mark in (*axes.patches, *axes.lines)}
    arrows = {tuple(map(int, name.split()[1:])): mark for name, mark in marks.items() if name.startswith("edge")}
    assert set(arrows) == {(int(a), int(b)) for a, b in np.argwhere(trace.graph.adjacency)}
    for place, arrow in arrows.items():
        assert arrow.get_linewidth() == pytest.approx(0.5 + 4.5 * trace.graph.boundary[place])
    for tissue in trace.present:
        assert np.allclose(marks[f"node {tissue}"].get_markerfacecolor(), SKIN.palette[tissue] / 255)
        assert SKIN.names[tissue] in words(figure)
    assert not stumbles(figure)


@pytest.mark.parametrize(("classes", "options"), VARIANTS)
def test_the_stages_of_every_variant_can_be_read(image, classes, options):
    network = untrained(classes=classes, sure=1000, **options)
    trace, figure = trace_relation(network, image), trm_figure(network, image)
    assert trace.present
    # window, coarse prediction and final mask; a mask for each tissue; D2, S' and D2'; heat maps have two layers.
    assert sum(len(axes.images) == 1 for axes in figure.axes) == 3 + len(trace.present) + 3
    heats = [axes.images[0].get_array() for axes in figure.axes if len(axes.images) == 2]
    weights = [trace.graph.edge_weights] if options.get("edge_weight") else []
    for shown, values in zip(heats, [trace.graph.boundary, *weights, *trace.graph.attention], strict=True):
        assert np.allclose(shown, values)
    texts = words(figure)
    message = "No messages" if options.get("graph") == "none" else ("Sum" if "layer" in options else "Attn")
    assert {"Reg", "Node · Adj · Bnd", message, "Proj"} <= set(texts)
    unused = any("edge weights: not used by this model" in text.replace("\n", " ") for text in texts)
    assert unused == (not weights and options.get("graph") != "none")
    assert not stumbles(figure)
    for picture, tissue in zip(pictures(figure)[2:], trace.present if classes == 12 else [], strict=False):
        coloured = (np.asarray(picture) == SKIN.palette[tissue]).all(axis=2)
        assert np.array_equal(coloured, trace.masks[tissue] > 0), SKIN.names[tissue]


@pytest.mark.parametrize("arch", ["ntrm-control", "unet-resnet18"])
def test_networks_without_the_module_are_refused_politely(image, arch):
    with pytest.raises(UsageError, match=f"(?s)no tissue relation module.*{arch}.*ntrm-paper"):
        trace_relation(create(arch, 3, width=0.125), image)


@pytest.mark.parametrize("options", [{"masks": "soft", "absent": "linked"}, {"order": "mask-first"}])
def test_the_stages_are_those_of_the_forward_pass_and_the_network_is_left_alone(random, options):
    noise = random.integers(256, size=(64, 96, 3), dtype=np.uint8)
    network = untrained(**options).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    trace = trace_relation(network, noise)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert trace.features.shape[1:] == trace.probabilities.shape[1:] == (8, 12)
    assert np.allclose(trace.probabilities.sum(axis=0), 1, atol=1e-5)
    probabilities = torch.from_numpy(trace.probabilities)[None]
    hard = propose(probabilities, 0.5, pooled=options.get("masks") != "plain")
    masks = probabilities if options.get("masks") == "soft" else hard
    assert np.allclose(trace.masks, masks[0].numpy())
    area, touching, boundary = contacts(hard)
    assert np.allclose(trace.graph.area, area[0])
    assert np.allclose(trace.graph.boundary, boundary[0])
    assert trace.present == torch.nonzero(area[0])[:, 0].tolist()
    assert np.all(trace.graph.adjacency[touching[0].numpy()])
    assert np.allclose(trace.refined, trace.features + trace.projected, atol=1e-5)
    predicted = Predictor(network.eval(), device="cpu").predict(noise, graph=True)
    assert np.array_equal(trace.mask, predicted.mask)
    assert np.allclose(trace.graph.attention, predicted.graph.attention, atol=1e-6)


def test_padding_is_cut_off_and_the_module_is_found_in_other_networks(random):
    image = random.integers(256, size=(50, 33, 3), dtype=np.uint8)
    trace = trace_relation(untrained(), image)
    assert trace.features.shape[1:] == trace.masks.shape[1:] == (7, 5)
    assert trace.mask.shape == (50, 33)
    pytest.importorskip("transformers")
    trace = trace_relation(create("mit-trm", 3, width=0.125), image)
    assert trace.names == ("features", "refined")
    assert np.allclose(trace.refined, trace.features + trace.projected, atol=1e-5)
