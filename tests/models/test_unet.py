"""The halves of the U-Net: what they take and give, and in which order weights are drawn."""

import pytest
import torch

from ntrm.core.errors import UsageError
from ntrm.models.registry import create
from ntrm.models.unet import COARSE, first_half, related_channels, second_half

CLASSES, WIDTH = 5, 0.125


@pytest.mark.parametrize("coarse", COARSE)
def test_the_halves_fit_together(coarse, seed):
    torch.manual_seed(seed)
    encoder, upper, head = first_half(CLASSES, "resnet18", WIDTH, coarse)
    lower, classify = second_half(CLASSES, encoder, WIDTH)
    e1, e2, e3, e4, e5 = encoder(torch.randn(2, 3, 64, 96))
    d2 = upper(e5, (e4, e3))
    assert d2.shape == (2, related_channels(WIDTH), 8, 12)
    assert head(e5 if coarse == "e5" else d2).shape == (2, CLASSES, 8, 12)
    assert classify(lower(d2, (e2, e1, None))).shape == (2, CLASSES, 64, 96)


def test_an_unknown_input_of_the_coarse_head_is_refused():
    with pytest.raises(UsageError, match=r"coarse head\n.*e4"):
        first_half(CLASSES, "resnet18", WIDTH, "e4")


def drawn(name, seed):
    torch.manual_seed(seed)
    network = create(name, CLASSES, width=WIDTH)
    return network.state_dict()


def test_the_relation_is_drawn_after_the_first_half(seed):
    control, paper = drawn("ntrm-control", seed), drawn("ntrm-paper", seed)
    first = {key for key in control if key.startswith(("encoder.", "upper.", "coarse."))}
    assert all(torch.equal(paper[key], control[key]) for key in first)
    assert not torch.equal(paper["classify.weight"], control["classify.weight"])
