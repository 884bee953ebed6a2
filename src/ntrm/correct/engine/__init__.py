"""What finds the parts of a slide and carries the names that a person gives on to others.

Nothing outside this package knows how: a slide's corrections ask ``PARTS``, and write down the pixels it proposes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ntrm.core.arrays import Ints
from ntrm.core.errors import RefusedError
from ntrm.core.labels import LabelSchema
from ntrm.correct.log import Step
from ntrm.correct.pixels import PixelSet
from ntrm.correct.units import Units

DEFAULT = "looks and relations"  # What logs call this way to carry names on


class NotReadyError(RefusedError):
    """The engine has not been prepared for the slide."""


def no_units() -> Ints:
    """(0,)."""
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Proposal:
    """What would change if a person accepts."""

    click: Step  # What the person said, without what comes of it
    units: Units  # What is numbered here: parts, or regions
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
    def pixels(self) -> int:
        """All that change."""
        return self.named.pixels + sum(each.pixels for each in self.followed.values())

    def step(self, schema: LabelSchema, pixel_mm2: float) -> Step:
        """The click with its pixels, for the log."""
        followed = {schema.names[index]: pixels.text for index, pixels in sorted(self.followed.items())}
        area_mm2 = self.pixels * pixel_mm2
        return replace(self.click, named=self.named.text, followed=followed, regions=self.regions, area_mm2=area_mm2)


class Review(NamedTuple):
    """Regions in the order in which a person looks at them."""

    order: str
    first: Ints  # (R,) a pixel of each, flattened
    tissue: Ints  # (R,) what the network called it
    pixels: Ints  # (R,) how many it has
