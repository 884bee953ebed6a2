"""What clicks are worth: simulated corrections of phantom sections in a foreign stain, and of real skin.

    python bench/correction_curves.py prepare --out curves --laid laid/A1-1-6.7.npz
    python bench/correction_curves.py choose --out curves
    python bench/correction_curves.py curves --out curves
    python bench/correction_curves.py speed

``prepare`` draws phantom sections, makes their stain that of another laboratory, has the bundled model segment them and
keeps their region graphs; ``--laid`` adds a section of ``skin-pas`` laid together (``bench/carry_over.py lay``).
Sections ``choose-…`` and the laid one are for choosing settings (``choose``), ``report-…`` for the figures.
``curves`` simulates clicks with every arm. A click names the node under a wrong pixel after the truth of that pixel:

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np
from bench.skin_pas import LENIENT, TISSUES, Laid
from numpy.typing import NDArray

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
LAID = "skin-pas"
REPEATS = {"largest": 1, "random": 2, "mistaken": 2}
"""Simulations of a section that differ in their random draws."""
WIDTHS = (1.2, 1.4, 1.6)
MAIN = ("part", "looks", "looks and relations")
"""Arms that are tried with random and mistaken clicks, too."""
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


def next_click(
    section: Section, tissue: Ints, clicked: Sequence[int], order: str, random: Any
) -> tuple[int, int] | None:
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


def prepare(out: Path, laid: Path | None, *, side: int, device: str) -> None:
    """Draw sections, have them segmented, keep graph and truth; what is there stays."""
    from ntrm.evaluation.robustness import DEGRADATIONS
    from ntrm.inference.predictor import Predictor
    from ntrm.models.hub import load
    from ntrm.phantom.generate import plan_sections
    from ntrm.phantom.layout import lay_slide
    from ntrm.phantom.render import render

    predictor = Predictor(load("bundled"), device, batch=4)
    mpp = level_resolution("10x")
    if laid is not None:
        section = Laid.read(laid)
        keep(out / LAID, predictor, section.image, section.truth, Resolution.square(section.mpp), side)
    for use, seed in SEEDS.items():
        for planned in plan_sections(SECTIONS, seed, NORMAL):
            slide = lay_slide(planned.seed, mpp.x, planned.cancer, 1)
            if slide.mask.size > MOST_PIXELS:
                continue
            image = render(slide.fine, mpp.x, planned.seed, stain=planned.stain(seed))
            for shift in SHIFTS:
                name = out / f"{use}-{planned.name}-{shift}"
                keep(name, predictor, DEGRADATIONS[shift](image), slide.mask, mpp, side)


def keep(path: Path, predictor: Any, image: Mask, truth: Mask, mpp: Resolution, side: int) -> None:
    """Segment a section and write its graph and truth."""
    from ntrm.correction.features import region_graph
    from ntrm.inference.sliding_window import stitch

    graph, mask = path.with_suffix(".graph.npz"), path.with_suffix(".truth.npz")
    if mask.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    made = region_graph(predictor, image, stitch(predictor, image).mask, mpp, side=side)
    made.save(graph)
    np.savez_compressed(mask, truth=truth)
    print(f"{path.name}: {len(made)} nodes, {len(made.edges)} edges, {time.perf_counter() - started:.1f} s", flush=True)


def sections_of(folder: Path, use: str) -> dict[str, Section]:
    """The sections that ``prepare`` kept, whose names begin so."""
    found = {}
    for path in sorted(folder.glob(f"{use}*.truth.npz")):
        name = path.name.removesuffix(".truth.npz")
        with np.load(path) as kept:
            of = Truth.of_skin_pas if name == LAID else Truth.of_phantom
            truth = of(kept["truth"])
        found[name] = Section(RegionGraph.read(folder / f"{name}.graph.npz", SKIN), truth)
    return found


def curve(section: Section, how: str, order: str, settings: Settings) -> NDArray[np.float64]:
    """(clicks, 3) means over the repeats: IoU, IoU outside the clicked nodes, share broken."""
    runs = [simulate(section, how, order, settings, seed) for seed in range(REPEATS[order])]
    return np.array([[list(row.values()) for row in run] for run in runs]).mean(axis=0)


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """95 % of the mean over sections, by bootstrap."""
    drawn = np.random.default_rng(0).integers(0, len(values), (2000, len(values)))
    low, high = np.percentile(values[drawn].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def choose(folder: Path) -> None:
    """Curves of the sections for choosing, by the width of the kernel."""
    uses = {"phantom": sections_of(folder, "choose"), LAID: sections_of(folder, LAID)}
    for how in ("looks", "looks and relations"):
        for width in WIDTHS:
            for use, sections in uses.items():
                means = [curve(section, how, "largest", Settings(width=width)) for section in sections.values()]
                print(f"| {how} | {width} | {use} | {row_of(np.mean(means, axis=0)[:, 0])} |", flush=True)


def row_of(values: Sequence[float]) -> str:
    """Cells of a table."""
    return " | ".join(f"{value:.3f}".lstrip("0") for value in values)


def curves(folder: Path) -> None:
    """The tables, and everything as ``curves.json``."""
    found: dict[str, Any] = {}
    for use in (LAID, "report"):
        sections = sections_of(folder, use)
        for order in ORDERS:
            arms = ARMS if order == "largest" else MAIN
            by_arm = {how: np.stack([curve(s, how, order, Settings()) for s in sections.values()]) for how in arms}
            found[f"{use} {order}"] = {how: values.tolist() for how, values in by_arm.items()}
            for how, values in by_arm.items():
                for column, score in enumerate(("IoU", "outside", "broken")):
                    print(
                        f"| {use} | {order} | {how} | {score} | {row_of(values.mean(axis=0)[:, column])} |", flush=True
                    )
            if len(sections) > 1:
                compare(by_arm)
    (folder / "curves.json").write_text(json.dumps({"clicks": CLICKS, "curves": found}))


def compare(by_arm: dict[str, NDArray[np.float64]]) -> None:
    """Paired differences of the mean IoU, with intervals over sections."""
    for one, other in (("looks", "part"), ("looks and relations", "looks")):
        away = by_arm[one][:, :, 0] - by_arm[other][:, :, 0]  # (sections, clicks)
        cells = [difference(away[:, at]) for at in range(len(CLICKS))]
        print(f"  {one} − {other}: {'; '.join(cells)}", flush=True)


def difference(values: NDArray[np.float64]) -> str:
    """Mean and interval."""
    low, high = interval(values)
    return f"{values.mean():+.3f} ({low:+.3f}, {high:+.3f})"


def speed(nodes: int = 10_000, clicks: int = 32) -> None:
    """Seconds for one spreading over a random graph."""
    random, side = np.random.default_rng(0), round(nodes**0.5)
    graph = random_graph(random, side)
    given = {int(node): int(random.integers(len(SKIN))) for node in random.permutation(side * side)[:clicks]}
    for how in ARMS:
        times = []
        for _ in range(5):
            started = time.perf_counter()
            spread(graph, given, how)
            times.append(time.perf_counter() - started)
        print(f"{how}: {side * side} nodes, {len(graph.edges)} edges, {clicks} clicks: {np.median(times):.3f} s")


def random_graph(random: Any, side: int) -> RegionGraph:
    """Side × side nodes of 16 × 16 pixels with random features of the bundled model's sizes."""
    from ntrm.correction.graph import graph_of
    from ntrm.correction.parts import parts_of

    mask = np.kron(random.integers(0, len(SKIN), (side, side)), np.ones((16, 16))).astype(np.uint8)
    parts = parts_of(mask, SKIN, level_resolution("10x"))
    count = len(parts.table)
    features = {name: random.normal(size=(count, size)).astype(np.float32) for name, size in SIZES.items()}
    wild = random.random((count, len(SKIN))).astype(np.float32)
    return graph_of(parts, SKIN, wild / wild.sum(axis=1, keepdims=True), features)


SIZES = {"related": 64, "last": 16, "colour": 6}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("prepare", "choose", "curves", "speed"))
    parser.add_argument("--out", type=Path, default=Path("curves"))
    parser.add_argument("--laid", type=Path, help="a section of skin-pas laid together at 6.7 µm/px")
    parser.add_argument("--side", type=int, default=16, help="of the cells that regions are divided by, in pixels")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args(arguments)
    steps: dict[str, Callable[[], None]] = {
        "prepare": lambda: prepare(asked.out, asked.laid, side=asked.side, device=asked.device),
        "choose": lambda: choose(asked.out),
        "curves": lambda: curves(asked.out),
        "speed": speed,
    }
    steps[asked.what]()


if __name__ == "__main__":
    main()
