"""The parts of SegFormer around a relation, on the grids that they name."""

import pytest
import torch

from ntrm.models.blocks import scaled
from ntrm.models.mit_trm import fused_half, spread_half
from ntrm.models.unet import related_channels

pytest.importorskip("transformers", reason="the extra mit is not installed")
CLASSES, WIDTH = 5, 0.125


def test_the_halves_fit_together(seed):
    torch.manual_seed(seed)
    body, shrink, coarse = fused_half(CLASSES, "b0", WIDTH, 0.0)
    decoder, classify = spread_half(CLASSES, "b0", WIDTH, shrink)
    fused = body(torch.randn(2, 3, 64, 96)).logits
    assert fused.shape == (2, scaled(256, WIDTH), 16, 24)
    features = shrink(fused)
    assert features.shape == (2, related_channels(WIDTH), 8, 12)
    assert coarse(features).shape == (2, CLASSES, 8, 12)
    assert classify(decoder(features, fused)).shape == (2, CLASSES, 16, 24)


def test_the_second_half_initialises_the_convolution_of_the_first(seed):
    torch.manual_seed(seed)
    _, shrink, _ = fused_half(CLASSES, "b0", WIDTH, 0.0)
    before = shrink[0].weight.detach().clone()
    spread_half(CLASSES, "b0", WIDTH, shrink)
    # Kaiming normal with its fan in, where torch's default is uniform and narrower.
    after, inputs = shrink[0].weight, shrink[0].weight[0].numel()
    assert not torch.equal(before, after)
    assert before.abs().max() <= inputs**-0.5 < after.abs().max()
    assert after.std().item() == pytest.approx((2 / inputs) ** 0.5, rel=0.2)
