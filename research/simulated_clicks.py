"""A section whose truth is known, and a person who clicks on what is wrong in it.

A click names the node under a wrong pixel after the truth of that pixel. No node is clicked twice. After each click the
names are spread anew over the whole section. Which wrong pixel:

- ``largest``: the middle of the largest wrong region, wrong pixels of one true tissue that are connected;
- ``random``: any wrong pixel, though most of its node may be right;
- ``parts``: a node that is mostly wrong, named after most of its pixels; its chance is what that mends;
- ``mistaken``: as ``largest``, but each click has a chance of one in twenty to give a wrong name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from research.skin_pas import LENIENT, TISSUES

from ntrm.core.labels import IGNORE, SKIN, LabelSchema, Tissue
from ntrm.correct.engine import DEFAULT
from ntrm.correct.engine.graph import RegionGraph
from ntrm.correct.engine.spread import Settings, looks_alike, renamed, spread, walks
from ntrm.metrics.graph_agreement import graph_agreement
from ntrm.regions.cancers import cancer_types

ARMS = ("part", "region", "looks", "relations", DEFAULT)
"""Nothing follows; the connected region, of two clicks the nearer one; what looks alike; what touches; the product's,
which without edges is ``looks``, its matched control."""
CLICKS = (0, 1, 2, 4, 8, 15, 32)
ORDERS = ("largest", "parts", "random", "mistaken")
MISTAKES = 0.05
SCORES = ("iou", "outside", "broken", "cancers", "graph")
"""Mean IoU; the same outside the clicked nodes; share of the pixels that were right and are not now; whether exactly
the right cancers are named, by the product's rule; F1 of the edges of the section graph."""

