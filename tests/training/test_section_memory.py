"""The memory of sections: running means as a literal reading has them, and what the network makes of them."""

import numpy as np
import pytest
import torch
from tests.models.section.variants import build, patchwork

from ntrm.models.section.sums import SectionSums
from ntrm.training.section_memory import LONGEST, SectionMemory

NUMBERS = [0, 0, 0, 1, 1, 2, 2, 2, 2, 3]
"""Sections of ten windows."""


@pytest.mark.parametrize("name", ["default", "two rounds", "vector", "tokens"])
def test_a_row_is_the_running_mean_of_what_its_windows_added(name, seed, random):
    torch.manual_seed(seed)
    memory = SectionMemory(build(name), NUMBERS)
    shapes = [[part.shape[1:] for part in rows] for rows in memory.recalled(memory.sections([0]))]
    kept = [[np.zeros((4, *shape)) for shape in of_pass] for of_pass in shapes]
    visits = np.zeros(4)
    for _ in range(LONGEST + 20):
        windows = random.choice(10, size=5).tolist()
        sections = memory.sections(windows)
        assert sections.tolist() == [NUMBERS[window] for window in windows]
        added = [
            SectionSums(*(torch.from_numpy(random.random((5, *shape), dtype=np.float32)) for shape in of_pass))
            for of_pass in shapes
        ]
        memory.update(sections, added)
        for section in set(sections.tolist()):
            own = [place for place in range(5) if sections[place] == section]
            visits[section] += 1
            for of_pass, found in zip(kept, added, strict=True):
                for rows, part in zip(of_pass, found, strict=True):
                    mean = part[own].double().mean(dim=0).numpy()
                    rows[section] += (mean - rows[section]) / min(visits[section], LONGEST)
    recalled = memory.recalled(memory.sections([9, 4, 0]))
    assert len(recalled) == len(shapes)
    for found, of_pass in zip(recalled, kept, strict=True):
        for part, rows in zip(found, of_pass, strict=True):
            expected = [0 * rows[3], 1 * rows[1], 2 * rows[0]]
            np.testing.assert_allclose(part.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_nothing_is_recalled_before_the_first_visit(seed):
    torch.manual_seed(seed)
    memory = SectionMemory(build("default"), NUMBERS)
    (recalled,) = memory.recalled(memory.sections([0, 5]))
    assert not any(part.any() for part in recalled)


@pytest.mark.parametrize("name", ["default", "two rounds", "shift", "regions and cancers", "vector", "tokens"])
@torch.no_grad()
def test_recalled_windows_are_as_good_as_those_of_the_batch(name, seed):
    """The sums of the other windows, recalled, give what the other windows in the batch give."""
    torch.manual_seed(seed)
    network = patchwork(build(name)).double().eval()
    network.training = True  # it alone: batch norm stays as it is
    x, whole = torch.randn(4, 3, 64, 32, dtype=torch.float64), torch.zeros(4, dtype=torch.long)
    expected = network(x, sections=whole).final
    context, others = [], []
    for _ in range(network.passes):
        rows = network.gather(x, context=context)
        total = rows.within(whole)
        context.append(total.rows(torch.tensor([0])))
        others.append(SectionSums(*(part - own for part, own in zip(total, rows, strict=True))))
    network.recall(others)
    found = network(x).final
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    for number, own in enumerate(network.added):
        for one, two in zip(own, network.gather(x, context=context[:number]), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)
    network.recall([SectionSums(*(torch.zeros_like(part) for part in sums)) for sums in others])
    assert not torch.allclose(network(x).final, expected)
    network.eval()
    assert torch.equal(network(x).final, network(x, sections=torch.arange(4)).final)  # in use it recalls nothing


def test_a_memory_comes_back_from_its_state(seed, random):
    torch.manual_seed(seed)
    network = build("two rounds")
    memory, other = SectionMemory(network, NUMBERS), SectionMemory(network, NUMBERS)
    sections = memory.sections([0, 3, 9])
    added = [SectionSums(*map(torch.rand_like, rows)) for rows in memory.recalled(sections)]
    memory.update(sections, added)
    other.load_state_dict(memory.state_dict())
    other.update(sections, added)
    memory.update(sections, added)
    recalled = memory.recalled(sections)
    assert len(recalled) == network.passes == 2
    for one, two in zip(recalled, other.recalled(sections), strict=True):
        assert all(torch.equal(*parts) for parts in zip(one, two, strict=True))


def test_making_a_memory_leaves_the_network_as_it_was(seed):
    torch.manual_seed(seed)
    network = build("default").train()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    SectionMemory(network, NUMBERS)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert all(layer.training for layer in network.modules())
