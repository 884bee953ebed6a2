"""What clicks are worth: simulated corrections of phantom sections in a foreign stain, and of real skin.

    python bench/correction_curves.py prepare --out curves --laid laid/A1-1-6.7.npz
    python bench/correction_curves.py curves --out curves
    python bench/correction_curves.py speed

``prepare`` draws phantom sections, makes their stain that of another laboratory, has the bundled model segment them and
keeps their region graphs; ``--laid`` adds a section of ``skin-pas`` laid together (``bench/carry_over.py lay``).
``curves`` simulates clicks. A click names the node under a wrong pixel after the truth of that pixel:

- ``largest``: the middle of the largest wrong region, wrong pixels of one true tissue that are connected;
- ``random``: any wrong pixel;
- ``mistaken``: as ``largest``, but each click has a chance of one in twenty to give a wrong name.

No node is clicked twice. After each click the names are spread anew over the whole section. Reported is the mean IoU,
the mean IoU over the pixels outside the clicked nodes, and which share of the pixels was right before and is not now.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np
from numpy.typing import NDArray

from bench.skin_pas import LENIENT, TISSUES, Laid
from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution, level_resolution
from ntrm.correction.graph import RegionGraph
from ntrm.correction.spread import ARMS, Settings, spread

CLICKS = (0, 1, 2, 4, 8, 15, 32)
ORDERS = ("largest", "random", "mistaken")
MISTAKES = 0.05
SHIFTS = (0, 1)
"""Stains of another laboratory: the first two of ``ntrm.evaluation.robustness.DEGRADATIONS``."""
NORMAL = 0.25
SEEDS = {"choose": 1901, "report": 1902}
SECTIONS = 8
MOST_PIXELS = 900_000
"""Larger sections are left out, for time."""
NAMES = {"dermis": "RET", "epidermis": "EPI", "keratin": "KER", "background": "BKG"}
"""What a person calls the tissues of ``skin-pas``."""

Mask = NDArray[np.uint8]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Truth:
    """What is known about a section."""

    mask: Mask
    """(H, W) index of a true tissue; ignore where nothing is known."""
    right: NDArray[np.bool_]
    """(T, K) which predicted classes are right for a true tissue."""
    name: Ints
    """(T,) the class that a person names."""

    @classmethod
    def of_phantom(cls, mask: Mask) -> Truth:
        return cls(mask, np.eye(len(SKIN), dtype=bool), np.arange(len(SKIN)))

    @classmethod
    def of_skin_pas(cls, mask: Mask) -> Truth:
        right = np.array([[name in LENIENT[tissue] for name in SKIN.names] for tissue in TISSUES])
        return cls(mask, right, np.array([SKIN.index(NAMES[tissue]) for tissue in TISSUES]))

    def mean_iou(self, pixels: NDArray[np.int64]) -> float:
        """Mean IoU over the true tissues that occur, from pixels (T, K) by true tissue and predicted class."""
        right = (pixels * self.right).sum(axis=1)
        called = self.right.astype(np.int64) @ pixels.sum(axis=0)
        union, occurs = pixels.sum(axis=1) + called - right, pixels.sum(axis=1) > 0
        return float((right[occurs] / union[occurs]).mean()) if occurs.any() else float("nan")


class Section:
    """A section under correction; everything is counted by node."""

    def __init__(self, graph: RegionGraph, truth: Truth) -> None:
        self.graph, self.truth = graph, truth
        self.nodes = graph.runs.dense()
        self.known = (truth.mask != IGNORE) & (self.nodes >= 0)
        tissues = len(truth.name)
        cells = self.nodes[self.known].astype(np.int64) * tissues + truth.mask[self.known]
        self.pixels = np.bincount(cells, minlength=len(graph) * tissues).reshape(len(graph), tissues)  # (N, T)

    def confusion(self, tissue: Ints, without: Sequence[int] = ()) -> NDArray[np.int64]:
        """(T, K) pixels by true tissue and class, nodes in ``without`` left out."""
        counted = self.pixels.copy()
        counted[list(without)] = 0
        table = np.zeros((len(SKIN), counted.shape[1]), dtype=np.int64)
        np.add.at(table, tissue, counted)
        return table.T

    def broken(self, tissue: Ints) -> float:
        """Share of the known pixels that were right and are not now."""
        before, now = (self.truth.right[:, of].T for of in (self.graph.tissue, tissue))  # (N, T)
        return float((self.pixels * (before & ~now)).sum() / max(self.pixels.sum(), 1))

    def wrong(self, tissue: Ints, clicked: Sequence[int]) -> Mask:
        """(H, W) true tissue of the wrong pixels outside the clicked nodes, from 1; 0 elsewhere."""
        own = np.append(tissue, 0)[self.nodes]
        seen = np.where(self.known, self.truth.mask, 0)
        wrong = self.known & ~self.truth.right[seen, own]
        wrong &= ~np.append(np.isin(np.arange(len(self.graph)), list(clicked)), True)[self.nodes]
        return np.where(wrong, seen + 1, 0).astype(np.uint8)


def next_click(section: Section, tissue: Ints, clicked: Sequence[int], order: str, random: Any) -> tuple[int, int] | None:
    """The node that is clicked next, and the class that it is given; None where all is right."""
    wrong = section.wrong(tissue, clicked)
    if not wrong.any():
        return None
    row, column = random_place(wrong, random) if order == "random" else middle_of_largest(wrong)
    name = int(section.truth.name[wrong[row, column] - 1])
    if order == "mistaken" and random.random() < MISTAKES:
        name = int(random.choice([int(other) for other in np.unique(section.truth.name) if other != name]))
    return int(section.nodes[row, column]), name


def random_place(wrong: Mask, random: Any) -> tuple[int, int]:
    """Any wrong pixel."""
    row, column = np.nonzero(wrong)
    at = int(random.integers(len(row)))
    return int(row[at]), int(column[at])


def middle_of_largest(wrong: Mask) -> tuple[int, int]:
    """The pixel of the largest connected wrong region that is farthest from its border."""
    from scipy import ndimage

    from ntrm.analysis.runs import components, runs_of

    runs = runs_of(wrong)
    number, count = components(runs, runs.value > 0)
    own = number >= 0
    largest = int(np.bincount(number[own], runs.length[own], count).argmax())
    region = np.repeat(number == largest, runs.length).reshape(wrong.shape)
    box = ndimage.find_objects(region.astype(np.uint8))[0]
    depth = ndimage.distance_transform_edt(np.pad(region[box], 1))[1:-1, 1:-1]
    row, column = np.unravel_index(int(depth.argmax()), depth.shape)
    return int(row) + box[0].start, int(column) + box[1].start


def simulate(section: Section, how: str, order: str, settings: Settings, seed: int = 0) -> list[dict[str, float]]:
    """The scores after each number of ``CLICKS``."""
    random, clicks, found = np.random.default_rng(seed), dict[int, int](), []
    tissue = section.graph.tissue
    for number in range(max(CLICKS) + 1):
        if number in CLICKS:
            found.append(
                {
                    "iou": section.truth.mean_iou(section.confusion(tissue)),
                    "outside": section.truth.mean_iou(section.confusion(tissue, list(clicks))),
                    "broken": section.broken(tissue),
                }
            )
        click = next_click(section, tissue, list(clicks), order, random)
        if click is not None:
            clicks[click[0]] = click[1]
            tissue = spread(section.graph, clicks, how, settings).tissue
    return found
