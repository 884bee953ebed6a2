"""What only the other windows of a section tell can be learned by networks that see them, and by no other."""

import math

import pytest
import torch
import torch.nn.functional as F

from ntrm.core.devices import fast_gradients
from ntrm.models.registry import create

SECTIONS = torch.tensor([0, 0, 1, 1])


def scene():
    """Two sections: a window in one of two colours, and one that is the same in both, whose tissue it decides."""
    noise = torch.randn(1, 3, 64, 64)
    red, blue = torch.randn(2, 3, 64, 64) * 0.3 + torch.tensor([[1.0, -1, -1], [-1, -1, 1.0]])[:, :, None, None]
    return torch.cat([red[None], noise, blue[None], noise])


ENOUGH = 0.8 * math.log(2)


def loss_after(arch, steps, seed, **options):
    """Of the window that is the same, after some steps on nothing else than these four windows, or once it is low."""
    torch.manual_seed(seed)
    network, x = create(arch, 3, width=0.125, **options).train(), scene()
    target = torch.tensor([0, 1])[:, None, None].expand(2, 64, 64)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    loss = math.inf
    for _ in range(steps):
        output = network(x, sections=SECTIONS)
        total = F.cross_entropy(output.final[1::2], target)
        optimiser.zero_grad()
        with fast_gradients(network):
            total.backward()
        optimiser.step()
        loss = min(loss, total.item())
        if loss < ENOUGH:
            break
    return loss


@pytest.mark.parametrize("arch", ["ntrm-control", "ntrm-paper"])
def test_a_window_alone_cannot_know(arch, seed):
    assert loss_after(arch, 10, seed) > math.log(2) - 1e-3


def test_not_even_with_nodes_of_the_window(seed):
    assert loss_after("ntrm-section", 10, seed, scope="window", dim=16) > math.log(2) - 1e-3


@pytest.mark.parametrize(
    "options",
    [{}, {"nodes": "vector", "graph": "none"}, {"nodes": "tokens", "graph": "none"}],
    ids=["tissues", "vector", "tokens"],
)
def test_the_section_tells(options, seed):
    assert loss_after("ntrm-section", 45, seed, dim=16, **options) < ENOUGH
