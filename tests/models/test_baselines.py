"""Plain U-Nets, Attention U-Net and DeepLabV3+ against their equations, published sizes and literal rewritings."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from ntrm.models.baselines import ASPP, RATES, AttentionGate, VGGEncoder
from ntrm.models.encoders import ResNetEncoder
from ntrm.models.registry import create


@pytest.fixture(autouse=True)
def seeded(seed):
    torch.manual_seed(seed)


def unsettle(module):
    """The module in float64 for inference, with batch norms that do something."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.running_mean)
            nn.init.uniform_(layer.running_var, 0.5, 2)
            nn.init.normal_(layer.weight)
            nn.init.normal_(layer.bias)
    return module.double().eval()


def norm_relu(x, mean, var, weight, bias):
    mean, var, weight, bias = (value.view(-1, 1, 1) for value in (mean, var, weight, bias))
    return ((x - mean) / (var + 1e-5).sqrt() * weight + bias).clamp(min=0)


VGG_POSITIONS = ((0, 3), (7, 10), (14, 17, 20), (24, 27, 30), (34, 37, 40))
"""Of the convolutions in torchvision's ``vgg16_bn``; a batch norm follows each."""


def literal_vgg(state, x):
    """VGG-16 from its weights alone: what enters each max-pool, and what leaves the last."""
    maps = []
    for positions in VGG_POSITIONS:
        for n in positions:
            x = F.conv2d(x, state[f"features.{n}.weight"], state[f"features.{n}.bias"], padding=1)
            keys = ("running_mean", "running_var", "weight", "bias")
            x = norm_relu(x, *(state[f"features.{n + 1}.{key}"] for key in keys))
        maps.append(x)
        x = x.unflatten(2, (-1, 2)).unflatten(4, (-1, 2)).amax(dim=(3, 5))
    return [*maps, x]


def test_vgg_equals_the_literal_network():
    encoder = unsettle(VGGEncoder(width=0.125))
    x = torch.randn(2, 3, 32, 64, dtype=torch.float64)
    for ours, expected in zip(encoder(x), literal_vgg(encoder.state_dict(), x), strict=True):
        torch.testing.assert_close(ours, expected)


def pixel_map(layers, vector):
    """1×1 convolution and batch norm of one pixel, in plain arithmetic."""
    conv, norm = layers
    mixed = conv.weight.detach().numpy()[:, :, 0, 0] @ vector
    spread = np.sqrt(norm.running_var.numpy() + 1e-5)
    return (mixed - norm.running_mean.numpy()) / spread * norm.weight.detach().numpy() + norm.bias.detach().numpy()


@settings(max_examples=15)
@given(
    seed=st.integers(0, 2**32),
    channels=st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4)),
    size=st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_gate_equals_the_equation_pixel_by_pixel(seed, channels, size):
    torch.manual_seed(seed)
    gate = unsettle(AttentionGate(*channels))
    x, g = (torch.randn(2, count, *size, dtype=torch.float64) for count in channels[:2])
    gated = gate(x, g).detach().numpy()
    for b, i, j in np.ndindex(2, *size):
        pixel = x[b, :, i, j].numpy()
        inner_sum = pixel_map(gate.from_skip, pixel) + pixel_map(gate.from_gating, g[b, :, i, j].numpy())
        alpha = 1 / (1 + np.exp(-pixel_map(gate.psi, np.maximum(inner_sum, 0))))
        np.testing.assert_allclose(gated[b, :, i, j], alpha * pixel, rtol=1e-10, atol=1e-12)


def atrous(x, weight, rate):
    """Dilated convolution as a sum of shifted 1×1 convolutions."""
    _, _, height, width = x.shape
    reach = rate * (weight.shape[2] // 2)
    padded = F.pad(x, (reach, reach, reach, reach))
    total = x.new_zeros(x.shape[0], weight.shape[0], height, width)
    for i, j in np.ndindex(*weight.shape[2:]):
        shifted = padded[:, :, i * rate : i * rate + height, j * rate : j * rate + width]
        total += torch.einsum("oc,bchw->bohw", weight[:, :, i, j], shifted)
    return total


def conv_norm_relu(x, conv, norm, rate=1):
    statistics = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    return norm_relu(atrous(x, conv.weight, rate), *statistics)


@settings(max_examples=10)
@given(seed=st.integers(0, 2**32), height=st.integers(1, 24), width=st.integers(1, 24))
def test_aspp_equals_the_sum_over_taps(seed, height, width):
    torch.manual_seed(seed)
    aspp = unsettle(ASPP(inputs=6, outputs=4))
    x = torch.randn(2, 6, height, width, dtype=torch.float64)
    branches = [conv_norm_relu(x, *aspp.convs[n][:2], rate) for n, rate in enumerate((1, *RATES))]
    mean = x.mean(dim=(2, 3), keepdim=True) + torch.zeros_like(x)
    branches.append(conv_norm_relu(mean, aspp.convs[4][1], aspp.convs[4][2]))
    torch.testing.assert_close(aspp(x), conv_norm_relu(torch.cat(branches, dim=1), *aspp.project[:2]))


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
@pytest.mark.parametrize("stride", [16, 8])
def test_dilation_computes_the_strided_encoder_on_a_denser_grid(name, stride):
    strided = ResNetEncoder(name, width=0.125).double().eval()
    dilated = ResNetEncoder(name, width=0.125, output_stride=stride).double().eval()
    dilated.load_state_dict(strided.state_dict())
    x = torch.randn(1, 3, 64, 96, dtype=torch.float64)
    for ours, expected, scale in zip(dilated(x), strided(x), (2, 4, 8, 16, 32), strict=True):
        assert ours.shape[2:] == (64 // min(scale, stride), 96 // min(scale, stride))
        step = max(scale // stride, 1)
        torch.testing.assert_close(ours[:, :, ::step, ::step], expected)


@pytest.mark.parametrize(
    ("stride", "third", "fourth"),
    [(32, [1] * 4, [1] * 4), (16, [1] * 4, [1, 2, 2, 2]), (8, [1, 2, 2, 2], [2, 4, 4, 4])],
)
def test_what_follows_a_stride_that_was_traded_is_dilated_as_in_torchvision(stride, third, fourth):
    encoder = ResNetEncoder(width=0.125, output_stride=stride)
    for layer, expected in ((encoder.layer3, third), (encoder.layer4, fourth)):
        assert [conv.dilation[0] for block in layer for conv in (block.conv1, block.conv2)] == expected
    assert create("deeplabv3plus", 3, width=0.125).encoder.layer4[0].conv2.dilation == (2, 2)
