import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ntrm.models.baselines.plain_unet import VGGEncoder, VGGUNet
from ntrm.models.blocks import DecoderBlock

CONVOLUTIONS = ((0, 3), (7, 10), (14, 17, 20), (24, 27, 30), (34, 37, 40))
"""Positions of the convolutions in torchvision's ``vgg16_bn``; a batch norm follows each."""


def literal(state: dict[str, Tensor], x: Tensor) -> list[Tensor]:
    """VGG-16 from its weights alone: what enters each max-pool, and what leaves the last."""
    maps = []
    for positions in CONVOLUTIONS:
        for n in positions:
            x = F.conv2d(x, state[f"features.{n}.weight"], state[f"features.{n}.bias"], padding=1)
            mean, var, weight, bias = (
                state[f"features.{n + 1}.{key}"].view(1, -1, 1, 1)
                for key in ("running_mean", "running_var", "weight", "bias")
            )
            x = ((x - mean) / (var + 1e-5).sqrt() * weight + bias).clamp(min=0)
        maps.append(x)
        x = x.unflatten(2, (-1, 2)).unflatten(4, (-1, 2)).amax(dim=(3, 5))
    return [*maps, x]


def test_encoder_equals_the_literal_network() -> None:
    encoder = VGGEncoder(width=0.125).double().eval()
    for part in encoder.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean)
            nn.init.uniform_(part.running_var, 0.5, 2)
            nn.init.normal_(part.bias)
    x = torch.randn(2, 3, 32, 64, dtype=torch.float64)
    skips, bottom = encoder(x)
    for ours, expected in zip([*skips, bottom], literal(encoder.state_dict(), x), strict=True):
        torch.testing.assert_close(ours, expected)


def test_skips_are_taken_before_each_max_pool() -> None:
    with torch.device("meta"):
        skips, bottom = VGGEncoder()(torch.empty(1, 3, 64, 96))
    shapes = [tuple(skip.shape[1:]) for skip in skips]
    assert shapes == [(64, 64, 96), (128, 32, 48), (256, 16, 24), (512, 8, 12), (512, 4, 6)]
    assert bottom.shape == (1, 512, 2, 3)


def test_every_skip_reaches_its_decoder_block() -> None:
    with torch.device("meta"):
        network = VGGUNet(classes=7)
        skips = []
        for part in network.modules():
            if isinstance(part, DecoderBlock):
                part.register_forward_hook(lambda _, given, __: skips.append(tuple(given[1].shape[1:])))
        output = network(torch.empty(1, 3, 32, 64))
    assert skips == [(512, 2, 4), (512, 4, 8), (256, 8, 16), (128, 16, 32), (64, 32, 64)]
    assert output.final.shape == (1, 7, 32, 64)
    assert output.coarse is None
    assert output.graph is None
