"""The module against the literal oracle: every variant, every kind of presence, in float64 to 1e-9."""

import itertools

import numpy as np
import pytest
import torch
from tests.models.trm.literal import assert_same, literal, module_with
from tests.reference.draws import coarse_prediction, parameters
from tests.reference.trm_literal import VARIANTS

from ntrm.core.errors import UsageError
from ntrm.models.trm import RelationConfig, TissueRelation

COMBINATIONS = [
    variant
    for values in itertools.product(*VARIANTS.values())
    # What a node is, how an edge or a pooled feature is made, and the gate behind all of it do not meet: regions and
    # the gate with the paper's choice of these.
    if ((variant := dict(zip(VARIANTS, values, strict=True)))["nodes"] == "class" and not variant["gate"])
    or (variant["boundary"] and variant["order"] == "project-first")
]


def assert_literal(random, config, probabilities, channels=4):
    """Draw parameters and features, run both sides, compare everything."""
    batch, classes, height, width = probabilities.shape
    params = parameters(random, channels, config.dim, classes, config.layers, config.layer, config.boundary)
    features = random.normal(size=(batch, channels, height, width))
    module = module_with(params, channels, classes, config)
    refined, graph = module.relate_regions(torch.as_tensor(features), torch.as_tensor(probabilities))
    assert_same(refined, graph, literal(features, probabilities, params, config))
    return graph


@pytest.mark.parametrize("variant", COMBINATIONS, ids=lambda variant: "-".join(map(str, variant.values())))
def test_every_variant_is_the_literal_reading(variant, random):
    config = RelationConfig(dim=3, layers=2, regions=2, **variant)
    probabilities = np.stack([coarse_prediction(random, 5, 5, 4) for _ in range(2)])
    assert_literal(random, config, probabilities)


def test_a_gate_is_closed_at_first_and_learns_to_open(random):
    module = TissueRelation(4, 5, RelationConfig(dim=3, layers=2, gate=True)).double()
    features = torch.as_tensor(random.normal(size=(2, 4, 5, 4)))
    probabilities = torch.as_tensor(np.stack([coarse_prediction(random, 5, 5, 4) for _ in range(2)]))
    refined, _ = module(features, probabilities)
    assert torch.equal(refined, features)
    wanted = torch.as_tensor(random.normal(size=refined.shape))
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    moved = []
    for _ in range(2):
        optimiser.zero_grad()
        (module(features, probabilities)[0] * wanted).sum().backward()
        moved.append({name for name, each in module.named_parameters() if each.grad is not None and each.grad.any()})
        optimiser.step()
    assert moved[0] == {"projection.gate"}
    assert moved[1] > {"projection.gate", "psi.0.weight", "layers.0.query"}


@pytest.mark.parametrize("classes", [2, 3, 12, 32])
@pytest.mark.parametrize("layer", ["attention", "sum"])
def test_any_number_of_classes_on_any_grid(classes, layer, random):
    height, width = random.integers(1, 9, size=2)
    config = RelationConfig(dim=4, layers=3, layer=layer, edge_weight=True, absent="linked")
    assert_literal(random, config, coarse_prediction(random, classes, height, width)[None])


def one_tissue(classes, height, width):
    p = np.zeros((1, classes, height, width))
    p[:, 1] = 1
    return p


PRESENCES = {
    "one class everywhere": one_tissue(4, 4, 5),
    "nothing above the threshold": np.full((1, 4, 4, 5), 0.25),
    "exactly the threshold is not above it": np.full((1, 2, 3, 3), 0.5),
    "a single pixel": np.eye(3)[None, None] * np.array([1.0, 0, 0])[None, :, None, None],
}


@pytest.mark.parametrize("absent", ["isolated", "linked"])
@pytest.mark.parametrize("masks", ["hard", "plain", "soft"])
@pytest.mark.parametrize("case", PRESENCES)
def test_every_kind_of_absence(case, masks, absent, random):
    graph = assert_literal(random, RelationConfig(dim=3, layers=2, masks=masks, absent=absent), PRESENCES[case])
    if case.startswith(("nothing", "exactly")):
        assert not graph.presence.any()
        assert not graph.adjacency.any()


def test_masks_may_overlap_and_leave_pixels_uncovered():
    p = torch.zeros(1, 3, 3, 6, dtype=torch.float64)
    p[:, 0, :, 0], p[:, 1, :, 2], p[:, 2, :, 3:] = 1, 1, 0.4
    _, graph = TissueRelation(4, 3, RelationConfig(dim=2)).double()(torch.zeros(1, 4, 3, 6, dtype=torch.float64), p)
    assert graph.area.tolist() == [[6, 9, 0]]
    assert graph.presence.tolist() == [[True, True, False]]
    assert graph.adjacency[0, 0, 1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"masks": "fuzzy"}, "hard, plain, soft"),
        ({"layer": "mean"}, "attention, sum"),
        ({"graph": "full"}, "adjacency, complete, none"),
        ({"boundary": "on"}, "true or false"),
        ({"nodes": "pixel"}, "class, region"),
        ({"regions": 65}, "from 1 to"),
        ({"dim": 0}, "from 1 to"),
        ({"tau": 1.0}, "tau"),
    ],
)
def test_unknown_variants_list_the_choices(options, words):
    with pytest.raises(UsageError, match=words):
        RelationConfig(**options)
