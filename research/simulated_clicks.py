"""A section whose truth is known, and a person who clicks on what is wrong in it, by the product's own engine.

A click names the pixels around a wrong one after its truth, and what follows is accepted. Which wrong pixel:

- ``largest``: the middle of the largest wrong region, wrong pixels of one true tissue that are connected;
- ``random``: any wrong pixel;
- ``mistaken``: as ``largest``, but each click has a chance of one in twenty to give a wrong name;
- ``suggested``: where the program suggests to look, named after its truth, wrong or not.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from research.skin_pas import LENIENT, TISSUES

from ntrm.core.labels import IGNORE, UNNAMED, LabelSchema, Tissue
from ntrm.correct.engine import ALL, CLICKED, propose, suggestions
from ntrm.correct.learning import Seen
from ntrm.correct.log import Step
from ntrm.correct.pixels import PixelSet
from ntrm.correct.state import State

CLICKS = (0, 1, 2, 4, 8, 15, 24, 32)
ORDERS = ("largest", "random", "mistaken", "suggested")
MISTAKES, RADIUS = 0.05, 3

Mask = NDArray[np.uint8]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Names:
    """True tissues in the words of a model."""

    tissues: tuple[str, ...]
    right: tuple[tuple[str, ...], ...]
    """The classes that are right for each tissue; the first is what a person calls it."""

    @classmethod
    def same(cls, names: Sequence[str]) -> Names:
        """The model's own."""
        return cls(tuple(names), tuple((name,) for name in names))


SKIN_PAS = Names(TISSUES, tuple(LENIENT[tissue] for tissue in TISSUES))
_EPITHELIUM, _CANCER = ("GLD", "EPI", "FOL"), ("BCC", "SCC", "IEC")
_STROMA = ("RET", "PAP", "HYP", "INF", "KER", "BKG")
GLAS = ("background", "benign gland", "malignant gland")
CORES = ("background", "benign", "gleason 3", "gleason 4", "gleason 5")
GLANDS_AS_SKIN = Names(GLAS, (_STROMA, _EPITHELIUM, _CANCER))
CORES_AS_SKIN = Names(CORES, (("BKG",), (*_STROMA[:-1], *_EPITHELIUM), _CANCER, _CANCER, _CANCER))
"""Glands in the words of a model of skin; stroma and benign glands are one in Gleason."""


@dataclass(frozen=True, eq=False)
class Truth:
    """What is known about a section."""

    mask: Mask  # (H, W) index of a true tissue; ignore where nothing is known
    right: NDArray[np.bool_]  # (T, K) which predicted classes are right for a true tissue
    name: Ints  # (T,) the class that a person names

    @classmethod
    def of(cls, mask: Mask, names: Names, schema: LabelSchema) -> Truth:
        """The truth for a model with ``schema``; tissues for which the same is right are one."""
        groups = list(dict.fromkeys(names.right))
        table = np.full(256, IGNORE, dtype=np.uint8)
        table[: len(names.right)] = [groups.index(words) for words in names.right]
        right = np.array([[name in words for name in schema.names] for words in groups])
        return cls(table[mask], right, np.array([schema.index(words[0]) for words in groups]))

    def mean_iou(self, labels: Mask) -> float:
        """Mean IoU over the true tissues that occur."""
        known = self.mask != IGNORE
        count = self.right.shape
        cells = self.mask[known].astype(np.int64) * count[1] + labels[known]
        pixels = np.bincount(cells, minlength=count[0] * count[1]).reshape(count)
        right, called = (pixels * self.right).sum(axis=1), self.right.astype(np.int64) @ pixels.sum(axis=0)
        union, occurs = pixels.sum(axis=1) + called - right, pixels.sum(axis=1) > 0
        return float((right[occurs] / union[occurs]).mean()) if occurs.any() else float("nan")

    def is_right(self, labels: Mask) -> NDArray[np.bool_]:
        """(H, W) where it is known that the class is right."""
        known = self.mask != IGNORE
        return known & self.right[np.where(known, self.mask, 0), np.minimum(labels, self.right.shape[1] - 1)]

    def wrong(self, labels: Mask, clicked: NDArray[np.bool_]) -> Mask:
        """(H, W) true tissue of wrong pixels that nobody named, from 1; 0 elsewhere."""
        wrong = (self.mask != IGNORE) & ~self.is_right(labels) & ~clicked
        return np.where(wrong, self.mask + 1, 0).astype(np.uint8)


