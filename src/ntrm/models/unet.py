"""What the U-Nets have in common: the decoder, and the head of the coarse prediction."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ntrm.models.blocks import DecoderBlock, conv_bn_relu, initialise, scaled, upsample

WIDTHS = (256, 128, 96, 64, 32)  # Channels of D1 … D5


class UNetDecoder(nn.Module):
    """A sequence of ``Dec`` blocks, each twice as large as the one before.

    ``inputs`` are the channels of the coarsest features, ``skips`` those of each block's skip, 0 where it takes none.
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
