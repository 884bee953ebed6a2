"""What finds the parts of a slide and carries the names that a person gives on to others.

Nothing outside this package knows how: a slide's corrections ask ``PARTS``, and write down the pixels it proposes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ntrm.core.arrays import Ints
from ntrm.core.errors import RefusedError
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.correct.log import NAME, Place, Step
from ntrm.correct.pixels import PixelSet
from ntrm.correct.units import Units

DEFAULT = "looks and relations"  # What logs call this way to carry names on


def no_units() -> Ints:
    """(0,)."""
    return np.zeros(0, dtype=np.int64)


def clicked(places: Sequence[Place], tissue: str, *, spread: bool = True, reach: float = 1.0, **more: Any) -> Step:
    """A person names the parts at some places; ``spread``: the name is carried on."""
    how: dict[str, Any] = {"spread": DEFAULT, "reach": float(reach)} if spread else {}
    return Step(action=NAME, tissue=tissue, places=tuple(places), **how, **more)


class NotReadyError(RefusedError):
    """The engine has not been prepared for the slide."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """What would change if a person accepts."""

    schema: LabelSchema
    resolution: Resolution
    click: Step  # What a person says about some parts, see ``clicked``
    units: Units  # What is numbered here: parts, or regions where the parts are not known
    nodes: Ints  # Units that are named
    named: PixelSet
    followers: Ints = field(default_factory=no_units)
    """Units that would follow; without those that a person named before."""
    names: Ints = field(default_factory=no_units)  # Their new classes
    followed: dict[int, PixelSet] = field(default_factory=dict)
    """By class: their pixels, without those that a person named or drew before."""
    why: Callable[[int], str] = lambda _: ""  # Says why a unit follows

    @property
    def regions(self) -> int:
        """Units that change."""
        return len(self.nodes) + len(self.followers)

    @property
    def area_mm2(self) -> float:
        """That of all these pixels."""
        pixels = self.named.pixels + sum(each.pixels for each in self.followed.values())
        return pixels * self.resolution.pixel_area_um2 / 1e6

    def step(self, origin: str = "") -> Step:
        """The click with its pixels, for the log."""
        names = self.schema.names
        return replace(
            self.click,
            named=self.named.text,
            followed={names[index]: pixels.text for index, pixels in sorted(self.followed.items())},
            regions=self.regions,
            area_mm2=self.area_mm2,
            origin=origin,
        )


class Review(NamedTuple):
    """Regions in the order in which a person looks at them."""

    order: str
    first: Ints  # (R,) a pixel of each, flattened
    tissue: Ints  # (R,) what the network called it
    pixels: Ints  # (R,) how many it has
