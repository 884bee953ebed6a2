"""The section relation in another network: SegFormer's fused features, refined by what the whole section holds."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from ntrm.errors import UsageError
from ntrm.models.baselines.mit import MIT, make_segformer
from ntrm.models.blocks import DecoderBlock, initialise, scaled, upsample
from ntrm.models.ntrm import CoarseHead
from ntrm.models.section.config import SectionConfig
from ntrm.models.section.network import Begun, SectionModel
from ntrm.models.section.relation import SectionRelation


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
        self.decoder = DecoderBlock(inner, fused, outputs)
        self.classify = nn.Conv2d(outputs, classes, kernel_size=1)
        for part in (self.shrink, self.decoder, self.classify):
            initialise(part)
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
