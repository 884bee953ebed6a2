"""Attention U-Net (Oktay et al., 2018): a U-Net whose skips are weighed by what the coarser level has seen."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.models.blocks import conv_bn_relu, initialise, scaled, upsample

CHANNELS = (64, 128, 256, 512, 1024)


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    """Twice 3×3 convolution, BN, ReLU."""
    return nn.Sequential(conv_bn_relu(inputs, outputs), conv_bn_relu(outputs, outputs))


def conv1x1_bn(inputs: int, outputs: int) -> nn.Sequential:
    """1×1 convolution and batch norm, as in the gate."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel_size=1, bias=False), nn.BatchNorm2d(outputs))


class AttentionGate(nn.Module):
    """``α = sigmoid(ψ(ReLU(W_x x + W_g g)))`` per pixel, ``x ← α·x``; each map is a 1×1 convolution with BN."""

    def __init__(self, skip: int, gating: int, inner: int) -> None:
        super().__init__()
        self.from_skip = conv1x1_bn(skip, inner)
        self.from_gating = conv1x1_bn(gating, inner)
        self.psi = conv1x1_bn(inner, 1)

    def forward(self, skip: Tensor, gating: Tensor) -> Tensor:
        """(B, skip, H, W), (B, gating, H, W) → (B, skip, H, W)."""
        attention = torch.sigmoid(self.psi(F.relu(self.from_skip(skip) + self.from_gating(gating))))  # (B, 1, H, W)
        return skip * attention


class AttentionDecoderBlock(nn.Module):
    """Upsample ×2 and halve the channels, gate the skip with that, concatenate, twice 3×3 convolution, BN, ReLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.reduce = conv_bn_relu(inputs, outputs)
        self.gate = AttentionGate(outputs, outputs, outputs // 2)
        self.merge = double_conv(2 * outputs, outputs)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """(B, inputs, H, W), (B, outputs, 2H, 2W) → (B, outputs, 2H, 2W)."""
        x = self.reduce(upsample(x))
        out: Tensor = self.merge(torch.cat([self.gate(skip, x), x], dim=1))
        return out


class AttentionUNet(SegmentationModel):
    """``attention-unet``: four levels of max-pooling, each answered by a gated decoder block."""

    def __init__(self, classes: int, width: float = 1.0) -> None:
        super().__init__()
        channels = [scaled(count, width) for count in CHANNELS]
        self.stages = nn.ModuleList(double_conv(*pair) for pair in zip([3, *channels[:-1]], channels, strict=True))
        pairs = list(zip(channels[1:], channels[:-1], strict=True))[::-1]
        self.decoder = nn.ModuleList(AttentionDecoderBlock(*pair) for pair in pairs)
        self.classify = nn.Conv2d(channels[0], classes, kernel_size=1)
        initialise(self)

    def segment(self, x: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """Stages down, gated blocks up, classes; there is neither a coarse prediction nor a graph."""
        *skips, x = self._encode(x)
        for block in self.decoder:
            x = block(x, skips.pop())
        return Segmentation(self.classify(x))

    def _encode(self, x: Tensor) -> list[Tensor]:
        """(B, 3, H, W) → features at 1/1, 1/2, 1/4, 1/8 and 1/16."""
        features: list[Tensor] = []
        for stage in self.stages:
            x = stage(F.max_pool2d(x, 2) if features else x)
            features.append(x)
        return features
