"""What must hold for every draw: symmetries, batch independence, finite gradients, memory linear in the pixels."""

import functools
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.trm.literal import module_with
from tests.reference.draws import coarse_prediction, parameters
from tests.reference.trm_literal import VARIANTS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ntrm.models.trm import RelationConfig, TissueRelation

CHANNELS, DIM, LAYERS = 4, 3, 2
SEEDS = st.integers(0, 2**32 - 1)
CLASSES = st.integers(2, 8)
OPTIONS = st.fixed_dictionaries({name: st.sampled_from(choices) for name, choices in VARIANTS.items()})
some = settings(max_examples=30)


def draw(seed, classes, variant=None, batch=1):
    """A module with random parameters in float64 and inference mode, features and probabilities."""
    random = np.random.default_rng(seed)
    config = RelationConfig(dim=DIM, layers=LAYERS, **(variant or {}))
    params = parameters(random, CHANNELS, DIM, classes, LAYERS, config.layer, config.boundary)
    height, width = random.integers(2, 10, size=2)
    probabilities = np.stack([coarse_prediction(random, classes, height, width) for _ in range(batch)])
    features = random.normal(size=(batch, CHANNELS, height, width))
    module = module_with(params, CHANNELS, classes, config)
    return module, torch.as_tensor(features), torch.as_tensor(probabilities)


def assert_close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@torch.no_grad()
@some
@given(SEEDS, CLASSES, OPTIONS, st.randoms(use_true_random=False))
def test_permuting_the_classes_permutes_the_graph_and_leaves_the_features(seed, classes, variant, shuffler):
    module, features, probabilities = draw(seed, classes, variant)
    order = list(range(classes))
    shuffler.shuffle(order)
    refined, graph = module(features, probabilities)
    module.absent.copy_(module.absent[order].clone())
    refined_again, permuted = module(features, probabilities[:, order])
    assert_close(refined_again, refined)
    for name in ("presence", "area", "nodes"):
        assert_close(getattr(permuted, name), getattr(graph, name)[:, order])
    for name in ("adjacency", "boundary", "edge_weights", "attention"):
        assert_close(getattr(permuted, name), getattr(graph, name)[..., order, :][..., order])


@torch.no_grad()
@some
@given(SEEDS, CLASSES, OPTIONS)
def test_an_image_does_not_see_its_batch_neighbours(seed, classes, variant):
    module, features, probabilities = draw(seed, classes, variant, batch=3)
    together, graphs = module(features, probabilities)
    alone, graph = module(features[1:2], probabilities[1:2])
    assert_close(together[1:2], alone)
    for ours, theirs in zip(graphs, graph, strict=True):
        assert_close(ours[1:2], theirs)


TURNS = {
    "flip rows": lambda x: x.flip(2),
    "flip columns": lambda x: x.flip(3),
    "transpose": lambda x: x.transpose(2, 3).contiguous(),
    **{f"rotate {90 * k}°": lambda x, k=k: x.rot90(k, (2, 3)) for k in (1, 2, 3)},
}


@torch.no_grad()
@some
@given(SEEDS, CLASSES, OPTIONS, st.sampled_from(list(TURNS)))
def test_flips_and_right_angles_leave_the_measured_graph(seed, classes, variant, turn):
    module, features, probabilities = draw(seed, classes, variant)
    _, graph = module(features, probabilities)
    _, turned = module(TURNS[turn](features), TURNS[turn](probabilities))
    # Of equally large regions the first is kept whole, so that a flip may change which ones of a tissue are joined.
    others = ~torch.eye(classes, dtype=torch.bool)
    assert torch.equal(turned.adjacency & others, graph.adjacency & others)
    for name in ("presence", "area", "boundary"):
        assert torch.equal(getattr(turned, name), getattr(graph, name)), name


@torch.no_grad()
@some
@given(SEEDS, CLASSES, OPTIONS)
def test_adjacency_has_an_empty_diagonal_and_is_symmetric_without_links(seed, classes, variant):
    module, features, probabilities = draw(seed, classes, variant)
    _, graph = module(features, probabilities)
    edges, present = graph.adjacency[0], graph.presence[0]
    assert variant["nodes"] == "region" or not edges.diagonal().any()
    assert not edges[:, ~present].any(), "nothing is sent to an absent tissue"
    among_present = edges & present[:, None] & present[None]
    assert torch.equal(among_present, among_present.T)
    if variant["absent"] == "isolated":
        assert torch.equal(edges, edges.T)
    elif variant["graph"] != "none":
        assert edges[~present][:, present].all(), "every absent tissue sends to every present one"


