"""What the clicks on a slide say about all of its pixels.

Examples are the pixels that a person named, the latest about each, and those that the network's word stands for. On
slides that are familiar to the network its word counts in full and does not fade: what it has right must not get lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from ntrm.core.arrays import Bytes, Floats, Ints, Singles
from ntrm.core.labels import IGNORE, LabelSchema, Mask
from ntrm.core.threads import thread_map
from ntrm.correct.classifier import WORD, About, Classifier, Examples, fitted, trust_after
from ntrm.correct.pixels import PixelSet
from ntrm.correct.state import State
from ntrm.correct.texture import TILE, Texture, blown_up

MOST_OF_STEP = 200  # Pixels of a lasso or a drawing that are examples, evenly chosen; a click has 29
ANCHORS, SURE = 30, 0.6  # Pixels of a class that the network's word stands for, where it is as sure as this
LEAST = 0.01  # Probability below which all are alike
TRUSTED = 2.0  # What the network's word counts on slides that are familiar to it
PART = 2**15  # Pixels that are ranked at once
STRIDE = 1.5  # Logits by which a leader must lead more where the reach is halved


@dataclass(frozen=True, eq=False)
class Seen:
    """A slide as the engine sees it: its mask, what it looks like, and how sure the network was."""

    schema: LabelSchema
    labels: Mask  # (H, W) what the network called it
    texture: Texture
    sure: Singles | None  # (H, W) confidence of the network; None where there is none
    trusted: bool = False  # Whether the slide is familiar to the network

    @cached_property
    def margin(self) -> Singles:
        """(H, W) by what the network's name leads before all others, as a difference of log-probabilities."""
        if self.sure is None:
            return np.zeros(self.labels.shape, dtype=np.float32)
        other = np.maximum((1 - self.sure) / max(len(self.schema) - 1, 1), LEAST)
        return np.asarray(np.maximum(np.log(np.maximum(self.sure, LEAST) / other), 0.0), dtype=np.float32)

    def word(self, pixels: Ints, steps: int) -> Floats:
        """(n, K) what the network's word adds to the logits of flattened pixels after so many clicks."""
        word = np.zeros((len(pixels), len(self.schema)))
        labels = self.labels.ravel()[pixels]
        known = np.flatnonzero(labels != IGNORE)
        word[known, labels[known]] = self.trust(steps) * self.margin.ravel()[pixels[known]]
        return word

    def trust(self, steps: int) -> float:
        """What its word counts after so many clicks."""
        return TRUSTED if self.trusted else WORD * trust_after(steps)


def examples_of(seen: Seen, state: State) -> Examples:
    """What the steps of a slide say, the latest about each pixel, and what its network stands for."""
    numbers, tissue, taken = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], PixelSet.empty()
    steps = len(state.steps)
    for step, (named, _) in zip(reversed(state.steps), reversed(state.changes), strict=True):
        pixels = _spread_out(named - taken, seen.texture)
        taken = taken | named
        numbers.append(pixels)
        tissue.append(np.full(len(pixels), seen.schema.index(step.tissue or "")))
    weight = [np.ones(sum(map(len, numbers)))]
    for index, pixels in _anchors(seen).items():
        own = pixels[~taken.holds(pixels)]
        numbers.append(own)
        tissue.append(np.full(len(own), index))
        weight.append(np.full(len(own), 1.0 if seen.trusted else trust_after(steps)))
    every = np.concatenate(numbers)
    word = seen.word(every, steps)
    return Examples(seen.texture.at(every), word, np.concatenate(tissue).astype(np.int64), np.concatenate(weight))