def from_nothing(seen: Seen) -> Seen:
    """The slide as it is without a network: all of it is unnamed."""
    index = len(seen.schema)
    classes = (*seen.schema.tissues, Tissue(index, UNNAMED, "", (1, 2, 3)))
    schema = LabelSchema(classes, seen.schema.background, unnamed=UNNAMED)
    labels = np.where(seen.labels == IGNORE, seen.labels, np.uint8(index)).astype(np.uint8)
    return replace(seen, schema=schema, labels=labels, sure=None, trusted=False)


class Score(NamedTuple):
    """After some clicks."""

    iou: float
    broken: float  # Share of the known pixels that were right before the last click and are not now
    seconds: float  # Of the processor, for the last click


def disc(place: tuple[int, int], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """What a click names."""
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    return np.asarray((rows - place[0]) ** 2 + (columns - place[1]) ** 2 <= RADIUS**2)


def next_place(seen: Seen, truth: Truth, state: State, order: str, random: Any) -> tuple[int, int] | None:
    """Where the person clicks; None where all is right."""
    if order == "suggested" and len(state.clicks) > 1:
        places = [each.place for each in suggestions(seen, state)]
        return next((place for place in places if truth.mask[place] != IGNORE), None)
    clicked = state.by_hand.rows(0, *truth.mask.shape)
    wrong = truth.wrong(state.paint(seen.labels), clicked)
    if seen.sure is None and len({tissue for _, tissue in state.clicks}) == 1:  # The second name is another one
        wrong[truth.is_right(np.full_like(seen.labels, state.clicks[0][1]))] = 0
    if not wrong.any():
        return None
    return random_place(wrong, random) if order == "random" else middle_of_largest(wrong)


def simulate(
    seen: Seen, truth: Truth, order: str = "largest", *, seed: int = 0, most: int = 32, revise: str | None = None
) -> tuple[list[Score], State]:
    """The scores after 0, 1, … clicks, and what they came to."""
    random, state = np.random.default_rng(seed), State(truth.mask.shape, seen.schema)
    revise = revise or (ALL if seen.sure is None else CLICKED)
    found = [Score(truth.mean_iou(seen.labels), 0.0, 0.0)]
    for number in range(1, most + 1):
        place = next_place(seen, truth, state, order, random)
        if place is None:
            found.append(found[-1]._replace(broken=0.0))
            continue
        name = int(truth.name[truth.mask[place]])
        if order == "mistaken" and random.random() < MISTAKES:
            name = int(random.choice([int(other) for other in truth.name if other != name]))
        named = PixelSet.of_window(disc(place, truth.mask.shape), 0, 0, truth.mask.shape[1])
        click = Step(number=number, action="name", tissue=seen.schema.names[name], places=(place,), spread="texture")
        before, begun = truth.is_right(state.paint(seen.labels)), time.process_time()
        step = propose(seen, state, click, named, revise=revise).step(seen.schema, 1.0)
        seconds, state = time.process_time() - begun, state.with_step(step)
        now = state.paint(seen.labels)
        broken = (before & ~truth.is_right(now)).sum() / max((truth.mask != IGNORE).sum(), 1)
        found.append(Score(truth.mean_iou(now), float(broken), seconds))
    return found, state


def random_place(wrong: Mask, random: Any) -> tuple[int, int]:
    """Any wrong pixel."""
    row, column = np.nonzero(wrong)
    at = int(random.integers(len(row)))
    return int(row[at]), int(column[at])


def middle_of_largest(wrong: Mask) -> tuple[int, int]:
    """The pixel of the largest connected wrong region that is farthest from its border."""
    from scipy import ndimage

    from ntrm.regions.runs import components, runs_of

    runs = runs_of(wrong)
    number, count = components(runs, runs.value > 0)
    own = number >= 0
    largest = int(np.bincount(number[own], runs.length[own], count).argmax())
    region = np.repeat(number == largest, runs.length).reshape(wrong.shape)
    box = ndimage.find_objects(region.astype(np.uint8))[0]
    depth = ndimage.distance_transform_edt(np.pad(region[box], 1))[1:-1, 1:-1]
    row, column = np.unravel_index(int(depth.argmax()), depth.shape)
    return int(row) + box[0].start, int(column) + box[1].start
