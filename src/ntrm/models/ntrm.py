"""NTRM: a ResNet U-Net whose coarse prediction becomes a graph of tissues that refines its features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ntrm.errors import choices_error
from ntrm.models.base import SegmentationModel
from ntrm.models.blocks import conv_bn_relu, initialise, scaled, upsample
from ntrm.models.decoder import WIDTHS, UNetDecoder
from ntrm.models.encoders import make_encoder
from ntrm.models.output import Segmentation, TissueGraph
from ntrm.models.trm import RelationConfig, TissueRelation

COARSE = ("e5", "d2")


class CoarseHead(nn.Module):
    """φ: the initial prediction on the 1/8 grid, from E5 (two upsampling steps) or from D2 (none)."""

    def __init__(self, inputs: int, classes: int, width: float, steps: int) -> None:
        super().__init__()
        widths = [scaled(256, width), scaled(128, width)][:steps] or [scaled(128, width)]
        self.up = steps > 0
        self.blocks = nn.ModuleList(conv_bn_relu(a, b) for a, b in zip([inputs, *widths[:-1]], widths, strict=True))
        self.classify = nn.Conv2d(widths[-1], classes, kernel_size=1)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H/32, W/32) or (B, C, H/8, W/8) → (B, K, H/8, W/8)."""
        for block in self.blocks:
            x = block(upsample(x) if self.up else x)
        out: Tensor = self.classify(x)
        return out


class NTRM(SegmentationModel):
    """The paper's network; ``relation`` is the variant of its TRM, or None for the matched control without one."""

    def __init__(
        self,
        classes: int,
        encoder: str = "resnet18",
        width: float = 1.0,
        coarse: str = "e5",
        relation: RelationConfig | None = None,
    ) -> None:
        super().__init__()
        if coarse not in COARSE:
            raise choices_error("unknown input of the coarse head", coarse, COARSE)
        self.coarse_from = coarse
        self.encoder = make_encoder(encoder, width)
        e1, e2, e3, e4, e5 = self.encoder.channels
        d1, d2, d3, d4, d5 = (scaled(channels, width) for channels in WIDTHS)
        self.upper = UNetDecoder(e5, (e4, e3), (d1, d2))
        self.coarse = CoarseHead(e5, classes, width, steps=2) if coarse == "e5" else CoarseHead(d2, classes, width, 0)
        self.relation = TissueRelation(d2, classes, relation) if relation else None
        self.lower = UNetDecoder(d2, (e2, e1, 0), (d3, d4, d5))
        self.classify = nn.Conv2d(d5, classes, kernel_size=1)
        initialise(self.classify)

    def segment(self, x: Tensor, *, initial: bool, graph: bool) -> Segmentation:
        """Encoder, coarse prediction, relation of tissues, decoder: one stage a line."""
        e1, e2, e3, e4, e5 = self.encoder(x)
        d2 = self.upper(e5, (e4, e3))  # (B, 128, H/8, W/8)
        coarse = self.coarse(e5 if self.coarse_from == "e5" else d2)  # (B, K, H/8, W/8)
        refined, tissues = self._relate(d2, coarse)  # (B, 128, H/8, W/8)
        final = self.classify(self.lower(refined, (e2, e1, None)))  # (B, K, H, W)
        return Segmentation(final, upsample(coarse, 8) if initial else None, tissues if graph else None)

    def without_gradient(self) -> dict[str, str]:
        """Parameters that never receive a gradient in this variant, with the reason."""
        if self.relation is None:
            return {}
        return {f"relation.{name}": reason for name, reason in self.relation.without_gradient().items()}

    def _relate(self, features: Tensor, coarse: Tensor) -> tuple[Tensor, TissueGraph | None]:
        if self.relation is None:
            return features, None
        # Thresholds decide presence and edges: the softmax is taken in float32 whatever the network runs in.
        probabilities = torch.softmax(coarse, dim=1, dtype=torch.promote_types(coarse.dtype, torch.float32))
        refined, tissues = self.relation(features, probabilities)
        return refined, tissues
