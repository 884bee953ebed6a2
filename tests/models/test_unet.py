"""NTRM: what the coarse head looks at, and in which order weights are initialised."""

import pytest
import torch

from ntrm.core.errors import UsageError
from ntrm.models.registry import create

CLASSES, WIDTH = 5, 0.125


def test_the_coarse_head_looks_at_e5_or_d2():
    network = create("ntrm-control", CLASSES, width=WIDTH, coarse="d2")
    assert network(torch.randn(2, 3, 64, 96)).coarse.shape == (2, CLASSES, 64, 96)
    with pytest.raises(UsageError, match=r"coarse head\n.*e4"):
        create("ntrm-control", CLASSES, width=WIDTH, coarse="e4")


def test_the_relation_is_initialised_after_the_first_half(seed):
    def weights(name):
        torch.manual_seed(seed)
        return create(name, CLASSES, width=WIDTH).state_dict()

    control, paper = weights("ntrm-control"), weights("ntrm-paper")
    first = {key for key in control if key.startswith(("encoder.", "upper.", "coarse."))}
    assert all(torch.equal(paper[key], control[key]) for key in first)
    assert not torch.equal(paper["classify.weight"], control["classify.weight"])
