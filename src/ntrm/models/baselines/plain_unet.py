"""Plain U-Nets on a ResNet and on VGG-16 with batch norm, with torchvision's key names."""

from __future__ import annotations

from torch import Tensor, nn

from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.models.blocks import initialise, scaled
from ntrm.models.encoders import make_encoder
from ntrm.models.unet import WIDTHS, UNetDecoder


class ResNetUNet(SegmentationModel):
    """``unet-resnet18``: the plain U-Net that NTRM extends."""

    def __init__(self, classes: int, encoder: str = "resnet18", width: float = 1.0) -> None:
        super().__init__()
        self.encoder = make_encoder(encoder, width)
        e1, e2, e3, e4, e5 = self.encoder.channels
        widths = [scaled(channels, width) for channels in WIDTHS]
        self.decoder = UNetDecoder(e5, (e4, e3, e2, e1, 0), widths)
        self.classify = nn.Conv2d(widths[-1], classes, kernel_size=1)
        initialise(self.classify)

    def segment(self, x: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """Encoder, decoder, classes; there is neither a coarse prediction nor a graph."""
        e1, e2, e3, e4, e5 = self.encoder(x)
        features = self.decoder(e5, (e4, e3, e2, e1, None))  # (B, 32, H, W)
        return Segmentation(self.classify(features))


# U-Net on VGG-16 with batch norm, with torchvision's key names (``vgg16_bn``).


CONVOLUTIONS = (2, 2, 3, 3, 3)
CHANNELS = (64, 128, 256, 512, 512)


class VGGEncoder(nn.Module):
    """The convolutions of VGG-16 as one row, so that ``features.N.*`` of public ImageNet weights fit."""

    def __init__(self, width: float = 1.0) -> None:
        super().__init__()
        self.channels = tuple(scaled(channels, width) for channels in CHANNELS)
        layers: list[nn.Module] = []
        inputs = 3
        for outputs, count in zip(self.channels, CONVOLUTIONS, strict=True):
            for _ in range(count):
                convolution = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1)
                layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
                inputs = outputs
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        initialise(self)

    def forward(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """(B, 3, H, W) → what enters each max-pool, at 1/1 … 1/16, and what leaves the last, at 1/32."""
        skips = []
        for layer in self.features:
            if isinstance(layer, nn.MaxPool2d):
                skips.append(x)
            x = layer(x)
        return skips, x


class VGGUNet(SegmentationModel):
    """``unet-vgg16``: the decoder of the other U-Nets, with a skip at every scale down to full size."""

    def __init__(self, classes: int, width: float = 1.0) -> None:
        super().__init__()
        self.encoder = VGGEncoder(width)
        widths = [scaled(channels, width) for channels in WIDTHS]
        self.decoder = UNetDecoder(self.encoder.channels[-1], self.encoder.channels[::-1], widths)
        self.classify = nn.Conv2d(widths[-1], classes, kernel_size=1)
        initialise(self.classify)

    def segment(self, x: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """Encoder, decoder, classes; there is neither a coarse prediction nor a graph."""
        skips, bottom = self.encoder(x)
        features = self.decoder(bottom, skips[::-1])  # (B, 32, H, W)
        return Segmentation(self.classify(features))
