"""The tissue relation module in another network: SegFormer's fused features, refined by the graph of tissues."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ntrm.models.base import SegmentationModel
from ntrm.models.baselines.mit import MIT, make_segformer
from ntrm.models.blocks import DecoderBlock, initialise, scaled, upsample
from ntrm.models.ntrm import CoarseHead
from ntrm.models.output import Segmentation
from ntrm.models.trm import RelationConfig, TissueRelation


class MiTTRM(SegmentationModel):
    """``mit-trm``: the relation works on the 1/8 grid as in NTRM, between the fused features and a decoder block."""

    def __init__(
        self, classes: int, size: str = "b0", width: float = 1.0, drop_path: float = 0.1, **variant: Any
    ) -> None:
        super().__init__()
        self.body = make_segformer(size, classes, width, drop_path)
        # Without its classifier the decoder gives the features that all four stages were fused into.
        self.body.set_submodule("decode_head.classifier", nn.Identity())
        fused, inner, outputs = scaled(MIT[size].decoder, width), scaled(128, width), scaled(96, width)
        self.shrink = nn.Sequential(
            nn.Conv2d(fused, inner, kernel_size=3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(inplace=True),
        )
        self.coarse = CoarseHead(inner, classes, width, steps=0)
        self.relation = TissueRelation(inner, classes, RelationConfig(**variant))
        self.decoder = DecoderBlock(inner, fused, outputs)
        self.classify = nn.Conv2d(outputs, classes, kernel_size=1)
        for part in (self.shrink, self.decoder, self.classify):
            initialise(part)

    def segment(self, x: Tensor, *, initial: bool, graph: bool) -> Segmentation:
        """Fused features, coarse prediction, relation of tissues, decoder: one stage a line."""
        fused = self.body(x).logits  # (B, 256, H/4, W/4)
        features = self.shrink(fused)  # (B, 128, H/8, W/8)
        coarse = self.coarse(features)  # (B, K, H/8, W/8)
        probabilities = torch.softmax(coarse, dim=1, dtype=torch.promote_types(coarse.dtype, torch.float32))
        refined, tissues = self.relation(features, probabilities)
        final = upsample(self.classify(self.decoder(refined, fused)), 4)  # (B, K, H, W)
        return Segmentation(final, upsample(coarse, 8) if initial else None, tissues if graph else None)

    def without_gradient(self) -> dict[str, str]:
        """Parameters that never receive a gradient in this variant, with the reason."""
        return {f"relation.{name}": reason for name, reason in self.relation.without_gradient().items()}
