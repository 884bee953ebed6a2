"""Whole sections in every step: which sections, and which of their windows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import UsageError, check_number
from ntrm.data.tensors import TileDataset
from ntrm.training.batches import StepPlan, checked_step

_SECTIONS = 3  # what a seed is used for, beside order, chance and dropout


@dataclass(frozen=True)
class SectionPlan(StepPlan):
    """Steps of ``sections`` sections with ``batch / sections`` windows each, one section after the other.

    In an epoch a section comes as often as its windows fill such a group, at least once: large sections come more
    often, and each of their windows as often as those of others. Groups are drawn anew in every epoch. One that is not
    full repeats windows of its section, which augmentation makes different. A section's windows stay in one process:
    of the sections of a step, process ``rank`` has ``[rank::world]``.

    >>> plan = SectionPlan(tiles=10, batch=4, seed=0, sizes=(8, 2), sections=2)
    >>> plan.steps_per_epoch, plan.windows
    (2, 2)
    """

    sizes: tuple[int, ...] = ()
    """Windows of each section; the windows of all sections are numbered one section after the other."""
    sections: int = 1
    """Sections per step over all processes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("sections of a step", self.sections, 1, 2**20, whole=True)
        if self.batch % self.sections or self.sections % self.world:
            raise UsageError(
                "sections cannot be shared evenly",
                got=f"batch {self.batch} of {self.sections} sections over {self.world} processes",
                expected="a batch that is a multiple of sections, and sections of processes",
                mend=f"set sections={-(-self.sections // self.world) * self.world} and a multiple of it as batch",
            )
        if not self.sizes or min(self.sizes) < 1 or sum(self.sizes) != self.tiles:
            raise UsageError(
                "sections and windows do not fit",
                got=f"{self.tiles} windows, sections of {self.sizes[:5]}",
                expected="sections of one window or more that make up all",
            )

    @property
    def windows(self) -> int:
        """Windows of a section in a step."""
        return self.batch // self.sections

    @property
    def groups(self) -> tuple[int, ...]:
        """Which section of this process's share of a step each window belongs to: the same in every step."""
        return tuple(number for number in range(self.sections // self.world) for _ in range(self.windows))

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch, at least one."""
        visits = sum(-(-size // self.windows) for size in self.sizes)
        return max(1, visits // self.sections)

    def indices(self, step: int) -> list[int]:
        """Windows of this process in a step, section after section."""
        epoch, place = divmod(checked_step(step), self.steps_per_epoch)
        order = _epoch_groups(self.sizes, self.windows, self.sections, self.seed, epoch)
        joined = order[place * self.sections : (place + 1) * self.sections]  # (sections, windows)
        share: list[int] = joined[self.rank :: self.world].ravel().tolist()
        return share


@lru_cache(maxsize=4)
def _epoch_groups(sizes: tuple[int, ...], windows: int, sections: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """(groups, windows) of one epoch in their order, repeated to fill a step; kept, since every step of it asks."""
    rng = np.random.default_rng([seed, _SECTIONS, epoch])
    groups, start = [], 0
    for size in sizes:
        visits = -(-size // windows)
        order = np.resize(start + rng.permutation(size), visits * windows)
        groups.append(order.reshape(visits, windows))
        start += size
    shuffled = np.concatenate(groups)[rng.permutation(sum(map(len, groups)))]
    return np.resize(shuffled, (max(len(shuffled), sections), windows))


def section_sizes(tiles: TileDataset) -> tuple[int, ...]:
    """Windows of each section, in the order of the windows."""
    return tuple(np.bincount(section_numbers(tiles)).tolist())


def section_numbers(tiles: TileDataset) -> list[int]:
    """The section of each window, counted from 0 in their order."""
    known: dict[str, int] = {}
    return [known.setdefault(place.case.name, len(known)) for place in tiles.places]
