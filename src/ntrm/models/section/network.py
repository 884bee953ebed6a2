"""NTRM that sees the whole section: encoder, coarse head and decoder of the control, and the section relation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ntrm.core.errors import UsageError
from ntrm.models.base import Segmentation, SegmentationModel
from ntrm.models.blocks import check_input, upsample
from ntrm.models.encoders import Stages
from ntrm.models.section.config import SectionConfig
from ntrm.models.section.further import shares_on_grid
from ntrm.models.section.relation import Related, SectionRelation
from ntrm.models.section.sums import SectionSums
from ntrm.models.unet import first_half, related_channels, second_half


class Begun(NamedTuple):
    """A window up to where the relation comes in."""

    coarse: Tensor
    """(B, K, H/8, W/8) logits."""
    d2: Tensor | None
    """(B, C, H/8, W/8), or None where it was not asked for."""
    e5: Tensor
    """(B, C5, H/32, W/32), or anything where ``source`` is ``d2``."""
    skips: tuple[Tensor | None, ...]
    """What the second half needs beside the refined features."""


class SectionModel(SegmentationModel):
    """A network with a section relation in its middle.

    A section is predicted in passes over its windows: ``gather`` in each of ``passes`` passes, the rows added up, then
    ``forward`` with the sums of all passes as ``context``.
    """

    relation: SectionRelation

    def begin(self, x: Tensor, *, shallow: bool) -> Begun:
        """The first half; with ``shallow`` only what a first pass needs."""
        raise NotImplementedError

    def end(self, refined: Tensor, begun: Begun) -> Tensor:
        """The second half: logits at input size."""
        raise NotImplementedError

    @property
    def passes(self) -> int:
        """Passes over a section's windows before it can be predicted."""
        return self.relation.config.rounds if self.relation.config.scope == "section" else 0

    def forward(
        self,
        x: Tensor,
        *,
        initial: bool = True,
        graph: bool = False,
        sections: Tensor | None = None,
        context: Sequence[SectionSums] | None = None,
    ) -> Segmentation:
        """(B, 3, H, W) → logits (B, K, H, W) at input size; see ``SegmentationModel``."""
        check_input(x, self.multiple)
        return self.segment(x, initial=initial, graph=graph, sections=sections, context=context)

    def segment(
        self,
        x: Tensor,
        *,
        initial: bool,
        graph: bool,
        sections: Tensor | None = None,
        context: Sequence[SectionSums] | None = None,
    ) -> Segmentation:
        """First half, relation over the section, second half: one stage a line."""
        begun = self.begin(x, shallow=False)
        refined, sums, related = self._relate(begun, sections, context)
        final = self.relation.shifted(self.end(refined, begun), related)  # (B, K, H, W)
        tissues = self.relation.graph(sums, related) if graph else None
        return Segmentation(final, upsample(begun.coarse, 8) if initial else None, tissues)

    def gather(self, x: Tensor, *, sections: Tensor | None = None, context: Sequence[SectionSums] = ()) -> SectionSums:
        """What each window (B, 3, H, W) adds to its section, in the pass after those whose sums are ``context``."""
        check_input(x, self.multiple)
        if len(context) >= self.relation.config.rounds:
            raise UsageError(
                "nothing is left to gather", got=f"{len(context)} passes", expected=f"{self.passes} in this network"
            )
        coarse, d2, e5, _ = self.begin(x, shallow=not context)
        with _full_precision(x):
            logits, pooled = coarse, d2
            for sums in context:
                if d2 is not None:  # always so after the first pass
                    masks = self.relation.masks(logits)
                    pooled, _ = self.relation.round(d2, masks, _rows(sums, sections, x.shape[0]))
                    logits = self.relation.revised(coarse, pooled)
            return self.relation.gather(self.relation.masks(logits), pooled, e5)

    @property
    def wants_prior(self) -> bool:
        """Whether this variant has a prior."""
        return self.relation.config.prior

    def set_prior(self, contacts: Tensor) -> None:
        """Tell which tissues touch in the training masks: counts (K, K)."""
        if self.wants_prior:
            self.relation.set_prior(contacts)

    def tell(self, masks: Tensor) -> None:
        """The true masks (B, H, W) of the windows that come next, for a variant that is given them."""
        if self.relation.config.masks != "true":
            return
        shares = shares_on_grid(masks, self.relation.classes, 8)
        # A recorded step reads them where they lie, so that each size of batch has its own place.
        place = self._told.setdefault((*shares.shape, str(shares.device)), shares)
        self.relation.told = place.copy_(shares)

    def recall(self, others: Sequence[SectionSums]) -> None:
        """What the other windows of its section add to each window of the training steps to come, for every pass."""
        place = self._recalled.setdefault(_key(others), [SectionSums(*map(torch.clone, sums)) for sums in others])
        for kept, sums in zip(place, others, strict=True):
            for part, value in zip(kept, sums, strict=True):
                part.copy_(value)  # a recorded step reads it where it lies
        self._others = place

    @property
    def added(self) -> list[SectionSums]:
        """What each window of the last training step after ``recall`` has added by itself, for every pass."""
        return [] if self._others is None else self._added[_key(self._others)]

    def without_gradient(self) -> dict[str, str]:
        """Parameters that never receive a gradient in this variant, with the reason."""
        return {f"relation.{name}": reason for name, reason in self.relation.without_gradient().items()}

    _others: list[SectionSums] | None = None

    @cached_property
    def _told(self) -> dict[tuple[int | str, ...], Tensor]:
        return {}

    @cached_property
    def _recalled(self) -> dict[tuple[int | str, ...], list[SectionSums]]:
        return {}

    @cached_property
    def _added(self) -> dict[tuple[int | str, ...], list[SectionSums]]:
        return {}

    def _of_section(self, own: SectionSums, sections: Tensor | None, number: int, alone: Tensor | None) -> SectionSums:
        """A window's sums and those of its section's other windows: of the batch, or as ``recall`` has them."""
        if sections is not None and self.passes:
            whole = own.within(sections)
        elif self._others is None or not self.training:
            return own
        else:
            self._remember(own, self._others, number)
            whole = own + self._others[number]
        return whole if alone is None else own.chosen(alone, whole)

    def _remember(self, own: SectionSums, others: list[SectionSums], number: int) -> None:
        """Keep what the windows add where ``added`` finds it."""
        places = self._added.setdefault(_key(others), [])
        if len(places) == number:
            places.append(SectionSums(*(torch.empty_like(part) for part in own)))
        with torch.no_grad():
            for place, part in zip(places[number], own, strict=True):
                place.copy_(part)

    def _alone(self, windows: Tensor) -> Tensor | None:
        """(B,) bool, which windows hear nothing of their section this time."""
        share = self.relation.config.alone
        if not share or not self.training:
            return None
        return torch.rand(windows.shape[0], device=windows.device) < share

    def _relate(
        self, begun: Begun, sections: Tensor | None, context: Sequence[SectionSums] | None
    ) -> tuple[Tensor, SectionSums, Related]:
        """All rounds: D2 refined, and the sums and the nodes of the last."""
        coarse, d2, e5, _ = begun
        if d2 is None:
            raise UsageError("the features to be refined are missing", got="a shallow first half")
        relation, logits, refined, number = self.relation, coarse, d2, 0
        alone = self._alone(d2)
        with _full_precision(d2):
            while True:
                masks = relation.masks(logits)
                if context is not None and self.passes:
                    sums = _rows(_pass(context, number), sections, d2.shape[0])
                else:
                    sums = self._of_section(relation.gather(masks, refined, e5), sections, number, alone)
                refined, related = relation.round(d2, masks, sums)
                number += 1
                if number == relation.config.rounds:
                    return refined, sums, related
                logits = relation.revised(coarse, refined)


