"""What all networks share: a config, a check of the input, and saving."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from ntrm.models.blocks import check_input
from ntrm.models.config import ModelConfig
from ntrm.models.output import Segmentation
from ntrm.models.saving import write_model


class SegmentationModel(nn.Module):
    """A network that turns normalised RGB windows into class logits at input size."""

    config: ModelConfig
    multiple = 32
    """Height and width of the input must be multiples of this."""

    def forward(self, x: Tensor, *, initial: bool = True, graph: bool = False) -> Segmentation:
        """(B, 3, H, W) → logits (B, K, H, W) at input size.

        ``initial`` asks for the coarse head's logits too, ``graph`` for the tissue graph; a network that has none
        gives None.
        """
        check_input(x, self.multiple)
        return self.segment(x, initial=initial, graph=graph)

    def segment(self, x: Tensor, *, initial: bool, graph: bool) -> Segmentation:
        """The network's own pipeline."""
        raise NotImplementedError

    def without_gradient(self) -> dict[str, str]:
        """Parameters that never receive a gradient in this network, with the reason."""
        return {}

    def save_pretrained(self, folder: Path, *, dtype: torch.dtype = torch.float32, notes: str = "") -> str:
        """Write ``config.json``, ``model.safetensors`` and ``README.md``; returns the SHA-256 of the weights.

        ``notes`` (Markdown) are added to the model card.
        """
        return write_model(self, self.config, folder, dtype, notes)

    def describe(self, **changes: Any) -> Self:
        """Set fields of the config (µm/px, name, data …) and return the network."""
        self.config = replace(self.config, **changes)
        return self
