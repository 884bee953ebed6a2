import numpy as np
import pytest
import torch

from ntrm.core.errors import UsageError
from ntrm.inference.predictor import Predictor
from ntrm.models.registry import create
from ntrm.models.trm.edges import contacts
from ntrm.models.trm.nodes import propose
from ntrm.report.network_trace import Shape, trace_architecture, trace_relation


@pytest.fixture
def image(random):
    return random.integers(256, size=(64, 96, 3), dtype=np.uint8)


def untrained(arch="ntrm-paper", classes=3, seed=0, **options):
    torch.manual_seed(seed)
    return create(arch, classes, width=0.125, **options)


def test_shapes_follow_the_specification_at_full_width():
    trace = trace_architecture(create("ntrm-paper", 12), window=64)
    expected = {"image": (3, 64, 64), "coarse": (12, 64, 64), "final": (12, 64, 64), "φ": (12, 8, 8)}
    expected |= {"E1": (64, 32, 32), "E2": (64, 16, 16), "E3": (128, 8, 8), "E4": (256, 4, 4), "E5": (512, 2, 2)}
    expected |= {"D1": (256, 4, 4), "D2": (128, 8, 8), "D2'": (128, 8, 8)}
    expected |= {"D3": (96, 16, 16), "D4": (64, 32, 32), "D5": (32, 64, 64)}
    assert trace.shapes == {name: Shape(*shape) for name, shape in expected.items()}
    assert (trace.nodes, trace.layers, trace.coarse_from) == ((12, 128), 3, "E5")


def test_variants_show_in_the_trace():
    trace = trace_architecture(untrained(coarse="d2", layer="sum", layers=2, dim=16), window=32)
    assert (trace.nodes, trace.layers, trace.coarse_from) == ((3, 16), 2, "D2")
    assert trace_architecture(untrained(graph="none"), window=32).layers == 0
    control = trace_architecture(untrained("ntrm-control"), window=32)
    assert control.relation is None
    assert "D2'" not in control.shapes


def test_the_network_itself_is_left_alone(image):
    network = untrained().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    trace_architecture(network, window=32)
    trace_relation(network, image)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not any(part._forward_hooks for part in network.modules())


@pytest.mark.parametrize(
    "options", [{}, {"masks": "plain"}, {"masks": "soft", "absent": "linked"}, {"order": "mask-first"}]
)
def test_the_stages_are_those_of_the_forward_pass(image, seed, options):
    network = untrained(seed=seed, **options)
    trace = trace_relation(network, image)
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
    predicted = Predictor(network, device="cpu").predict(image, graph=True)
    assert np.array_equal(trace.mask, predicted.mask)
    assert np.allclose(trace.graph.attention, predicted.graph.attention, atol=1e-6)


def test_padding_is_cut_off(random):
    image = random.integers(256, size=(50, 33, 3), dtype=np.uint8)
    trace = trace_relation(untrained(), image)
    assert trace.features.shape[1:] == trace.masks.shape[1:] == (7, 5)
    assert trace.mask.shape == (50, 33)


def test_the_module_is_found_in_other_networks(image):
    pytest.importorskip("transformers")
    trace = trace_relation(untrained("mit-trm"), image)
    assert trace.names == ("features", "refined")
    assert np.allclose(trace.refined, trace.features + trace.projected, atol=1e-5)


def test_networks_without_what_is_asked_for_are_refused(image):
    for network in (untrained("ntrm-control"), untrained("unet-resnet18")):
        with pytest.raises(UsageError, match="no tissue relation module"):
            trace_relation(network, image)
    with pytest.raises(UsageError, match=r"got: +ntrm-control\n +expected: ntrm-paper or mit-trm\n.*the default, is"):
        trace_relation(untrained("ntrm-control"), image)
    assert trace_relation(untrained("ntrm"), image).graph.presence.shape
    with pytest.raises(UsageError, match="only NTRM's own architecture"):
        trace_architecture(untrained("unet-resnet18"))
