import numpy as np
import pytest
import torch
from matplotlib.patches import FancyArrowPatch
from tests.report.looking import pictures, stumbles, words

from ntrm.core.errors import UsageError
from ntrm.core.labels import SKIN
from ntrm.inference.predictor import Predictor, TissueRelations
from ntrm.models.registry import create
from ntrm.models.trm.edges import contacts
from ntrm.models.trm.nodes import propose
from ntrm.report.drawing import new_figure
from ntrm.report.relations import draw_graph, norm, pipeline_figure, robust_top, trace_relation, trm_figure

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


def test_the_pipeline_shows_each_step_of_the_forward_pass(image):
    network = sure(classes=12)
    trace = trace_relation(network, image)
    figure = pipeline_figure(network, image)
    shown = pictures(figure)
    coarse, final = SKIN.colourise(trace.coarse), SKIN.colourise(trace.mask)
    expected = [image, norm(trace.features), coarse, norm(trace.refined), final]
    for one, other in zip(shown, expected, strict=True):
        assert np.allclose(one, other, atol=1e-4)
    texts = [text.removeprefix("→  ") for text in words(figure)]
    titles = ["window", "features", "coarse prediction", "tissue graph", "refined features", "final mask"]
    assert [text for text in texts if text in titles] == titles
    edges = [patch for axes in figure.axes for patch in axes.patches if str(patch.get_gid()).startswith("edge")]
    assert len(edges) == trace.graph.adjacency.sum()
    assert not stumbles(figure)


@pytest.mark.parametrize(("classes", "options"), VARIANTS)
def test_the_stages_of_every_variant_can_be_read(image, classes, options):
    network = sure(classes=classes, **options)
    trace, figure = trace_relation(network, image), trm_figure(network, image)
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
    unused = any("edge weights: not used by this model" in text.replace("\n", " ") for text in texts)
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


@pytest.fixture
def noise(random):
    return random.integers(256, size=(64, 96, 3), dtype=np.uint8)


def untrained(arch="ntrm-paper", classes=3, seed=0, **options):
    torch.manual_seed(seed)
    return create(arch, classes, width=0.125, **options)


def test_the_network_itself_is_left_alone(noise):
    network = untrained().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    trace_relation(network, noise)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not any(part._forward_hooks for part in network.modules())


@pytest.mark.parametrize(
    "options", [{}, {"masks": "plain"}, {"masks": "soft", "absent": "linked"}, {"order": "mask-first"}]
)
def test_the_stages_are_those_of_the_forward_pass(noise, seed, options):
    network = untrained(seed=seed, **options)
    trace = trace_relation(network, noise)
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
    predicted = Predictor(network, device="cpu").predict(noise, graph=True)
    assert np.array_equal(trace.mask, predicted.mask)
    assert np.allclose(trace.graph.attention, predicted.graph.attention, atol=1e-6)


def test_padding_is_cut_off(random):
    image = random.integers(256, size=(50, 33, 3), dtype=np.uint8)
    trace = trace_relation(untrained(), image)
    assert trace.features.shape[1:] == trace.masks.shape[1:] == (7, 5)
    assert trace.mask.shape == (50, 33)


def test_the_module_is_found_in_other_networks(noise):
    pytest.importorskip("transformers")
    trace = trace_relation(untrained("mit-trm"), noise)
    assert trace.names == ("features", "refined")
    assert np.allclose(trace.refined, trace.features + trace.projected, atol=1e-5)


def test_networks_without_what_is_asked_for_are_refused(noise):
    with pytest.raises(UsageError, match=r"got: +ntrm-control\n +expected: ntrm-paper or mit-trm\n.*the default, is"):
        trace_relation(untrained("ntrm-control"), noise)
    assert trace_relation(untrained("ntrm"), noise).graph.presence.shape


def relations(random, presence, adjacency):
    size = len(presence)
    area = np.where(presence, random.integers(1, 900, size=size), 0).astype(np.float32)
    boundary = random.random((size, size)).astype(np.float32) * presence[:, None]
    nothing = np.zeros((size, size), dtype=np.float32)
    return TissueRelations(
        SKIN.names[:size], presence, area, adjacency, boundary, nothing[None], nothing, np.zeros((size, 4), np.float32)
    )


@pytest.fixture
def graph(random):
    presence = random.random(12) < 0.6
    presence[:2] = True
    adjacency = (random.random((12, 12)) < 0.4) & presence[:, None] & presence[None]
    np.fill_diagonal(adjacency, False)
    adjacency[0, 1] = True
    return relations(random, presence, adjacency)


def drawn(graph):
    figure = new_figure(4, 4)
    axes = figure.subplots()
    draw_graph(axes, graph, SKIN)
    return figure, axes


def edges_of(axes):
    arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
    return {tuple(map(int, arrow.get_gid().split()[1:])): arrow for arrow in arrows}


def test_arrows_are_the_adjacency_and_their_widths_the_boundary_ratios(graph):
    _, axes = drawn(graph)
    arrows = edges_of(axes)
    assert set(arrows) == {(int(a), int(b)) for a, b in np.argwhere(graph.adjacency)}
    for (source, target), arrow in arrows.items():
        assert arrow.get_linewidth() == pytest.approx(0.5 + 4.5 * graph.boundary[source, target])


def test_nodes_have_their_tissues_colours_names_and_sizes(graph):
    figure, axes = drawn(graph)
    nodes = {int(line.get_gid().split()[1]): line for line in axes.lines}
    assert sorted(nodes) == np.flatnonzero(graph.presence).tolist()
    for tissue, node in nodes.items():
        assert np.allclose(node.get_markerfacecolor(), SKIN.palette[tissue] / 255)
    order = sorted(nodes, key=lambda tissue: graph.area[tissue])
    sizes = [nodes[tissue].get_markersize() for tissue in order]
    assert sizes == sorted(sizes)
    assert set(words(figure)) == {SKIN.names[tissue] for tissue in nodes}
    assert not stumbles(figure)


def test_absent_tissues_appear_only_with_an_edge_and_hollow(random):
    presence = np.array([True, True, False, False])
    adjacency = np.zeros((4, 4), dtype=bool)
    adjacency[2, 0] = adjacency[2, 1] = True
    figure, axes = drawn(relations(random, presence, adjacency))
    assert sorted(words(figure)) == ["(INF)", "EPI", "GLD"]
    assert next(line for line in axes.lines if line.get_gid() == "node 2").get_markerfacecolor() == "white"
    assert set(edges_of(axes)) == {(2, 0), (2, 1)}


def test_one_tissue_alone_and_none_at_all(random):
    alone = np.eye(1, 12, 3, dtype=bool)[0]
    none = np.zeros((12, 12), dtype=bool)
    figure, _ = drawn(relations(random, alone, none))
    assert words(figure) == ["RET"]
    figure, _ = drawn(relations(random, none[0], none))
    assert words(figure) == ["no tissue was proposed"]