@torch.no_grad()
@some
@given(SEEDS, CLASSES, OPTIONS)
def test_attention_sums_to_one_over_a_neighbourhood_and_is_zero_over_none(seed, classes, variant):
    module, features, probabilities = draw(seed, classes, variant | {"layer": "attention"})
    _, graph = module(features, probabilities)
    assert graph.attention.shape[1] == (0 if variant["graph"] == "none" else LAYERS)
    assert not torch.isnan(graph.attention).any()
    assert not graph.attention[:, :, ~graph.adjacency[0]].any()
    has_senders = graph.adjacency.any(dim=1)  # (B, K)
    assert_close(graph.attention.sum(dim=2), has_senders[:, None].expand(-1, graph.attention.shape[1], -1).double())


def presence_of(kind, classes=4, height=6, width=8):
    """Probabilities (2, K, H, W) in which no tissue, one tissue or every tissue is present."""
    p = torch.full((2, classes, height, width), 0.1)
    if kind == "one present":
        p[:, 1] = 0.7
    elif kind == "all present":
        for c in range(classes):
            p[:, c, :, c * width // classes : (c + 1) * width // classes] = 0.7
    return p


@pytest.mark.parametrize("kind", ["all absent", "one present", "all present"])
@pytest.mark.parametrize("masks", VARIANTS["masks"])
@pytest.mark.parametrize("layer", VARIANTS["layer"])
def test_gradients_are_finite_with_every_kind_of_absence(kind, masks, layer, seed):
    torch.manual_seed(seed)
    others = [name for name in VARIANTS if name not in ("masks", "layer", "boundary", "gate")]
    for chosen in itertools.product(*(VARIANTS[name] for name in others)):
        variant = dict(zip(others, chosen, strict=True))
        module = TissueRelation(
            CHANNELS, 4, RelationConfig(masks=masks, layer=layer, dim=DIM, layers=LAYERS, **variant)
        )
        features, p = torch.randn(2, CHANNELS, 6, 8, requires_grad=True), presence_of(kind).requires_grad_()
        refined, graph = module(features, p)
        assert graph.presence.sum(dim=1).tolist() == [{"all absent": 0, "one present": 1, "all present": 4}[kind]] * 2
        (refined.square().sum() + graph.nodes.square().sum() + graph.edge_weights.sum()).backward()
        # Only soft masks are a function of p.
        tensors = {"features": features, **({"probabilities": p} if masks == "soft" else {})}
        for name, tensor in {**tensors, **dict(module.named_parameters())}.items():
            assert torch.isfinite(tensor.grad).all(), (name, variant)
        assert features.grad.any()


# --- memory ---


class Sizes(TorchDispatchMode):
    """Notes how many elements every tensor that is made has."""

    def __init__(self):
        super().__init__()
        self.made = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.made += [leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        return out


@functools.cache
def sizes_made(side, order="project-first", dim=32, classes=6, batch=2):
    """Elements of every tensor made by one forward pass on a (side, side) grid; no value is ever computed."""
    with FakeTensorMode(), torch.no_grad():
        module = TissueRelation(dim, classes, RelationConfig(order=order, dim=dim)).eval()
        features, p = torch.empty(batch, dim, side, side), torch.empty(batch, classes, side, side)
        with Sizes() as sizes:
            module(features, p)
    return sizes.made


SIDES = (16, 32, 64)


@pytest.mark.parametrize("order", VARIANTS["order"])
def test_the_largest_tensor_is_a_feature_map(order):
    # B·d·N elements; with a tensor of all tissues and all channels it would be K times that.
    assert [max(sizes_made(side, order)) for side in SIDES] == [2 * 32 * side**2 for side in SIDES]


def elements_per_pixel(dim, classes):
    """How all tensors together grow from each size to the next, per image and pixel."""
    totals = [sum(sizes_made(side, dim=dim, classes=classes)) for side in SIDES]
    pixels = [2 * side**2 for side in SIDES]
    return np.diff(totals) / np.diff(pixels)


def test_memory_is_linear_in_pixels_times_channels_and_tissues():
    growth = elements_per_pixel(dim=32, classes=6)
    assert growth == pytest.approx(growth[0])
    assert elements_per_pixel(dim=64, classes=12) == pytest.approx(2 * growth)
