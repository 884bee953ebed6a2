import pytest
import torch
from tests.models.section.variants import build, patchwork

from ntrm.core.errors import UsageError
from ntrm.models.registry import create
from ntrm.models.section.context import gather_section


@pytest.mark.parametrize("name", ["default", "two rounds", "tokens"])
@torch.no_grad()
def test_a_section_in_context_is_the_section_as_one_batch(name, seed):
    torch.manual_seed(seed)
    network = patchwork(build(name)).double().eval()
    x = torch.randn(5, 3, 64, 64, dtype=torch.float64)
    context = gather_section(network, lambda: torch.split(x, 2))
    assert len(context) == network.passes
    together = network(x, sections=torch.zeros(5, dtype=torch.long)).final
    torch.testing.assert_close(network(x[3:], context=context).final, together[3:], rtol=1e-9, atol=1e-9)


def test_networks_without_passes_gather_nothing():
    assert gather_section(create("ntrm-control", 3, width=0.125), lambda: pytest.fail("nobody asked")) == []


def test_a_section_without_windows_is_refused():
    with pytest.raises(UsageError, match="without windows"):
        gather_section(build("default"), list)


@torch.no_grad()
def test_sums_have_the_kind_of_number_of_the_network(seed):
    torch.manual_seed(seed)
    network = build("default").eval()
    (sums,) = gather_section(network, lambda: [torch.randn(2, 3, 64, 64)])
    assert all(part.dtype == torch.float32 for part in sums)
    assert sums.weight.sum().item() == pytest.approx(2 * 64)
