"""The network: identity at first, two passes like one batch, gradients everywhere, half precision, saving."""

import pytest
import torch
from tests.models.section.variants import CLASSES, VARIANTS, build, patchwork
from torch._subclasses.fake_tensor import FakeTensorMode

from ntrm.core.errors import UsageError
from ntrm.models.hub import load, save_pretrained
from ntrm.models.registry import create

pytestmark = pytest.mark.usefixtures("shallow")
SECTIONAL = [name for name in VARIANTS if name != "window"]


@pytest.fixture(params=VARIANTS)
def name(request):
    return request.param


@torch.no_grad()
def test_it_starts_as_the_control_with_the_same_seed(name, seed):
    torch.manual_seed(seed)
    control = create("ntrm-control", CLASSES, width=0.125).eval()
    torch.manual_seed(seed)
    network = build(name, opened=False).eval()
    x = torch.randn(2, 3, 64, 32)
    ours, theirs = network(x, sections=torch.tensor([0, 0])), control(x)
    assert torch.equal(ours.final, theirs.final)
    assert torch.equal(ours.initial, theirs.initial)


def passes(network, x, groups, batches):
    """Sums of all passes, windows coming in ``batches``."""
    context = []
    for _ in range(network.passes):
        total = None
        for batch in batches:
            rows = network.gather(x[batch], sections=groups[batch], context=context).pooled(groups[batch], 3)
            total = rows if total is None else total + rows
        context.append(total)
    return context


@pytest.mark.parametrize("name", SECTIONAL)
@torch.no_grad()
def test_passes_over_windows_in_any_order_are_one_batch(name, seed):
    torch.manual_seed(seed)
    network = patchwork(build(name)).double().eval()
    x, groups = torch.randn(5, 3, 64, 32, dtype=torch.float64), torch.tensor([0, 2, 0, 0, 2])
    whole = network(x, sections=groups, graph=True)
    context = passes(network, x, groups, [[4], [1, 0], [3, 2]])
    order = [2, 4, 0]
    streamed = network(x[order], sections=groups[order], context=context, graph=True)
    torch.testing.assert_close(streamed.final, whole.final[order], rtol=1e-9, atol=1e-9)
    by_window = network(x[order], context=[sums.rows(groups[order]) for sums in context])
    assert torch.equal(by_window.final, streamed.final)
    alone = network(x[1:2], context=[sums.rows(torch.tensor([2])) for sums in context])
    torch.testing.assert_close(alone.final, whole.final[1:2], rtol=1e-9, atol=1e-9)
    assert (streamed.graph is None) == (whole.graph is None) == ("nodes" in VARIANTS[name])
    for one, two in zip(streamed.graph or (), whole.graph or (), strict=True):
        torch.testing.assert_close(one, two[order], rtol=1e-9, atol=1e-9)
    # What the other windows of the section show does matter.
    assert (network(x).final - whole.final).abs().max() > 1e-6


@torch.no_grad()
def test_a_window_scope_takes_no_notice_of_sections(seed):
    torch.manual_seed(seed)
    network = build("window").double().eval()
    x = torch.randn(3, 3, 64, 64, dtype=torch.float64)
    assert network.passes == 0
    assert torch.equal(network(x, sections=torch.tensor([0, 0, 0])).final, network(x).final)
    section = build("default").double().eval()
    section.load_state_dict(network.state_dict())
    torch.testing.assert_close(section(x).final, network(x).final)


def test_every_parameter_gets_a_gradient_or_is_listed(name, seed):
    torch.manual_seed(seed)
    network = patchwork(build(name)).double().eval()
    output = network(torch.randn(4, 3, 64, 64, dtype=torch.float64), sections=torch.tensor([0, 1, 1, 0]))
    sum((logits * torch.randn_like(logits)).sum() for logits in output[:2]).backward()
    size = {key: 0.0 if p.grad is None else p.grad.abs().max().item() for key, p in network.named_parameters()}
    silent = {key for key, value in size.items() if value <= 1e-13 * max(size.values())}
    assert silent == network.without_gradient().keys()


def test_closed_at_first_the_readout_alone_opens(seed):
    torch.manual_seed(seed)
    network = build("default", opened=False).double().eval()
    output = network(torch.randn(2, 3, 64, 64, dtype=torch.float64))
    (output.final * torch.randn_like(output.final)).sum().backward()
    moved = {key for key, p in network.relation.named_parameters() if p.grad is not None and p.grad.any()}
    assert moved == {"readout.out.weight", "readout.out.bias"}


def test_masks_pass_gradient_to_the_coarse_head_unless_detached(seed):
    torch.manual_seed(seed)
    reached = {}
    for name in ("default", "straight-through", "detached"):
        network = patchwork(build(name)).double().eval()
        network(torch.randn(2, 3, 64, 64, dtype=torch.float64)).final.square().sum().backward()
        grad = network.coarse.classify.weight.grad
        reached[name] = grad is not None and bool(grad.any())
    assert reached == {"default": True, "straight-through": True, "detached": False}


