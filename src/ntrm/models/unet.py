"""The U-Net of NTRM in two halves; a relation module may stand between them.

The halves are made one after the other, so that a network can initialise its relation between or after them.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ntrm.core.errors import choices_error
from ntrm.models.blocks import Classifier, DecoderBlock, conv_bn_relu, initialise, scaled, upsample
from ntrm.models.encoders import ResNetEncoder, TimmEncoder, make_encoder

WIDTHS = (256, 128, 96, 64, 32)
"""Channels of D1 … D5."""
COARSE = ("e5", "d2")
"""What the coarse head may look at."""


class UNetDecoder(nn.Module):
    """A sequence of ``Dec`` blocks, each twice as large as the one before.

    Args:
        inputs: channels of the coarsest features.
        skips: channels of the skip that each block takes; 0 where it takes none.
        outputs: channels that each block gives.
        align_corners: how blocks upsample.
    """

    def __init__(self, inputs: int, skips: Sequence[int], outputs: Sequence[int], align_corners: bool = False) -> None:
        super().__init__()
        sizes = zip([inputs, *outputs[:-1]], skips, outputs, strict=True)
        self.blocks = nn.ModuleList(DecoderBlock(*three, align_corners) for three in sizes)
        initialise(self)

    def forward(self, x: Tensor, skips: Sequence[Tensor | None]) -> Tensor:
        """(B, inputs, H, W) and skips from coarse to fine → (B, outputs[-1], 2ⁿH, 2ⁿW)."""
        for block, skip in zip(self.blocks, skips, strict=True):
            x = block(x, skip)
        return x


class CoarseHead(nn.Module):
    """φ: the coarse prediction on the 1/8 grid, from E5 (two upsampling steps) or from D2 (none)."""

    def __init__(self, inputs: int, classes: int, width: float, steps: int, align_corners: bool = False) -> None:
        super().__init__()
        self.align_corners = align_corners
        widths = [scaled(256, width), scaled(128, width)][:steps] or [scaled(128, width)]
        self.up = steps > 0
        self.blocks = nn.ModuleList(conv_bn_relu(a, b) for a, b in zip([inputs, *widths[:-1]], widths, strict=True))
        self.classify = nn.Conv2d(widths[-1], classes, kernel_size=1)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H/32, W/32) or (B, C, H/8, W/8) → (B, K, H/8, W/8)."""
        for block in self.blocks:
            x = block(upsample(x, align_corners=self.align_corners) if self.up else x)
        out: Tensor = self.classify(x)
        return out


def first_half(
    classes: int, encoder: str, width: float, coarse: str, align_corners: bool = False
) -> tuple[ResNetEncoder | TimmEncoder, UNetDecoder, CoarseHead]:
    """Up to the 1/8 grid: encoder, upper decoder (E5, E4 and E3 → D2) and coarse head, which looks at ``coarse``."""
    if coarse not in COARSE:
        raise choices_error("unknown input of the coarse head", coarse, COARSE)
    body = make_encoder(encoder, width)
    _, _, e3, e4, e5 = body.channels
    d1, d2, *_ = _widths(width)
    upper = UNetDecoder(e5, (e4, e3), (d1, d2), align_corners)
    inputs, steps = (e5, 2) if coarse == "e5" else (d2, 0)
    head = CoarseHead(inputs, classes, width, steps, align_corners)
    return body, upper, head


def second_half(
    classes: int, encoder: ResNetEncoder | TimmEncoder, width: float, align_corners: bool = False
) -> tuple[UNetDecoder, Classifier]:
    """From the 1/8 grid to input size: lower decoder (D2, E2 and E1 → D5) and classifier."""
    e1, e2, *_ = encoder.channels
    _, d2, d3, d4, d5 = _widths(width)
    lower = UNetDecoder(d2, (e2, e1, 0), (d3, d4, d5), align_corners)
    return lower, Classifier(d5, classes)


def related_channels(width: float) -> int:
    """Channels of D2, the features that a relation refines."""
    return _widths(width)[1]


def _widths(width: float) -> tuple[int, ...]:
    return tuple(scaled(channels, width) for channels in WIDTHS)
