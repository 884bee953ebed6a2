"""NTRM: a ResNet U-Net whose coarse prediction becomes a graph of tissues that refines its features."""

from __future__ import annotations

from torch import Tensor

from ntrm.core.errors import choices_error
from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.models.blocks import Classifier, scaled, upsample
from ntrm.models.encoders import make_encoder
from ntrm.models.trm import RelationConfig, ReleasedRelation, TissueRelation, class_probabilities
from ntrm.models.unet import WIDTHS, CoarseHead, UNetDecoder

COARSE = ("e5", "d2")  # What the coarse head may look at


class NTRM(SegmentationModel):
    """The paper's network; ``relation`` is the variant of its TRM, or None for the matched control without one.

    ``released``: the module of the authors' code, and corners aligned wherever the network upsamples.
    """

    def __init__(
        self,
        classes: int,
        encoder: str = "resnet18",
        width: float = 1.0,
        coarse: str = "e5",
        relation: RelationConfig | None = None,
        released: bool = False,
    ) -> None:
        super().__init__()
        if coarse not in COARSE:
            raise choices_error("unknown input of the coarse head", coarse, COARSE)
        self.coarse_from, self.released = coarse, released
        self.encoder = make_encoder(encoder, width)
        e1, e2, e3, e4, e5 = self.encoder.channels
        d1, d2, d3, d4, d5 = (scaled(channels, width) for channels in WIDTHS)
        self.upper = UNetDecoder(e5, (e4, e3), (d1, d2), released)
        inputs, steps = (e5, 2) if coarse == "e5" else (d2, 0)
        self.coarse = CoarseHead(inputs, classes, width, steps, released)
        module = ReleasedRelation if released else TissueRelation
        self.relation = module(d2, classes, relation) if relation else None
        self.lower = UNetDecoder(d2, (e2, e1, 0), (d3, d4, d5), released)
        self.classify = Classifier(d5, classes)

    def segment(self, x: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """Encoder, coarse prediction, relation of tissues, decoder: one stage a line."""
        e1, e2, e3, e4, e5 = self.encoder(x)
        d2 = self.upper(e5, (e4, e3))  # (B, 128, H/8, W/8)
        phi = self.coarse(e5 if self.coarse_from == "e5" else d2)  # (B, K, H/8, W/8)
        tissues = None
        if self.relation is not None:
            d2, tissues = self.relation(d2, class_probabilities(phi))  # (B, 128, H/8, W/8)
        final = self.classify(self.lower(d2, (e2, e1, None)))  # (B, K, H, W)
        enlarged = upsample(phi, 8, align_corners=self.released) if coarse else None
        return Segmentation(final, enlarged, tissues if graph else None)
