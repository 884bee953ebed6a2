"""One tester for every architecture of the registry: shapes, gradients, refusals, saving, compiling, exporting."""

import importlib.util
import re

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ntrm.core.errors import UsageError
from ntrm.models.registry import ARCHITECTURES, create, load

CLASSES = 5
WIDTH = 0.125
RELATED = {"ntrm-paper", "ntrm-released", "mit-trm"}  # Architectures with a tissue graph
COARSE = RELATED | {"ntrm-control"}  # Architectures with a coarse prediction
TRACED = ["attention-unet", "deeplabv3plus", "mit-trm", "ntrm-paper", "ntrm-released"]
"""Together they have every kind of layer: to compile and to export takes seconds."""
FEW = {"ntrm-paper": {"layers": 2, "nodes": "region"}, "ntrm-released": {"layers": 2}, "mit-trm": {"layers": 2}}
"""Layers of the graph where they are traced one by one: enough to have one after another; both kinds of nodes."""
SHIFTS = {r"body\..*\.(key|k_proj)\.bias": "the softmax over keys takes away what is added to all of them"}
"""Parameters of a borrowed network that cannot act, whatever the input."""


def build(name, **options):
    if name.startswith("mit") and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed (extra mit)")
    return create(name, CLASSES, width=WIDTH, **options)


@pytest.fixture(params=ARCHITECTURES)
def network(request, seed):
    if request.param.startswith("mit"):  # much the deepest ones
        request.getfixturevalue("shallow")
    torch.manual_seed(seed)
    return build(request.param)


def patchwork(height, width):
    """Logits (K, H, W) with the first four tissues in a quarter each and the fifth nowhere."""
    logits = torch.zeros(CLASSES, height, width)
    half, middle = height // 2, width // 2
    logits[0, :half, :middle] = logits[1, :half, middle:] = logits[2, half:, :middle] = logits[3, half:, middle:] = 30
    return logits


def settle(network):
    """Make the coarse prediction of an untrained network name several tissues and leave one out."""

    def over_patchwork(_module, _inputs, out):
        # An untrained network may be sure of anything: its own logits are brought into (-1, 1).
        return out / (1 + out.abs()) + patchwork(*out.shape[2:]).to(out)

    if hasattr(network, "coarse"):
        network.coarse.register_forward_hook(over_patchwork)
    return network


def assert_same(ours, theirs, **tolerance):
    """Every tensor of two outputs agrees."""
    for a, b in zip(tensors(ours), tensors(theirs), strict=True):
        torch.testing.assert_close(a, b, **tolerance)


def tensors(output):
    return [output.final, *([output.coarse] if output.coarse is not None else []), *(output.graph or [])]


def test_logits_have_the_size_of_the_input_and_the_rest_comes_on_request(network):
    name = network.config.arch
    for size in ((32, 32), (64, 96)):
        output = network(torch.randn(2, 3, *size), graph=True)
        assert output.final.shape == (2, CLASSES, *size)
        assert (output.coarse is not None) == (name in COARSE)
        assert output.coarse is None or output.coarse.shape == output.final.shape
        assert (output.graph is not None) == (name in RELATED)
        assert output.graph is None or output.graph.adjacency.shape == (2, CLASSES, CLASSES)
    output = network.eval()(torch.randn(1, 3, 64, 64), coarse=False)
    assert (output.coarse, output.graph) == (None, None)


def without_gradient(network):
    """Names of the parameters that a backward pass in float64 leaves at nothing but rounding noise."""
    network.double()
    output = network(torch.randn(2, 3, 64, 96, dtype=torch.float64))
    loss = sum((logits * torch.randn_like(logits)).sum() for logits in output[:2] if logits is not None)
    network.zero_grad()
    loss.backward()
    size = {name: 0.0 if p.grad is None else p.grad.abs().max().item() for name, p in network.named_parameters()}
    return {name for name, value in size.items() if value <= 1e-13 * max(size.values())}


def explained(network):
    inert = {name for name, _ in network.named_parameters() if any(re.fullmatch(shift, name) for shift in SHIFTS)}
    return network.without_gradient().keys() | inert


def test_every_parameter_gets_a_gradient_or_is_listed(network):
    assert without_gradient(settle(network).eval()) == explained(network)


