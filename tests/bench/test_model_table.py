"""docs/models.md shows what the networks cost; the counter itself is held against arithmetic by hand."""

import functools
import importlib.util
import re
from pathlib import Path

import pytest

from bench import model_table
from ntrm.models.registry import ARCHITECTURES

cost = functools.cache(model_table.cost)
DOCUMENT = Path(__file__).parents[2] / "docs" / "models.md"


def documented(name):
    """Parameters in millions and operations in milliards, as the document has them."""
    row = re.search(rf"^\| `{re.escape(name)}` \| ([\d.]+) \| ([\d.]+) \|$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    assert row, f"docs/models.md has no row for {name}; see bench/model_table.py"
    return float(row[1]), float(row[2])


@pytest.mark.slow
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