def _spread_out(named: PixelSet, texture: Texture) -> Ints:
    """Some pixels of a set that have features, evenly over it."""
    ends = np.cumsum(named.length)
    rank = np.unique(np.linspace(0, max(named.pixels - 1, 0), MOST_OF_STEP).astype(np.int64))[: named.pixels]
    stretch = np.searchsorted(ends, rank, "right")
    pixels = named.start[stretch] + rank - (ends - named.length)[stretch]
    row, column = np.divmod(pixels, texture.shape[1])
    return np.asarray(pixels[texture.known[row // TILE, column // TILE]])


@lru_cache(2)
def _anchors(seen: Seen) -> dict[int, Ints]:
    """Pixels of each class of which the network is sure, drawn once."""
    if seen.sure is None:
        return {}
    random, found = np.random.default_rng(0), {}
    sure = (seen.sure > SURE) & seen.texture.is_known()
    for index in range(len(seen.schema)):
        pixels = np.flatnonzero(sure & (seen.labels == index))
        if len(pixels):
            found[index] = np.sort(random.choice(pixels, min(ANCHORS, len(pixels)), replace=False))
    return found


def learn(slides: Sequence[tuple[Seen, State]]) -> Classifier:
    """From the clicks on some slides of one schema, each standardised by itself."""
    first = slides[0][0]
    examples = Examples.together([examples_of(seen, state) for seen, state in slides])
    named = {index for _, state in slides for index, pixels in state.tissue.items() if pixels & state.by_hand}
    about = About(
        zooms=first.texture.zooms,
        classes=first.schema.names,
        named=tuple(first.schema.names[index] for index in sorted(named)),
    )
    # A network has a word for each class; without one there are only those that were named.
    every = np.arange(len(about.classes)) if any(seen.sure is not None for seen, _ in slides) else None
    return Classifier(about, fitted(examples, np.unique(examples.tissue) if every is None else every))


class Ranking(NamedTuple):
    """The two leading classes of each pixel with features (h, w)."""

    best: Bytes  # The leader
    lead: Singles  # Its logit less that of the second
    behind: Singles  # How far the class that was asked about lies behind the leader


def ranking(seen: Seen, classifier: Classifier, asked: int, steps: int) -> Ranking:
    """Who leads in a slide after what clicks say and its network, whose word fades with the clicks on this slide."""
    step, shape = seen.texture.step, seen.texture.values.shape[:2]
    names = classifier.about.classes if seen.sure is not None else classifier.about.named
    labels, margin = (each[::step, ::step].ravel() for each in (seen.labels, seen.margin))
    trust = np.float32(seen.trust(steps))
    best = np.zeros(len(labels), dtype=np.uint8)
    lead, behind = (np.zeros(len(labels), dtype=np.float32) for _ in range(2))

    def rank(part: slice) -> None:
        logits, own = classifier.logits(seen.texture, part), labels[part]
        known = np.flatnonzero(own < len(seen.schema))
        logits[own[known], known] += trust * margin[part][known]
        first, second = (np.full(len(own), -np.inf, dtype=np.float32) for _ in range(2))
        for index in (seen.schema.index(name) for name in names):
            best[part][logits[index] > first] = index
            np.maximum(second, np.minimum(first, logits[index]), out=second)
            np.maximum(first, logits[index], out=first)
        lead[part], behind[part] = first - second, first - logits[asked]

    # Parts that stay in the processor's cache.
    deque(thread_map(rank, [slice(at, at + PART) for at in range(0, len(labels), PART)]), 0)
    return Ranking(best.reshape(shape), lead.reshape(shape), behind.reshape(shape))


class Asked(NamedTuple):
    """What a name is to be carried on by."""

    tissue: int
    reach: float
    steps: int  # Clicks on the slide so far


def called(seen: Seen, now: Mask, classifier: Classifier, click: Asked) -> Mask:
    """(H, W) new names of the pixels that are called ``now``: the leader's where a person gave that name.

    Below a reach of 1 the leader must lead by more, beyond it the class that was asked about may lie behind: so the
    followers of a smaller reach are among those of a larger one.
    """
    (asked, reach, steps), step = click, seen.texture.step
    ranked = ranking(seen, classifier, asked, steps)
    limit = STRIDE * np.log2(1 / reach)
    follows = np.isin(ranked.best, [seen.schema.index(name) for name in classifier.about.named]) & (ranked.lead > limit)
    beyond = ~follows & (ranked.behind < -limit)
    new = np.where(beyond, np.uint8(asked), ranked.best)
    return np.where(blown_up(follows | beyond, step, now.shape), blown_up(new, step, now.shape), now)
