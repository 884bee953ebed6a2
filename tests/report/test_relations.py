import numpy as np
import pytest
import torch
from tests.report.looking import pictures, stumbles, words

from ntrm.core.errors import UsageError
from ntrm.core.labels import SKIN
from ntrm.models.predictor import Predictor, TissueRelations
from ntrm.models.registry import create
from ntrm.models.trm.edges import contacts
from ntrm.models.trm.nodes import propose
from ntrm.report.drawing import new_figure
from ntrm.report.relations import draw_graph, norm, pipeline_figure, trace_relation, trm_figure

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
    edges = [patch for axes in figure.axes for patch in axes.patches if str(patch.get_gid()).startswith("edge")]
    assert len(edges) == trace.graph.adjacency.sum()
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


@pytest.mark.parametrize(
    "options", [{}, {"masks": "plain"}, {"masks": "soft", "absent": "linked"}, {"order": "mask-first"}]
)
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


def drawn(random, presence, adjacency):
    size = len(presence)
    area = np.where(presence, random.integers(1, 900, size=size), 0).astype(np.float32)
    boundary = random.random((size, size)).astype(np.float32) * presence[:, None]
    none, window = np.zeros((size, size), np.float32), np.zeros((size, 4), np.float32)
    graph = TissueRelations(SKIN.names[:size], presence, area, adjacency, boundary, none[None], none, window)
    figure = new_figure(4, 4)
    axes = figure.subplots()
    draw_graph(axes, graph, SKIN)
    nodes = {int(line.get_gid().split()[1]): line for line in axes.lines}
    arrows = {tuple(map(int, arrow.get_gid().split()[1:])): arrow for arrow in axes.patches}
    return figure, graph, nodes, arrows


def test_arrows_are_the_adjacency_and_nodes_have_their_tissues_colours_names_and_sizes(random):
    presence = random.random(12) < 0.6
    presence[:2] = True
    adjacency = (random.random((12, 12)) < 0.4) & presence[:, None] & presence[None] & ~np.eye(12, dtype=bool)
    figure, graph, nodes, arrows = drawn(random, presence, adjacency)
    assert set(arrows) == {(int(a), int(b)) for a, b in np.argwhere(adjacency)}
    for place, arrow in arrows.items():
        assert arrow.get_linewidth() == pytest.approx(0.5 + 4.5 * graph.boundary[place])
    assert sorted(nodes) == np.flatnonzero(presence).tolist()
    for tissue, node in nodes.items():
        assert np.allclose(node.get_markerfacecolor(), SKIN.palette[tissue] / 255)
    sizes = [nodes[tissue].get_markersize() for tissue in sorted(nodes, key=lambda tissue: graph.area[tissue])]
    assert sizes == sorted(sizes)
    assert set(words(figure)) == {SKIN.names[tissue] for tissue in nodes}
    assert not stumbles(figure)
