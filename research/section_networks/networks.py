"""NTRM and SegFormer with the section relation in their middle: their halves are those of the package's networks.

A section is predicted in two passes over its windows: ``gather`` on each, the rows added up, then ``forward`` with the
sums as ``context``. In training the windows of a step are of many sections, and ``others`` says what the other windows
of each section have lately added (``memory``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from research.section_networks.config import SectionConfig
from research.section_networks.relation import SectionRelation
from research.section_networks.sums import SectionSums
from torch import Tensor

from ntrm.core.errors import UsageError, choices_error
from ntrm.core.labels import LabelSchema
from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.models.blocks import check_input, upsample
from ntrm.models.config import ModelConfig, schema_for
from ntrm.models.folders import read_model
from ntrm.models.segformer import fused_half, spread_half
from ntrm.models.unet import first_half, related_channels, second_half
from ntrm.models.weights import read_tensors


class Begun(NamedTuple):
    """A window up to where the relation comes in."""

    coarse: Tensor
    """(B, K, H/8, W/8) logits."""
    d2: Tensor | None
    """(B, C, H/8, W/8), or None where a first pass needs none."""
    e5: Tensor
    """(B, C5, H/32, W/32), or anything where ``source`` is ``d2``."""
    skips: tuple[Tensor | None, ...]
    """What the second half needs beside the refined features."""


class SectionModel(SegmentationModel):
    """A network with a section relation in its middle."""

    relation: SectionRelation

    def begin(self, x: Tensor, *, shallow: bool = False) -> Begun:
        """The first half; with ``shallow`` only what a first pass needs."""
        raise NotImplementedError

    def end(self, refined: Tensor, begun: Begun) -> Tensor:
        """The second half: logits at input size."""
        raise NotImplementedError

    def check_loads(self, state: Mapping[str, Tensor]) -> None:
        """``load`` of this module opens them."""

    @property
    def sees_section(self) -> bool:
        """Whether a pass over the section's windows comes before the prediction."""
        return self.relation.config.scope == "section"

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        *,
        coarse: bool = True,
        graph: bool = False,
        context: SectionSums | None = None,
        truth: Tensor | None = None,
    ) -> Segmentation:
        return self.step(x, context=context, truth=truth, coarse=coarse, graph=graph)[0]

    def step(
        self,
        x: Tensor,
        *,
        context: SectionSums | None = None,
        others: SectionSums | None = None,
        truth: Tensor | None = None,
        coarse: bool = True,
        graph: bool = False,
    ) -> tuple[Segmentation, SectionSums]:
        """Windows (B, 3, H, W) → logits at input size, and what each window adds to its section.

        ``context`` are the sums of whole sections, one row for all windows or a row for each; ``others``, in training,
        those of the other windows of each window's section. With neither, each window is a section of its own.
        ``truth`` (B, H, W) is for networks that are given the true masks.
        """
        check_input(x, self.multiple)
        begun = self.begin(x)
        with torch.autocast(x.device.type, enabled=False):
            masks = self.relation.masks(begun.coarse, truth)
            own = self.relation.gather(masks, begun.d2, begun.e5)
            sums = self._of_section(own, context, others)
            refined, related = self.relation.refine(begun.d2, masks, sums)
        final = self.relation.shifted(self.end(refined, begun), related)  # (B, K, H, W)
        tissues = self.relation.graph(sums, related) if graph else None
        return Segmentation(final, upsample(begun.coarse, 8) if coarse else None, tissues), own

    def gather(self, x: Tensor, truth: Tensor | None = None) -> SectionSums:
        """What each window (B, 3, H, W) adds to its section."""
        check_input(x, self.multiple)
        coarse, d2, e5, _ = self.begin(x, shallow=True)
        with torch.autocast(x.device.type, enabled=False):
            return self.relation.gather(self.relation.masks(coarse, truth), d2, e5)

    def _of_section(self, own: SectionSums, context: SectionSums | None, others: SectionSums | None) -> SectionSums:
        if not self.sees_section:
            return own
        if context is not None:
            return context.expanded(len(own.weight))
        if others is None:
            return own
        whole, share = own + others, self.relation.config.alone
        if not share or not self.training:
            return whole
        return own.chosen(torch.rand(len(own.weight), device=own.weight.device) < share, whole)


