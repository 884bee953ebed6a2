"""The tissue relation module in SegFormer: its fused features, refined by the graph of tissues.

As in ``halves``, they are made in two steps, so that a network can draw its relation between or after them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.models.baselines.mit import MIT, make_segformer
from ntrm.models.blocks import DecoderBlock, initialise, scaled, upsample
from ntrm.models.trm import RelationConfig, TissueRelation
from ntrm.models.unet import CoarseHead, related_channels


class FusedHalf(NamedTuple):
    """Up to the 1/8 grid."""

    body: nn.Module
    """(B, 3, H, W) → an output whose ``logits`` are the fused features (B, 256, H/4, W/4)."""
    shrink: nn.Sequential
    """(B, 256, H/4, W/4) → (B, 128, H/8, W/8)."""
    coarse: CoarseHead


class SpreadHalf(NamedTuple):
    """From the 1/8 grid to the grid of the fused features."""

    decoder: DecoderBlock
    classify: nn.Conv2d


def fused_half(classes: int, size: str, width: float, drop_path: float) -> FusedHalf:
    """Transformer, convolution to the 1/8 grid and coarse head; the convolution is initialised in ``spread_half``."""
    body = make_segformer(size, classes, width, drop_path)
    # Without its classifier the decoder gives the features that all four stages were fused into.
    body.set_submodule("decode_head.classifier", nn.Identity())
    inner = related_channels(width)
    shrink = nn.Sequential(
        nn.Conv2d(scaled(MIT[size].decoder, width), inner, kernel_size=3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(inner),
        nn.ReLU(inplace=True),
    )
    return FusedHalf(body, shrink, CoarseHead(inner, classes, width, steps=0))


def spread_half(classes: int, size: str, width: float, shrink: nn.Sequential) -> SpreadHalf:
    """Decoder block and classifier; ``shrink`` of the first half is initialised with them."""
    outputs = scaled(96, width)
    decoder = DecoderBlock(related_channels(width), scaled(MIT[size].decoder, width), outputs)
    classify = nn.Conv2d(outputs, classes, kernel_size=1)
    for part in (shrink, decoder, classify):
        initialise(part)
    return SpreadHalf(decoder, classify)


# The tissue relation module in another network: SegFormer's fused features, refined by the graph of tissues.


class MiTTRM(SegmentationModel):
    """``mit-trm``: the relation works on the 1/8 grid as in NTRM, between the fused features and a decoder block."""

    def __init__(
        self, classes: int, size: str = "b0", width: float = 1.0, drop_path: float = 0.1, **variant: Any
    ) -> None:
        super().__init__()
        self.body, self.shrink, self.coarse = fused_half(classes, size, width, drop_path)
        self.relation = TissueRelation(related_channels(width), classes, RelationConfig(**variant))
        self.decoder, self.classify = spread_half(classes, size, width, self.shrink)

    def segment(self, x: Tensor, *, coarse: bool, graph: bool) -> Segmentation:
        """Fused features, coarse prediction, relation of tissues, decoder: one stage a line."""
        fused = self.body(x).logits  # (B, 256, H/4, W/4)
        features = self.shrink(fused)  # (B, 128, H/8, W/8)
        phi = self.coarse(features)  # (B, K, H/8, W/8)
        probabilities = torch.softmax(phi, dim=1, dtype=torch.promote_types(phi.dtype, torch.float32))
        refined, tissues = self.relation(features, probabilities)
        final = upsample(self.classify(self.decoder(refined, fused)), 4)  # (B, K, H, W)
        return Segmentation(final, upsample(phi, 8) if coarse else None, tissues if graph else None)

    def without_gradient(self) -> dict[str, str]:
        """Parameters that never receive a gradient in this variant, with the reason."""
        return {f"relation.{name}": reason for name, reason in self.relation.without_gradient().items()}
