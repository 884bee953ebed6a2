"""The corrections of a mask: the steps of the log, each applied on top of the ones before.

What a person named or drew is never renamed by what follows from later clicks, only by a person again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Ints
from ntrm.core.labels import LabelSchema, Mask
from ntrm.correct.log import Log, Place, Step
from ntrm.correct.pixels import PixelSet, union


@dataclass(frozen=True, eq=False)
class State:
    """Corrected pixels by their present class, and how they got it."""

    shape: tuple[int, int]
    schema: LabelSchema
    tissue: Mapping[int, PixelSet] = field(default_factory=dict)
    """By class: pixels that a person named or confirmed, and those that followed."""
    by_hand: PixelSet = field(default_factory=PixelSet.empty)  # Pixels that a person named, confirmed or drew
    followed: PixelSet = field(default_factory=PixelSet.empty)  # Pixels that followed from these
    clicks: tuple[tuple[Place, int], ...] = ()  # Places with the class that they were given, in their order
    left_out: tuple[Place, ...] = ()  # Parts that must not follow
    steps: tuple[Step, ...] = ()  # Those that count
    changes: tuple[tuple[PixelSet, PixelSet], ...] = ()  # What each of them named, and what followed from it

    @property
    def regions(self) -> int:
        """Parts that were named or that followed, and areas that were drawn."""
        return sum(max(step.regions, 1) for step in self.steps)

    def paint(self, labels: Mask, top: int = 0) -> Mask:
        """Rows of the network's mask (h, W), from row ``top`` on, with the corrections."""
        out = np.array(labels, dtype=np.uint8)
        for index, pixels in self.tissue.items():
            out[pixels.rows(top, len(out), self.shape[1])] = index
        return out

    def at(self, rows: Ints, columns: Ints, labels: Mask) -> Mask:
        """The network's labels (n, m) at these rows and columns of the mask, with the corrections."""
        height, width = self.shape
        rows, columns = rows[:, None], columns[None]
        inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
        return np.asarray(self.names_at(np.where(inside, rows * width + columns, -1), labels))

    def names_at(self, first: Ints, network: NDArray[Any]) -> NDArray[Any]:
        """Classes at flattened pixels of any shape, of which the network said ``network``; -1 lies outside."""
        names = network.copy()
        for index, pixels in self.tissue.items():
            names[pixels.holds(first)] = index
        return names

    def with_step(self, step: Step) -> State:
        """These corrections and one more step; not for undo and redo."""
        size = self.shape[0] * self.shape[1]
        given = self.schema.index(step.tissue or "")
        named = PixelSet.parse(step.named, size)
        followed = {self.schema.index(name): PixelSet.parse(text, size) for name, text in step.followed.items()}
        tissue = dict(self.tissue)
        for index, pixels in (*followed.items(), (given, named)):
            tissue = {other: before - pixels for other, before in tissue.items()}
            tissue[index] = tissue.get(index, PixelSet.empty()) | pixels
        clicks = tuple((place, given) for place in step.places) if step.action == "name" else ()
        return replace(
            self,
            tissue={index: pixels for index, pixels in tissue.items() if pixels},
            by_hand=self.by_hand | named,
            followed=union([self.followed, *followed.values()]) - named,  # What followed may follow another click
            clicks=(*self.clicks, *clicks),
            left_out=(*self.left_out, *step.left_out),
            steps=(*self.steps, step),
            changes=(*self.changes, (named, union(followed.values()))),
        )


def state_of(log: Log, schema: LabelSchema, shape: tuple[int, int], known: Iterable[State] = ()) -> State:
    """What the steps of a log come to on its mask; starts from the ``known`` state that has the most of them."""
    active = log.active
    before = [State(shape, schema), *(each for each in known if active[: len(each.steps)] == each.steps)]
    state = max(before, key=lambda each: len(each.steps))
    for step in active[len(state.steps) :]:
        state = state.with_step(step)
    return state
