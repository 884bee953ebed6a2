"""Convolutional systems that NTRM is compared with, without coarse prediction or graph, on the same blocks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.models.blocks import Classifier, conv_bn_relu, initialise, scaled, upsample
from ntrm.models.encoders import ResNetEncoder
from ntrm.models.unet import WIDTHS, UNetDecoder

VGG_CONVOLUTIONS = (2, 2, 3, 3, 3)
VGG_CHANNELS = (64, 128, 256, 512, 512)
ATTENTION_CHANNELS = (64, 128, 256, 512, 1024)
RATES = (6, 12, 18)  # Dilation of the 3×3 convolutions in DeepLab's pyramid at an output stride of 16
DROPOUT = 0.5


class UNet(SegmentationModel):
    """``unet-resnet18``, the plain U-Net that NTRM extends, and ``unet-vgg16``, whose decoder is the same."""

    def __init__(self, classes: int, encoder: nn.Module, channels: Sequence[int], width: float) -> None:
        super().__init__()
        self.encoder = encoder
        *skips, deepest = channels
        widths = [scaled(outputs, width) for outputs in WIDTHS]
        # VGG has a skip at full size, too.
        self.decoder = UNetDecoder(deepest, [*skips[::-1], 0][:5], widths)
        self.classify = Classifier(widths[-1], classes)

    def segment(self, x: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """Encoder, decoder, classes."""
        *skips, deepest = self.encoder(x)
        features = self.decoder(deepest, [*skips[::-1], None][:5])  # (B, 32, H, W)
        return Segmentation(self.classify(features))


class VGGEncoder(nn.Module):
    """The convolutions of VGG-16 as one sequence, so that ``features.N.*`` of public ImageNet weights fit."""

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        channels = [scaled(outputs, width) for outputs in VGG_CHANNELS]
        self.channels = (*channels, channels[-1])
        layers: list[nn.Module] = []
        inputs = 3
        for outputs, count in zip(channels, VGG_CONVOLUTIONS, strict=True):
            for _ in range(count):
                convolution = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1)
                layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
                inputs = outputs
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        initialise(self)

    def forward(self, x: Tensor) -> list[Tensor]:
        """(B, 3, H, W) → what enters each max-pool, at 1/1 … 1/16, and what leaves the last, at 1/32."""
        skips = []
        for layer in self.features:
            if isinstance(layer, nn.MaxPool2d):
                skips.append(x)
            x = layer(x)
        return [*skips, x]


def double_conv(inputs: int, outputs: int) -> nn.Sequential:
    """Twice 3×3 convolution, BN, ReLU."""
    return nn.Sequential(conv_bn_relu(inputs, outputs), conv_bn_relu(outputs, outputs))


def conv1x1_bn(inputs: int, outputs: int) -> nn.Sequential:
    """1×1 convolution and batch norm, as in the gate."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel_size=1, bias=False), nn.BatchNorm2d(outputs))


class AttentionGate(nn.Module):
    """Attention U-Net (Oktay et al., 2018) weighs its skips by what the coarser level has seen.

    ``α = sigmoid(ψ(ReLU(W_x x + W_g g)))`` per pixel, ``x ← α·x``; each map is a 1×1 convolution with BN.
    """

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
        channels = [scaled(count, width) for count in ATTENTION_CHANNELS]
        self.stages = nn.ModuleList(double_conv(*pair) for pair in zip([3, *channels[:-1]], channels, strict=True))
        pairs = list(zip(channels[1:], channels[:-1], strict=True))[::-1]
        self.decoder = nn.ModuleList(AttentionDecoderBlock(*pair) for pair in pairs)
        self.classify = nn.Conv2d(channels[0], classes, kernel_size=1)
        initialise(self)

    def segment(self, x: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """Stages down, gated blocks up, classes."""
        skips: list[Tensor] = []  # at 1/1, 1/2, 1/4 and 1/8
        for stage in self.stages:
            x = stage(F.max_pool2d(x, 2) if skips else x)
            skips.append(x)
        skips.pop()
        for block in self.decoder:
            x = block(x, skips.pop())
        return Segmentation(self.classify(x))


class ImagePooling(nn.Sequential):
    """The pyramid's view of the whole image: average, 1×1 convolution, BN, ReLU, spread over the grid."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(inputs, outputs, kernel_size=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) → (B, outputs, H, W)."""
        pooled: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return pooled.expand(-1, -1, *x.shape[2:])


class ASPP(nn.Module):
    """Atrous spatial pyramid pooling: 1×1, 3×3 at each rate, and image pooling, then one 1×1 convolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        atrous = [conv_bn_relu(inputs, outputs, dilation=rate) for rate in RATES]
        self.convs = nn.ModuleList([conv_bn_relu(inputs, outputs, 1), *atrous, ImagePooling(inputs, outputs)])
        self.project = nn.Sequential(*conv_bn_relu(len(self.convs) * outputs, outputs, 1), nn.Dropout(DROPOUT))

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) → (B, outputs, H, W)."""
        out: Tensor = self.project(torch.cat([branch(x) for branch in self.convs], dim=1))
        return out


class DeepLabV3Plus(SegmentationModel):
    """``deeplabv3plus`` (Chen et al., 2018): ResNet at output stride 16, pyramid, and a decoder that adds E2."""

    def __init__(self, classes: int, encoder: str = "resnet18", width: float = 1.0) -> None:
        super().__init__()
        self.encoder = ResNetEncoder(encoder, width, output_stride=16)
        channels, fine = scaled(256, width), scaled(48, width)
        self.aspp = ASPP(self.encoder.channels[4], channels)
        self.reduce = conv_bn_relu(self.encoder.channels[1], fine, 1)
        self.merge = double_conv(channels + fine, channels)
        self.classify = nn.Conv2d(channels, classes, kernel_size=1)
        for module in (self.aspp, self.reduce, self.merge, self.classify):
            initialise(module)

    def segment(self, x: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """Encoder, pyramid, decoder, classes."""
        _, e2, _, _, e5 = self.encoder(x)  # (B, 64, H/4, W/4), (B, 512, H/16, W/16)
        context = upsample(self.aspp(e5), 4)  # (B, 256, H/4, W/4)
        features = self.merge(torch.cat([context, self.reduce(e2)], dim=1))
        return Segmentation(upsample(self.classify(features), 4))
