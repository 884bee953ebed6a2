"""DeepLabV3+ (Chen et al., 2018): an encoder with atrous convolution, a pyramid of rates, a light decoder."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.models.blocks import conv_bn_relu, initialise, scaled, upsample
from ntrm.models.encoders import ResNetEncoder

RATES = (6, 12, 18)
"""Dilation of the pyramid's 3×3 convolutions at an output stride of 16."""
DROPOUT = 0.5


class PooledBatchNorm(nn.BatchNorm2d):
    """Batch norm of one value per image and channel.

    A training batch of a single image holds nothing to normalise by, and torch refuses it. The running statistics,
    which such a batch leaves untouched, stand in.
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, 1, 1) → (B, C, 1, 1)."""
        if self.training and x.shape[0] == 1:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        return super().forward(x)


class ImagePooling(nn.Sequential):
    """The pyramid's view of the whole image: average, 1×1 convolution, BN, ReLU, spread over the grid."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(inputs, outputs, kernel_size=1, bias=False),
            PooledBatchNorm(outputs),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) → (B, outputs, H, W)."""
        pooled = x
        for layer in self:
            pooled = layer(pooled)
        return pooled.expand(-1, -1, *x.shape[2:])


class ASPP(nn.Module):
    """Atrous spatial pyramid pooling, with torchvision's key names.

    A 1×1 convolution, a 3×3 convolution for each rate and the image pooling, side by side, then one 1×1 convolution.
    """

    def __init__(self, inputs: int, outputs: int, rates: Sequence[int] = RATES) -> None:
        super().__init__()
        atrous = [conv_bn_relu(inputs, outputs, dilation=rate) for rate in rates]
        self.convs = nn.ModuleList([conv_bn_relu(inputs, outputs, 1), *atrous, ImagePooling(inputs, outputs)])
        self.project = nn.Sequential(*conv_bn_relu(len(self.convs) * outputs, outputs, 1), nn.Dropout(DROPOUT))

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) → (B, outputs, H, W)."""
        out: Tensor = self.project(torch.cat([branch(x) for branch in self.convs], dim=1))
        return out


class DeepLabV3Plus(SegmentationModel):
    """``deeplabv3plus``: ResNet at output stride 16, pyramid, and a decoder that adds the fine features of E2."""

    def __init__(self, classes: int, encoder: str = "resnet18", width: float = 1.0) -> None:
        super().__init__()
        self.encoder = ResNetEncoder(encoder, width, output_stride=16)
        channels, fine = scaled(256, width), scaled(48, width)
        self.aspp = ASPP(self.encoder.channels[4], channels)
        self.reduce = conv_bn_relu(self.encoder.channels[1], fine, 1)
        self.merge = nn.Sequential(conv_bn_relu(channels + fine, channels), conv_bn_relu(channels, channels))
        self.classify = nn.Conv2d(channels, classes, kernel_size=1)
        for part in (self.aspp, self.reduce, self.merge, self.classify):
            initialise(part)

    def segment(self, x: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """Encoder, pyramid, decoder, classes; there is neither a coarse prediction nor a graph."""
        _, e2, _, _, e5 = self.encoder(x)  # (B, 64, H/4, W/4), (B, 512, H/16, W/16)
        context = upsample(self.aspp(e5), 4)  # (B, 256, H/4, W/4)
        features = self.merge(torch.cat([context, self.reduce(e2)], dim=1))
        return Segmentation(upsample(self.classify(features), 4))
