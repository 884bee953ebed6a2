"""U-Net on a ResNet: NTRM's encoder and decoder without a coarse head and without the relation of tissues."""

from __future__ import annotations

from torch import Tensor, nn

from ntrm.models.base import SegmentationModel
from ntrm.models.blocks import initialise, scaled
from ntrm.models.decoder import WIDTHS, UNetDecoder
from ntrm.models.encoders import make_encoder
from ntrm.models.output import Segmentation


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

    def segment(self, x: Tensor, *, initial: bool, graph: bool) -> Segmentation:
        """Encoder, decoder, classes; there is neither an initial prediction nor a graph."""
        e1, e2, e3, e4, e5 = self.encoder(x)
        features = self.decoder(e5, (e4, e3, e2, e1, None))  # (B, 32, H, W)
        return Segmentation(self.classify(features))
