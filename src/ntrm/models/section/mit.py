"""The section relation in another network: SegFormer's fused features, refined by what the whole section holds."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ntrm.core.errors import UsageError
from ntrm.models.blocks import upsample
from ntrm.models.mit_trm import fused_half, spread_half
from ntrm.models.section.config import SectionConfig
from ntrm.models.section.network import Begun, SectionModel
from ntrm.models.section.relation import SectionRelation
from ntrm.models.unet import related_channels


class MiTSection(SectionModel):
    """``mit-section``: as ``mit-trm``, with the section's nodes; ``graph="none", nodes="vector"`` is its control.

    All four stages are fused on one grid, so that features are pooled from there (``source`` is ``d2``).
    """

    def __init__(
        self,
        classes: int,
        size: str = "b0",
        width: float = 1.0,
        drop_path: float = 0.1,
        relation: SectionConfig | None = None,
    ) -> None:
        super().__init__()
        config = relation or SectionConfig(source="d2")
        if config.source != "d2":
            raise UsageError("mit-section has one grid of features", got=f"source {config.source}", expected="d2")
        self.body, self.shrink, self.coarse = fused_half(classes, size, width, drop_path)
        self.decoder, self.classify = spread_half(classes, size, width, self.shrink)
        inner = related_channels(width)
        self.relation = SectionRelation(inner, inner, classes, replace(config, source="d2"))

    def begin(self, x: Tensor, *, shallow: bool) -> Begun:
        """Fused features on the 1/8 grid, and the coarse prediction."""
        fused = self.body(x).logits  # (B, 256, H/4, W/4)
        features = self.shrink(fused)  # (B, 128, H/8, W/8)
        return Begun(self.coarse(features), features, features, (fused,))

    def end(self, refined: Tensor, begun: Begun) -> Tensor:
        """Decoder block and classifier."""
        (fused,) = begun.skips
        return upsample(self.classify(self.decoder(refined, fused)), 4)
