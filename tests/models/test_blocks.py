"""Blocks: sizes and widths, bilinear upsampling against the formula, initial values, what an input must be."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ntrm.models import blocks
from ntrm.models.blocks import Upsampled, initialise, scaled, upsample


def linear_between_centres(row, factor):
    """Bilinear upsampling of one row with pixel centres at k + 1/2 (``align_corners=False``)."""
    at = (np.arange(len(row) * factor) + 0.5) / factor - 0.5
    return np.interp(at, np.arange(len(row)), row)


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_upsampling_is_linear_between_pixel_centres(factor, random):
    image = random.normal(size=(5, 7))
    expected = np.apply_along_axis(linear_between_centres, 1, image, factor)
    expected = np.apply_along_axis(linear_between_centres, 0, expected, factor)
    ours = upsample(torch.as_tensor(image)[None, None], factor)[0, 0].numpy()
    np.testing.assert_allclose(ours, expected, atol=1e-12)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("size", [(1, 1), (3, 5), (8, 8)])
@pytest.mark.parametrize("factor", [2, 4, 8])
def test_upsampling_for_training_has_the_values_and_the_gradient_of_torch(factor, size, layout, seed):
    generator = torch.Generator().manual_seed(seed)
    height, width = (factor * side for side in size)
    x = torch.randn(2, 4, *size, dtype=torch.float64, generator=generator).to(memory_format=layout).requires_grad_()
    skip = torch.ones(2, 3, height, width, dtype=torch.float64)
    weights = torch.randn(2, 7, height, width, dtype=torch.float64, generator=generator)
    joined = torch.cat([Upsampled.apply(x, factor), skip], dim=1)  # the gradient is then a slice of the channels
    expected = torch.cat([upsample(x, factor), skip], dim=1)
    torch.testing.assert_close(joined, expected, atol=0, rtol=0)
    (ours,) = torch.autograd.grad((joined * weights).sum(), x)
    (reference,) = torch.autograd.grad((expected * weights).sum(), x)
    torch.testing.assert_close(ours, reference, atol=1e-12, rtol=0)


def test_initial_values(seed):
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Conv2d(64, 256, 3), nn.BatchNorm2d(256))
    for parameter in module.parameters():
        nn.init.constant_(parameter, 7)
    initialise(module)
    weight = module[0].weight
    assert weight.std().item() == pytest.approx(math.sqrt(2 / (64 * 9)), rel=0.02)  # Kaiming normal, fan in, ReLU
    assert weight.mean().item() == pytest.approx(0, abs=1e-3)
    assert not module[0].bias.any()
    assert (module[1].weight == 1).all()
    assert not module[1].bias.any()


@given(st.integers(1, 4096), st.floats(0.05, 4))
def test_scaled_channels_are_multiples_of_eight_near_the_wish(channels, width):
    count = scaled(channels, width)
    assert count % 8 == 0
    assert count == 8 or abs(count - channels * width) <= 4


@pytest.mark.parametrize("size", [(2, 2), (32, 32), (64, 96)])
def test_a_stem_over_blocks_of_pixels_is_the_same_convolution(size, random):
    x, weight = (torch.from_numpy(random.normal(size=shape)) for shape in ((2, 3, *size), (5, 3, 7, 7)))
    expected = torch.nn.functional.conv2d(x, weight, stride=2, padding=3)
    torch.testing.assert_close(blocks.conv7_by_blocks(x, weight), expected, atol=1e-12, rtol=0)
