"""The way back up: decoder blocks in a row. It knows no encoder, only the channels it is given."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ntrm.models.blocks import DecoderBlock, initialise

WIDTHS = (256, 128, 96, 64, 32)
"""Channels of D1 … D5."""


class UNetDecoder(nn.Module):
    """A row of ``Dec`` blocks, each twice as large as the one before.

    Args:
        inputs: channels of the coarsest features.
        skips: channels of the skip that each block takes; 0 where it takes none.
        outputs: channels that each block gives.
    """

    def __init__(self, inputs: int, skips: Sequence[int], outputs: Sequence[int]) -> None:
        super().__init__()
        sources = [inputs, *outputs[:-1]]
        self.blocks = nn.ModuleList(DecoderBlock(*sizes) for sizes in zip(sources, skips, outputs, strict=True))
        initialise(self)

    def forward(self, x: Tensor, skips: Sequence[Tensor | None]) -> Tensor:
        """(B, inputs, H, W) and skips from coarse to fine → (B, outputs[-1], 2ⁿH, 2ⁿW)."""
        for block, skip in zip(self.blocks, skips, strict=True):
            x = block(x, skip)
        return x