class SectionNTRM(SectionModel):
    """``ntrm-section``: like ``ntrm-control``, with nodes pooled over all windows of a section."""

    def __init__(
        self, classes: int, encoder: str = "resnet18", width: float = 1.0, coarse: str = "e5", **variant: Any
    ) -> None:
        super().__init__()
        self.coarse_from = coarse
        self.encoder, self.upper, self.coarse = first_half(classes, encoder, width, coarse)
        self.lower, self.classify = second_half(classes, self.encoder, width)
        # Last, so that the same seed gives the control the same weights.
        deepest = self.encoder.channels[-1]
        self.relation = SectionRelation(related_channels(width), deepest, classes, SectionConfig(**variant))

    def begin(self, x: Tensor, *, shallow: bool = False) -> Begun:
        """Encoder, upper decoder and coarse prediction; a first pass may need no decoder."""
        e1, e2, e3, e4, e5 = self.encoder(x)
        deep = shallow and self.coarse_from == self.relation.config.source == "e5"
        d2 = None if deep else self.upper(e5, (e4, e3))  # (B, 128, H/8, W/8)
        coarse = self.coarse(e5 if self.coarse_from == "e5" else d2)  # (B, K, H/8, W/8)
        return Begun(coarse, d2, e5, (e2, e1, None))

    def end(self, refined: Tensor, begun: Begun) -> Tensor:
        """Lower decoder and classifier."""
        out: Tensor = self.classify(self.lower(refined, begun.skips))
        return out


class MiTSection(SectionModel):
    """``mit-section``: as ``mit-trm``, with the section's nodes, pooled where all four stages are fused (``d2``)."""

    def __init__(
        self, classes: int, size: str = "b0", width: float = 1.0, drop_path: float = 0.1, **variant: Any
    ) -> None:
        super().__init__()
        config = SectionConfig(**{"source": "d2", **variant})
        if config.source != "d2":
            raise UsageError("mit-section has one grid of features", got=f"source {config.source}", expected="d2")
        self.body, self.shrink, self.coarse = fused_half(classes, size, width, drop_path)
        self.decoder, self.classify = spread_half(classes, size, width, self.shrink)
        inner = related_channels(width)
        self.relation = SectionRelation(inner, inner, classes, config)

    def begin(self, x: Tensor, *, shallow: bool = False) -> Begun:
        """Fused features on the 1/8 grid, and the coarse prediction."""
        fused = self.body(x).logits  # (B, 256, H/4, W/4)
        features = self.shrink(fused)  # (B, 128, H/8, W/8)
        return Begun(self.coarse(features), features, features, (fused,))

    def end(self, refined: Tensor, begun: Begun) -> Tensor:
        """Decoder block and classifier."""
        (fused,) = begun.skips
        return upsample(self.classify(self.decoder(refined, fused)), 4)


NETWORKS: Mapping[str, type[SectionModel]] = {"ntrm-section": SectionNTRM, "mit-section": MiTSection}
BASES = {
    "ntrm-section": ("ntrm-control", ("encoder", "width", "coarse")),
    "mit-section": ("mit-trm", ("size", "width", "drop_path")),
}
"""The package's network whose parts a section network shares, and the options that both take."""


def create(name: str, classes: int | LabelSchema = 12, **options: Any) -> SectionModel:
    """Build an untrained section network by name."""
    if name not in NETWORKS:
        raise choices_error("unknown section network", name, NETWORKS)
    schema = schema_for(classes)
    try:
        network = NETWORKS[name](len(schema), **options)
    except TypeError as error:
        raise UsageError(f"{name} does not take these options", got=f"{options} ({error})") from error
    network.config = ModelConfig(arch=name, schema=schema, options=dict(options))
    return network


def load(folder: Path) -> SectionModel:
    """A section network from the folder that ``save_pretrained`` wrote, in evaluation mode."""
    config, weights = read_model(folder)
    network = create(config.arch, config.schema, **dict(config.options))
    network.config = config
    network.load_state_dict(read_tensors(weights))
    network.eval()
    return network
