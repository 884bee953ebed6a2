"""What all networks share: a config, a check of the input, and saving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from ntrm.errors import UsageError
from ntrm.models.blocks import check_input
from ntrm.models.config import ModelConfig
from ntrm.models.output import Segmentation
from ntrm.models.saving import write_model
from ntrm.models.section.sums import SectionSums


class SegmentationModel(nn.Module):
    """A network that turns normalised RGB windows into class logits at input size."""

    config: ModelConfig
    multiple = 32
    """Height and width of the input must be multiples of this."""

    @property
    def passes(self) -> int:
        """Passes over a section's windows (``gather``) before it can be predicted; 0 where windows stand alone."""
        return 0

    def forward(
        self,
        x: Tensor,
        *,
        initial: bool = True,
        graph: bool = False,
        sections: Tensor | None = None,
        context: Sequence[SectionSums] | None = None,
    ) -> Segmentation:
        """(B, 3, H, W) → logits (B, K, H, W) at input size.

        ``initial`` asks for the coarse head's logits too, ``graph`` for the tissue graph; a network that has none
        gives None. A network with ``passes`` sees beyond the window: ``context`` holds the sums of every pass over
        whole sections, a row for each window, or a row for each section and then ``sections`` (B,) names the row.
        With ``sections`` alone the windows of a section in this batch are the section; with neither, each window is.
        Other networks take no notice.
        """
        check_input(x, self.multiple)
        return self.segment(x, initial=initial, graph=graph)

    def segment(self, x: Tensor, *, initial: bool, graph: bool) -> Segmentation:
        """The network's own pipeline."""
        raise NotImplementedError

    def gather(self, x: Tensor, *, sections: Tensor | None = None, context: Sequence[SectionSums] = ()) -> SectionSums:
        """What each window (B, 3, H, W) adds to its section, in the pass after those whose sums are ``context``."""
        raise UsageError(
            f"{type(self).__name__} gathers nothing",
            got=f"a pass after {len(context)}",
            expected=f"{self.passes} passes",
            mend="predict at once",
        )

    @property
    def wants_prior(self) -> bool:
        """Whether ``set_prior`` has something to set."""
        return False

    def set_prior(self, contacts: Tensor) -> None:
        """Tell which tissues touch in the training masks, counts (K, K), before the training; or take no notice."""

    def tell(self, masks: Tensor) -> None:
        """The true masks (B, H, W) of the windows that come next, for studies of what they would be worth."""

    def recall(self, others: Sequence[SectionSums]) -> None:
        """What the other windows of its section add to each window of the training steps to come, for every pass."""

    @property
    def added(self) -> list[SectionSums]:
        """What each window of the last training step after ``recall`` has added by itself, for every pass."""
        return []

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
