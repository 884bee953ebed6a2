"""The tissue relation module in another network: SegFormer's fused features, refined by the graph of tissues."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ntrm.models.base import SegmentationModel
from ntrm.models.blocks import upsample
from ntrm.models.fused import fused_half, spread_half
from ntrm.models.halves import related_channels
from ntrm.models.output import Segmentation
from ntrm.models.trm import RelationConfig, TissueRelation


class MiTTRM(SegmentationModel):
    """``mit-trm``: the relation works on the 1/8 grid as in NTRM, between the fused features and a decoder block."""

    def __init__(
        self, classes: int, size: str = "b0", width: float = 1.0, drop_path: float = 0.1, **variant: Any
    ) -> None:
        super().__init__()
        self.body, self.shrink, self.coarse = fused_half(classes, size, width, drop_path)
        self.relation = TissueRelation(related_channels(width), classes, RelationConfig(**variant))
        self.decoder, self.classify = spread_half(classes, size, width, self.shrink)

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