def test_in_training_batch_norm_silences_only_biases(network):
    # A batch norm that uses the batch's own mean takes away any constant that was added before it.
    for module in network.modules():
        if hasattr(module, "drop_prob"):
            module.drop_prob = 0.0  # a branch left out by chance gets no gradient
    silent = without_gradient(settle(network).train())
    assert silent >= explained(network)
    assert all(name.endswith("bias") for name in silent - explained(network)), silent - explained(network)


def test_a_wrong_shape_is_refused_and_a_wrong_size_with_the_size_to_pad_to(network):
    for shape in ((1, 4, 64, 64), (1, 1, 64, 64), (3, 64, 64), (1, 1, 3, 64, 64)):
        with pytest.raises(UsageError, match=r"\(B, 3, H, W\)"):
            network(torch.zeros(shape))
    with pytest.raises(UsageError, match=r"63 × 97(.|\n)*64 × 128"):
        network(torch.zeros(1, 3, 63, 97))


def test_a_result_does_not_depend_on_batch_neighbours(network):
    settle(network).double().eval()
    images = torch.randn(3, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        together, alone = network(images, graph=True), network(images[1:2], graph=True)
    for ours, theirs in zip(tensors(together), tensors(alone), strict=True):
        torch.testing.assert_close(ours[1:2], theirs, rtol=1e-9, atol=1e-9)


def test_a_network_in_half_precision_is_about_the_one_in_single(network):
    images = torch.randn(2, 3, 64, 64)
    settle(network).train()(images)  # statistics that fit, so that numbers stay small
    network.eval()
    with torch.no_grad():
        exact = network(images, graph=True)
        rounded = network.to(torch.float16)(images.half(), graph=True)
    assert rounded.final.dtype == torch.float16
    scale = exact.final.abs().max()
    torch.testing.assert_close(rounded.final.float() / scale, exact.final / scale, rtol=0, atol=0.15)
    if exact.graph is not None:
        assert torch.equal(rounded.graph.area, exact.graph.area)  # counts, which half precision could not hold
        assert torch.equal(rounded.graph.adjacency, exact.graph.adjacency)
        torch.testing.assert_close(rounded.graph.attention.float(), exact.graph.attention, rtol=0, atol=0.05)


def test_forward_never_waits_for_a_value(network):
    # Fake tensors have shapes but no values: reading one, as item(), bool() or nonzero() do, raises.
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        output = network.eval()(torch.empty(2, 3, 64, 96), graph=True)
    assert output.final.shape == (2, CLASSES, 64, 96)


def test_the_network_that_was_saved_comes_back(network, tmp_path):
    network.train()(torch.randn(2, 3, 64, 64))  # statistics of batch norm that differ from the initial ones
    network.eval().describe(name="a test", mpp=6.7)
    network.save_pretrained(tmp_path)
    before = torch.random.get_rng_state()
    again = load(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)  # nothing is drawn
    assert again.config == network.config
    assert not again.training
    assert again.state_dict().keys() == network.state_dict().keys()
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in network.state_dict().items())
    image = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert_same(again(image, graph=True), network(image, graph=True), rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.usefixtures("shallow")
@pytest.mark.parametrize("name", TRACED)
def test_compiled_is_eager(name, seed):
    torch.manual_seed(seed)
    network, image = settle(build(name, **FEW.get(name, {}))).eval(), torch.randn(1, 3, 64, 64)
    torch.compiler.reset()
    with torch.no_grad():
        compiled = torch.compile(network, fullgraph=True, backend="aot_eager")(image, graph=True)
        # Decomposed operations round in another order.
        assert_same(compiled, network(image, graph=True), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("shallow")
@pytest.mark.parametrize("name", TRACED)
def test_exported_is_eager(name, seed):
    torch.manual_seed(seed)
    network, image = build(name, **FEW.get(name, {})).eval(), torch.randn(1, 3, 64, 64)
    program = torch.export.export(network, (torch.randn(1, 3, 64, 64),), {"graph": True})
    with torch.no_grad():
        assert_same(program.module()(image, graph=True), network(image, graph=True), rtol=1e-5, atol=1e-5)