class SectionNTRM(SectionModel):
    """``ntrm-section``: like ``ntrm-control``, with nodes pooled over all windows of a section."""

    def __init__(
        self,
        classes: int,
        encoder: str = "resnet18",
        width: float = 1.0,
        coarse: str = "e5",
        relation: SectionConfig | None = None,
    ) -> None:
        super().__init__()
        self.coarse_from = coarse
        self.encoder, self.upper, self.coarse = first_half(classes, encoder, width, coarse)
        self.lower, self.classify = second_half(classes, self.encoder, width)
        # Last, so that the same seed gives the control the same weights.
        deepest = self.encoder.channels[-1]
        self.relation = SectionRelation(related_channels(width), deepest, classes, relation or SectionConfig())

    def begin(self, x: Tensor, *, shallow: bool) -> Begun:
        """Encoder, upper decoder and coarse prediction; a first pass may need no decoder."""
        stages: Stages = self.encoder(x)
        e1, e2, e3, e4, e5 = stages
        deep = shallow and self.coarse_from == "e5" and self.relation.config.source == "e5"
        d2 = None if deep else self.upper(e5, (e4, e3))  # (B, 128, H/8, W/8)
        coarse = self.coarse(e5 if self.coarse_from == "e5" or d2 is None else d2)  # (B, K, H/8, W/8)
        return Begun(coarse, d2, e5, (e2, e1, None))

    def end(self, refined: Tensor, begun: Begun) -> Tensor:
        """Lower decoder and classifier."""
        out: Tensor = self.classify(self.lower(refined, begun.skips))
        return out


def _rows(sums: SectionSums, sections: Tensor | None, batch: int) -> SectionSums:
    """A row of sums for each window."""
    return sums.expanded(batch) if sections is None else sums.rows(sections)


def _pass(context: Sequence[SectionSums], number: int) -> SectionSums:
    if number >= len(context):
        raise UsageError(
            "the context is not whole",
            got=f"sums of {len(context)} passes",
            expected=f"at least {number + 1}",
            mend="gather once more, with the sums so far as context",
        )
    return context[number]


def _key(sums: Sequence[SectionSums]) -> tuple[int | str, ...]:
    """What tells places of different batches apart."""
    return (len(sums), *sums[0].features.shape, str(sums[0].features.device))


def _full_precision(x: Tensor) -> torch.autocast:
    return torch.autocast(device_type=x.device.type, enabled=False)
