"""One commit, one verdict: what tests draw depends on nothing but their names."""

import sys
from types import ModuleType

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import seed_of


def test_a_name_has_one_seed_on_every_machine():
    assert seed_of("tests/core/test_labels.py::test_names[µm]") == 1980538025
    assert seed_of("a[1]") != seed_of("a[2]")


@pytest.fixture(scope="module", params=[0, 1])
def shared():
    return torch.rand(3).tolist()


def test_what_tests_share_depends_on_its_own_name_alone(shared, request):
    torch.manual_seed(seed_of(f"tests/test_seeds.py::shared[{request.node.callspec.indices['shared']}]"))
    assert torch.rand(3).tolist() == shared


def test_libraries_draw_from_the_seed_of_the_test(seed):
    found = torch.rand(3).tolist(), np.random.random()  # noqa: NPY002
    torch.manual_seed(seed)
    assert found == (torch.rand(3).tolist(), np.random.RandomState(seed).random())


def drawn(seed):
    """What hypothesis draws."""
    found = []
    keep = given(st.text(), st.integers())(lambda text, number: found.append((text, number)))
    hypothesis.seed(seed)(settings(max_examples=200)(keep))()
    return found


def test_hypothesis_draws_the_same_whatever_was_imported(seed, tmp_path, monkeypatch):
    before = drawn(seed)
    module = ModuleType("just_imported")
    module.__file__ = str(tmp_path / "just_imported.py")
    (tmp_path / "just_imported.py").write_text("WORDS = 'never', 'drawn', 987654321\n")
    monkeypatch.setitem(sys.modules, "just_imported", module)
    assert drawn(seed) == before


@pytest.mark.failed_once(5)
def test_a_seed_that_once_failed_is_a_case_of_its_own(seed, random, request):
    assert (seed == 5) == request.node.name.endswith("[5]")
    assert torch.initial_seed() == seed
    assert random.random() == np.random.default_rng(seed).random()
