"""docs/models.md shows what the networks cost; the counter itself is held against arithmetic by hand."""

import functools
import importlib.util
import re
from pathlib import Path

import pytest
import torch

from bench import model_table
from ntrm.models.registry import ARCHITECTURES, create

cost = functools.cache(model_table.cost)
DOCUMENT = Path(__file__).parents[2] / "docs" / "models.md"


def documented(name):
    """Parameters in millions and operations in milliards, as the document has them."""
    row = re.search(rf"^\| `{re.escape(name)}` \| ([\d.]+) \| ([\d.]+) \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    assert row, f"docs/models.md has no row for {name}; see bench/model_table.py"
    return float(row[1]), float(row[2])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_document_shows_the_cost(name):
    if name.startswith("mit") and importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed (extra mit)")
    found = cost(name)
    assert (found.parameters / 1e6, found.operations / 1e9) == pytest.approx(documented(name), rel=0.01)


def test_the_relation_module_costs_what_its_formulas_say():
    K, d, C, N = 12, 128, 128, 32 * 32
    psi, pooling, contacts = 9 * C * d * N, K * d * N, 2 * K * K * N
    edges = 2 * K * d * d + K * K * d * d  # both halves of the first layer, then the second
    weight = K * K * d * d
    layers = 3 * (K * d * d + 2 * K * d + 4 * K * d * d)  # W, both halves of q, the feed-forward network
    projection = K * d * C + K * C * N
    expected = 2 * (psi + pooling + contacts + edges + weight + layers + projection)
    found = cost("ntrm-paper").operations - cost("ntrm-control").operations
    assert found == pytest.approx(expected, rel=1e-3)  # products with a vector may or may not be counted


@pytest.mark.parametrize(("source", "stated"), [("e5", 1.19), ("d2", 1.26), ("both", 1.26)])
def test_two_passes_over_a_section_cost_what_the_document_says(source, stated):
    """The first over windows side by side, the second over windows that overlap by a quarter: (4/3)² as many."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils.flop_counter import FlopCounterMode

    with FakeTensorMode(), torch.no_grad():
        network = create("ntrm-section", 12, source=source).eval()
        with FlopCounterMode(display=False) as first:
            network.gather(torch.empty(1, 3, 256, 256))
    second, control = cost("ntrm-section", source=source).operations, cost("ntrm-control").operations
    ratio = (first.get_total_flops() + 16 / 9 * second) / (16 / 9 * control)
    assert ratio == pytest.approx(stated, abs=0.01)
    assert ratio < 1.3
    assert f"{stated:.2f} with" in DOCUMENT.read_text("utf-8")