Mask = NDArray[np.uint8]
Ints = NDArray[np.int64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Names:
    """True tissues in the words of a model."""

    tissues: tuple[str, ...]
    right: tuple[tuple[str, ...], ...]
    """The classes that are right for each tissue; the first is what a person calls it."""

    @classmethod
    def same(cls, schema: LabelSchema) -> Names:
        """The model's own."""
        return cls(schema.names, tuple((name,) for name in schema.names))


SKIN_PAS = Names(TISSUES, tuple(LENIENT[tissue] for tissue in TISSUES))
GLANDS = Names(
    ("background", "benign gland", "malignant gland"),
    (("background",), ("benign",), ("gleason 4", "gleason 3", "gleason 5")),
)
"""GlaS in the words of a model of Gleason."""
CORES = Names(
    ("background", "benign", "gleason 3", "gleason 4", "gleason 5"),
    (("background",), ("benign gland",), ("malignant gland",), ("malignant gland",), ("malignant gland",)),
)
"""Gleason in the words of a model of GlaS, which tells no grades."""
_EPITHELIUM, _CANCER = ("GLD", "EPI", "FOL"), ("BCC", "SCC", "IEC")
_STROMA = ("RET", "PAP", "HYP", "INF", "KER", "BKG")
GLANDS_AS_SKIN = Names(GLANDS.tissues, (_STROMA, _EPITHELIUM, _CANCER))
CORES_AS_SKIN = Names(CORES.tissues, (("BKG",), (*_STROMA[:-1], *_EPITHELIUM), _CANCER, _CANCER, _CANCER))
"""The same in the words of a model of skin; stroma and benign glands are one in Gleason."""


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

    @classmethod
    def of_phantom(cls, mask: Mask) -> Truth:
        return cls.of(mask, Names.same(SKIN), SKIN)

    @classmethod
    def of_skin_pas(cls, mask: Mask) -> Truth:
        return cls.of(mask, SKIN_PAS, SKIN)

    def mean_iou(self, pixels: Counts) -> float:
        """Mean IoU over the true tissues that occur, from pixels (T, K) by true tissue and predicted class."""
        right = (pixels * self.right).sum(axis=1)
        called = self.right.astype(np.int64) @ pixels.sum(axis=0)
        union, occurs = pixels.sum(axis=1) + called - right, pixels.sum(axis=1) > 0
        return float((right[occurs] / union[occurs]).mean()) if occurs.any() else float("nan")

    def in_its_words(self, tissue: NDArray[np.integer]) -> Mask:
        """Predicted classes as true tissues; T where a class is right for none."""
        table = np.where(self.right.any(axis=0), self.right.argmax(axis=0), len(self.name))
        return np.append(table, np.full(256 - len(table), IGNORE)).astype(np.uint8)[tissue]


class Section:
    """A section under correction; everything is counted by node."""

    def __init__(self, graph: RegionGraph, truth: Truth, there: NDArray[np.bool_] | None = None) -> None:
        self.graph, self.truth, self.there = graph, truth, there
        self.nodes = graph.runs.dense()
        self.known = (truth.mask != IGNORE) & (self.nodes >= 0)
        tissues = len(truth.name)
        cells = self.nodes[self.known].astype(np.int64) * tissues + truth.mask[self.known]
        self.pixels = np.bincount(cells, minlength=len(graph) * tissues).reshape(len(graph), tissues)  # (N, T)

    def confusion(self, tissue: Ints, without: Sequence[int] = ()) -> Counts:
        """(T, K) pixels by true tissue and class, nodes in ``without`` left out."""
        counted = self.pixels.copy()
        counted[list(without)] = 0
        table = np.zeros((len(self.graph.schema), counted.shape[1]), dtype=np.int64)
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

    def best(self) -> Ints:
        """(N,) the best single name of every part: what clicks on all of them could reach."""
        right = self.pixels @ self.truth.right.astype(np.int64)  # (N, K)
        own = np.arange(len(self.graph))
        better = right.max(axis=1) > right[own, self.graph.tissue]
        return np.where(better, right.argmax(axis=1), self.graph.tissue)

    @cached_property
    def cancers(self) -> frozenset[str]:
        """What the truth has of them; none where its tissues are not the skin's."""
        if self.truth.right.shape[0] != len(SKIN):
            return frozenset()
        return _present(self.truth.mask, None, self.graph)

    def cancers_right(self, tissue: Ints) -> float:
        """1 if exactly the true cancers are named. What was renamed counts as certain: a person vouches for it."""
        own = np.arange(len(self.graph))
        sure = np.where(tissue == self.graph.tissue, self.graph.probabilities[own, self.graph.tissue], 1.0)
        confidence = np.append(sure, 0.0).astype(np.float32)[self.nodes].clip(0, 1)
        mask = self.graph.mask(tissue)
        if self.there is not None:
            mask = np.where(self.there, mask, IGNORE).astype(np.uint8)
        return float(_present(mask, confidence, self.graph) == self.cancers)

    def graph_f1(self, tissue: Ints) -> float:
        """F1 of the edges of the section graph, in the words of the truth."""
        truth = np.where(self.known, self.truth.mask, IGNORE)
        predicted = self.truth.in_its_words(self.graph.mask(tissue))
        found = graph_agreement(truth, predicted, _numbered(len(self.truth.name) + 1), self.graph.resolution)
        return 1.0 if found.f1 is None else found.f1

    def scores(self, tissue: Ints, clicked: Sequence[int] = ()) -> dict[str, float]:
        """All of ``SCORES``."""
        return {
            "iou": self.truth.mean_iou(self.confusion(tissue)),
            "outside": self.truth.mean_iou(self.confusion(tissue, clicked)),
            "broken": self.broken(tissue),
            "cancers": self.cancers_right(tissue),
            "graph": self.graph_f1(tissue),
        }


def _present(mask: Mask, confidence: NDArray[np.float32] | None, graph: RegionGraph) -> frozenset[str]:
    found = cancer_types(mask, confidence, graph.schema, graph.resolution)
    return frozenset(finding.name for finding in found if finding.present)


def _numbered(count: int) -> LabelSchema:
    """Classes without a meaning."""
    return LabelSchema(tuple(Tissue(index, str(index), "", (index, 0, 0)) for index in range(count)))


def read_section(folder: Path, name: str, schema: LabelSchema, names: Names) -> Section:
    """The graph and the truth of a section that were kept under ``name``."""
    with np.load(folder / f"{name}.truth.npz") as kept:
        truth = Truth.of(kept["truth"], names, schema)
        there = kept.get("there")
    return Section(RegionGraph.read(folder / f"{name}.graph.npz", schema), truth, there)


def next_click(
    section: Section, tissue: Ints, clicked: Sequence[int], order: str, random: Any
) -> tuple[int, int] | None:
    """The node that is clicked next, and the class that it is given; None where all is right."""
    if order == "parts":
        return wrong_part(section, tissue, clicked, random)
    wrong = section.wrong(tissue, clicked)
    if not wrong.any():
        return None
    row, column = random_place(wrong, random) if order == "random" else middle_of_largest(wrong)
    name = int(section.truth.name[wrong[row, column] - 1])
    if order == "mistaken" and random.random() < MISTAKES:
        name = int(random.choice([int(other) for other in np.unique(section.truth.name) if other != name]))
    return int(section.nodes[row, column]), name


def wrong_part(section: Section, tissue: Ints, clicked: Sequence[int], random: Any) -> tuple[int, int] | None:
    """A node that has a better name, and that name."""
    most = section.pixels.argmax(axis=1)
    right = (section.pixels * section.truth.right[:, tissue].T).sum(axis=1)
    mended = np.maximum(section.pixels.max(axis=1) - right, 0)
    mended[list(clicked)] = 0
    if not mended.any():
        return None
    node = int(random.choice(len(mended), p=mended / mended.sum()))
    return node, int(section.truth.name[most[node]])


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


def simulate(section: Section, how: str, order: str, settings: Settings, seed: int = 0) -> list[dict[str, float]]:
    """The scores after each number of ``CLICKS``."""
    random, clicks, found = np.random.default_rng(seed), dict[int, int](), []
    tissue = section.graph.tissue
    for number in range(max(CLICKS) + 1):
        if number in CLICKS:
            found.append(section.scores(tissue, list(clicks)))
        click = next_click(section, tissue, list(clicks), order, random)
        if click is not None:
            clicks[click[0]] = click[1]
            tissue = names_after(section.graph, clicks, how, settings)
    return found


def names_after(graph: RegionGraph, clicks: Mapping[int, int], how: str, settings: Settings | None = None) -> Ints:
    """(N,) names of all nodes after ``clicks``, the class given to each clicked node."""
    if how not in ARMS:
        raise SystemExit(f"unknown arm {how}: one of {', '.join(ARMS)}")
    settings, nodes = settings or Settings(), np.array(sorted(clicks), dtype=np.int64)
    given = np.array([clicks[node] for node in nodes.tolist()], dtype=np.int64)
    if how == DEFAULT:
        return spread(graph, clicks, settings).tissue
    if how == "part" or not len(nodes):
        tissue = graph.tissue.copy()
    elif how == "region":
        tissue = _of_regions(graph, nodes, given)
    else:
        affinity = looks_alike(graph, nodes, settings) if how == "looks" else walks(graph, nodes, settings.steps)
        tissue = renamed(graph, nodes, given, affinity, settings)
    tissue[nodes] = given
    return tissue


def _of_regions(graph: RegionGraph, nodes: Ints, given: Ints) -> Ints:
    """(N,) the name of the nearest click in a node's region, or its own."""
    step = np.array([graph.resolution.y, graph.resolution.x])
    away = np.linalg.norm((graph.centroid[:, None] - graph.centroid[nodes][None]) * step, axis=2)
    away[graph.region[:, None] != graph.region[nodes][None]] = np.inf
    return np.where(np.isfinite(away.min(axis=1)), given[away.argmin(axis=1)], graph.tissue)