@torch.no_grad()
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_window_left_alone_is_its_own_section(rounds, seed, monkeypatch):
    """In training, as drawn; what it adds to the others' section stays. In use, none is left alone."""
    torch.manual_seed(seed)
    network = patchwork(build("often alone", rounds=rounds)).double().eval()
    x, groups = torch.randn(4, 3, 64, 64, dtype=torch.float64), torch.tensor([0, 0, 1, 1])
    whole, apart = network(x, sections=groups).final, network(x).final
    monkeypatch.setattr(torch, "rand", lambda *_, **__: torch.tensor([0.49, 0.5, 0.1, 0.9]))
    network.training = True  # it alone: batch norm stays as it is
    found = network(x, sections=groups).final
    torch.testing.assert_close(found[[0, 2]], apart[[0, 2]], rtol=1e-9, atol=1e-9)
    if rounds == 1:  # later rounds pool under masks that have been revised alone
        torch.testing.assert_close(found[[1, 3]], whole[[1, 3]], rtol=1e-9, atol=1e-9)
    assert (whole - apart).flatten(1).abs().amax(dim=1).min() > 1e-6


@torch.no_grad()
def test_half_precision_stays_close(name, seed):
    torch.manual_seed(seed)
    network = patchwork(build(name)).eval()
    x, groups = torch.randn(4, 3, 64, 64), torch.tensor([0, 0, 1, 1])
    exact = network(x, sections=groups)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = network(x, sections=groups)
        context = passes(network, x, groups, [[0, 1, 2, 3]])
    assert all(part.dtype == torch.float32 for sums in context for part in sums)
    assert (rounded.final.float() - exact.final).std() < 0.1 * exact.final.std()


@torch.no_grad()
def test_sums_of_half_precision_are_counted_in_single(seed):
    torch.manual_seed(seed)
    network = build("default").eval()
    x = torch.randn(1, 3, 512, 512)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sums = network.gather(x)
    assert sums.weight.sum().item() == pytest.approx(64 * 64, rel=1e-5)  # bfloat16 would know it to 16


def test_the_network_that_was_saved_comes_back(name, seed, tmp_path):
    torch.manual_seed(seed)
    network = build(name).eval()
    save_pretrained(network, tmp_path)
    again = load(tmp_path)
    assert again.config.options == network.config.options
    with torch.no_grad():
        x, groups = torch.randn(2, 3, 64, 64), torch.tensor([0, 0])
        assert torch.equal(again(x, sections=groups).final, network(x, sections=groups).final)


def test_what_does_not_fit_is_refused(seed):
    torch.manual_seed(seed)
    network, x = build("two rounds").eval(), torch.randn(3, 3, 64, 64)
    with torch.no_grad():
        first = network.gather(x)
        with pytest.raises(UsageError, match="not whole"):
            network(x, context=[first])
        with pytest.raises(UsageError, match="nothing is left to gather"):
            network.gather(x, context=[first, first])
        with pytest.raises(UsageError, match="3 rows for 2 windows"):
            network(x[:2], context=[first, first])
        with pytest.raises(UsageError, match="gathers nothing"):
            create("ntrm-control", 3, width=0.125).gather(x)
        with pytest.raises(UsageError, match="multiples of 32"):
            network.gather(x[..., :40])


@torch.no_grad()
def test_the_first_pass_needs_no_decoder_where_deep_features_are_pooled(seed):
    torch.manual_seed(seed)
    used = []
    for name in ("default", "d2"):
        network = build(name).eval()
        network.upper.register_forward_hook(lambda *_, name=name: used.append(name))
        network.lower.register_forward_hook(lambda *_: pytest.fail("no pass of gathering goes to the end"))
        network.gather(torch.randn(1, 3, 64, 64))
    assert used == ["d2"]


@pytest.mark.parametrize(
    "name", ["window", "three rounds", "straight-through", "tokens", "regions and cancers", "complete with all"]
)
def test_nothing_waits_for_a_value(name, seed):
    # Fake tensors have shapes but no values: reading one, as item(), bool() or nonzero() do, raises.
    network = build(name).train()
    with FakeTensorMode(allow_non_fake_inputs=True):
        x, groups = torch.empty(4, 3, 64, 64), torch.empty(4, dtype=torch.long)
        output = network(x, sections=groups, graph=True)
        output.final.sum().backward()
        sums = [network.gather(x, sections=groups)] if network.passes else []
    assert output.final.shape == (4, CLASSES, 64, 64)
    assert [each.weight.shape[0] for each in sums] == ([] if name == "window" else [4])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tokens that speak"])
def test_compiled_is_eager(name, seed):
    torch.manual_seed(seed)
    network, x, groups = patchwork(build(name)).eval(), torch.randn(2, 3, 64, 64), torch.tensor([0, 0])
    torch.compiler.reset()
    with torch.no_grad():
        compiled = torch.compile(network, fullgraph=True, backend="aot_eager")(x, sections=groups)
        torch.testing.assert_close(compiled.final, network(x, sections=groups).final, rtol=1e-3, atol=1e-3)


@torch.no_grad()
def test_other_networks_take_no_notice_of_sections(seed):
    torch.manual_seed(seed)
    network, x = create("ntrm-control", CLASSES, width=0.125).eval(), torch.randn(2, 3, 64, 64)
    assert network.passes == 0
    assert torch.equal(network(x, sections=torch.tensor([0, 0])).final, network(x).final)
