"""The authors' released module against a literal reading of their code, in float64 to 1e-9."""

import numpy as np
import pytest
import torch
from tests.models.trm.test_module import PRESENCES
from tests.reference.draws import coarse_prediction, parameters
from tests.reference.released_literal import released_relation, upsample

from ntrm.models.registry import create
from ntrm.models.trm import RelationConfig, ReleasedRelation

CHANNELS, DIM, LAYERS = 4, 3, 3
RELEASED = {"graph": "complete", "boundary": False, "layer": "sum"}
NORM = ("weight", "bias", "running_mean", "running_var")
HALVES = [("upper", 0), ("upper", 1), ("lower", 0), ("lower", 1), ("lower", 2)]


def drawn(random, classes):
    """Parameters for the oracle, none at a value that hides a term."""
    params = parameters(random, CHANNELS, DIM, classes, LAYERS, "sum", boundary=False)
    point = parameters(random, DIM, DIM, classes, 0)["psi"]
    params["point"] = {**point, "weight": point["weight"][:, :, 1, 1]}
    for layer in params["layers"]:
        layer |= {"ln_weight": random.uniform(0.5, 1.5, DIM), "ln_bias": random.normal(size=DIM)}
    return params


def module_with(params, classes):
    """The module with the oracle's parameters, in float64."""
    module = ReleasedRelation(CHANNELS, classes, RelationConfig(dim=DIM, layers=LAYERS, **RELEASED)).double()
    edge, proj = params["edge"], params["proj"]
    state = {"absent": params["absent"], "edge_weight.form": params["W_e"]}
    state |= {"edge.first.weight": edge["w1"], "edge.first.bias": edge["b1"]}
    state |= {"edge.second.weight": edge["w2"], "edge.second.bias": edge["b2"]}
    state |= {"psi.0.weight": params["psi"]["weight"], "point.0.weight": params["point"]["weight"][..., None, None]}
    state |= {"projection.conv.weight": proj["weight"][..., None, None], "projection.conv.bias": proj["bias"]}
    for prefix, norm in (("psi.1", params["psi"]), ("point.1", params["point"]), ("projection.norm", proj)):
        state |= {f"{prefix}.{ours}": norm[f"bn_{ours.removeprefix('running_')}"] for ours in NORM}
        state |= {f"{prefix}.num_batches_tracked": 0}
    for k, layer in enumerate(params["layers"]):
        state |= {f"layers.{k}.transform.weight": layer["W"], f"layers.{k}.bias": layer["bias"]}
        state |= {f"layers.{k}.norm.weight": layer["ln_weight"], f"layers.{k}.norm.bias": layer["ln_bias"]}
    module.load_state_dict({name: torch.as_tensor(value) for name, value in state.items()})
    return module


def assert_literal(random, probabilities, *, training=False):
    params = drawn(random, probabilities.shape[1])
    features = random.normal(size=(len(probabilities), CHANNELS, *probabilities.shape[2:]))
    module = module_with(params, probabilities.shape[1]).train(training)
    refined, graph = module(torch.as_tensor(features), torch.as_tensor(probabilities))
    wanted, states = released_relation(features, probabilities, params, batch_statistics=training)
    np.testing.assert_allclose(refined.detach().numpy(), wanted, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(graph.nodes.detach().numpy(), states, rtol=1e-9, atol=1e-9)
    present = graph.presence
    others = ~torch.eye(present.shape[1], dtype=torch.bool)
    assert torch.equal(graph.adjacency, present[:, :, None] & present[:, None] & others)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("classes", [2, 5, 12])
def test_it_is_the_literal_reading_of_the_released_code(classes, training, random):
    probabilities = np.stack([coarse_prediction(random, classes, 5, 4) for _ in range(3)])
    assert_literal(random, probabilities, training=training)


@pytest.mark.parametrize("case", PRESENCES)
def test_every_kind_of_absence(case, random):
    assert_literal(random, PRESENCES[case])


def test_corners_are_aligned_wherever_the_network_upsamples(seed):
    torch.manual_seed(seed)
    network = create("ntrm-released", 3, width=0.125, dim=8).double().eval()
    seen = {}
    for name, module in network.named_modules():
        module.register_forward_pre_hook(lambda _, inputs, name=name: seen.update({name: inputs[0]}))
    with torch.no_grad():
        output = network(torch.randn(1, 3, 64, 32, dtype=torch.float64))
        enlarged = [(seen[f"{half}.blocks.{k}"], seen[f"{half}.blocks.{k}.first"]) for half, k in HALVES]
        enlarged += [(seen["coarse"], seen["coarse.blocks.0"])]
        enlarged += [(network.coarse.blocks[0](seen["coarse.blocks.0"]), seen["coarse.blocks.1"])]
        enlarged += [(network.coarse(seen["coarse"]), output.coarse)]
    for small, large in enlarged:
        wanted = upsample(small[0].numpy(), large.shape[2] // small.shape[2])
        np.testing.assert_allclose(large[0, : len(wanted)].numpy(), wanted, rtol=1e-9, atol=1e-9)
