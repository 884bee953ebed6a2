"""What clicks are worth: simulated corrections of sections that a model segments badly.

    python research/correction_curves.py keep --sets choose,report,own --kept curves/v3
    python research/correction_curves.py keep --sets skin-pas --from skin-pas --section A1-1 --kept curves/v3
    python research/correction_curves.py keep --sets glas --from glas --kept curves/v3
    python research/correction_curves.py curves --kept curves/v3 --sets report,own,skin-pas-A1-1 --out tables
    python research/correction_curves.py review --kept curves/v3 --sets report,own,renders

``keep`` segments a set and keeps each section as ``NAME.graph.npz`` and ``NAME.truth.npz``; what is there stays.
``review`` counts the regions that are mostly wrong among the first that a person steps to, by three orders.
``curves`` simulates clicks with every arm (see ``simulated_clicks``), prints a row for each arm and score, means over
the sections, and writes everything as ``SET-ORDER.json``. Differences between arms have intervals by bootstrap over
sections; a phantom section in two stains is one.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np
from numpy.typing import NDArray
from research.simulated_clicks import (
    ARMS,
    CLICKS,
    CORES,
    CORES_AS_SKIN,
    GLANDS,
    GLANDS_AS_SKIN,
    ORDERS,
    SCORES,
    SKIN_PAS,
    Names,
    Section,
    read_section,
    simulate,
)
from research.skin_pas import lay
from tests.reference.region_graph import region_graph

from ntrm.core.io import write_json
from ntrm.core.labels import SKIN, LabelSchema, read_schema
from ntrm.core.mpp import Resolution, level_resolution
from ntrm.correct.engine.parts_engine import likely_errors, middle_parts
from ntrm.correct.engine.spread import Settings
from ntrm.data.image_files import read_image, read_mask
from ntrm.data.layouts import open_dataset
from ntrm.data.resample import area_average, majority_vote
from ntrm.evaluation.robustness import DEGRADATIONS
from ntrm.models.predictor import Predictor
from ntrm.models.registry import load
from ntrm.models.windows import stitch

SEEDS = {"choose": 1901, "report": 1902, "own": 1902}
"""Sets of phantom sections: to choose by, for the figures, and the latter in their own stain."""
SECTIONS, NORMAL, STAINS = 8, 0.25, 2
"""Of each set; the share without a cancer; foreign stains of each section, the first of ``DEGRADATIONS``."""
MOST_PIXELS = 900_000  # Larger sections are left out, for time
CELL = 16  # Side of the cells that regions are divided by, in pixels
CORE_MPP = 1.25  # Of both sets of glands: that of ``gleason2019``
NAMES = {"skin-pas": (SKIN_PAS,), "glas": (GLANDS, GLANDS_AS_SKIN), "gleason": (CORES, CORES_AS_SKIN)}
"""Sets whose truth has other words than the model: by model, the set's own tissues first."""
REPEATS = 6
"""Simulations of a single section that differ in their random draws; of several sections, and without draws, one."""
FIRST = (5, 10, 20)  # Regions that ``review`` looks at
MAIN = ("part", "looks", "looks and relations")  # Arms that are tried with random and mistaken clicks, too
PAIRS = (("looks", "part"), ("looks and relations", "part"), ("looks and relations", "looks"))

Floats = NDArray[np.float64]
Image = NDArray[np.uint8]
Mask = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Picture:
    """A section before it is segmented."""

    name: str
    image: Image
    truth: Mask
    mpp: Resolution
    there: NDArray[np.bool_] | None = None  # (H, W) where there is an image at all


def names_of(which: str, schema: LabelSchema) -> Names:
    """The words of a set's truth, as far as the model has them."""
    known = [
        names for names in NAMES.get(which, ()) if {word for some in names.right for word in some} <= {*schema.names}
    ]
    return known[0] if known else Names.same(schema)


def phantom(which: str) -> Iterator[Picture]:
    """Phantom sections, each in two foreign stains or in its own."""
    from ntrm.phantom.generate import plan_sections
    from ntrm.phantom.layout import lay_slide
    from ntrm.phantom.render import render

    mpp, seed = level_resolution("10x"), SEEDS[which]
    for planned in plan_sections(SECTIONS, seed, NORMAL):
        slide = lay_slide(planned.seed, mpp.x, planned.cancer, 1)
        if slide.mask.size <= MOST_PIXELS:
            image = render(slide.fine, mpp.x, planned.seed, stain=planned.stain(seed))
            for number in range(1 if which == "own" else STAINS):
                seen = image if which == "own" else DEGRADATIONS[number](image)
                yield Picture(f"{which}-{planned.name}-{number}", seen, slide.mask, mpp)


def skin_pas(folder: Path, section: str) -> Iterator[Picture]:
    """A section of ``skin-pas`` laid together."""
    laid = lay(folder, section, level_resolution("10x").x)
    yield Picture(f"skin-pas-{section}", laid.image, laid.truth, Resolution.square(laid.mpp), laid.there)


def glands(which: str, folder: Path, most: int) -> Iterator[Picture]:
    """Some images of the test part of GlaS or Gleason, evenly over it, at one resolution."""
    for name, image, mask, mpp in sections(folder, most):
        factor = CORE_MPP / mpp
        smaller = area_average(image, factor, factor), majority_vote(mask, factor, factor, len(CORES.tissues))
        yield Picture(f"{which}-{name}", *smaller, Resolution.square(CORE_MPP))


def sections(folder: Path, most: int) -> Iterator[tuple[str, Image, Mask, float]]:
    """Name, image, mask and µm/px of some sections of the test part of a dataset."""
    dataset = open_dataset(folder)
    cases = dataset.in_split("test").cases
    for case in cases[:: max(1, len(cases) // most)]:
        if case.image is not None and case.mask is not None and case.resolution is not None:
            mask = read_mask(case.mask, dataset.schema).mask
            yield case.name, read_image(case.image), mask, case.resolution.x


def pictures(which: str, asked: argparse.Namespace) -> Iterator[Picture]:
    """The sections of a set."""
    if which in SEEDS:
        return phantom(which)
    return skin_pas(asked.source, asked.section) if which == "skin-pas" else glands(which, asked.source, asked.most)


def keep(picture: Picture, predictor: Any, out: Path) -> None:
    """Segment a section and write its graph and truth."""
    graph, truth = out / f"{picture.name}.graph.npz", out / f"{picture.name}.truth.npz"
    if truth.exists():
        return
    started = time.perf_counter()
    mask = stitch(predictor, picture.image).mask
    made = region_graph(predictor, picture.image, mask, picture.mpp, side=CELL)
    made.save(graph)
    there = {} if picture.there is None else {"there": picture.there}
    np.savez_compressed(truth, truth=picture.truth, **there)
    seconds = time.perf_counter() - started
    print(f"{picture.name}: {len(made)} nodes, {len(made.edges)} edges, {seconds:.1f} s", flush=True)


def sections_of(folder: Path, which: str, schema: LabelSchema) -> dict[str, Section]:
    """The sections kept in ``folder`` whose names begin so."""
    found = [path.name.removesuffix(".truth.npz") for path in sorted(folder.glob(f"{which}-*.truth.npz"))]
    found = found or [which]
    known = next((each for each in ("skin-pas", "glas", "gleason") if which.startswith(each)), which)
    return {name: read_section(folder, name, schema, names_of(known, schema)) for name in found}


def curve(section: Section, how: str, order: str, settings: Settings, repeats: int = 1) -> Floats:
    """(clicks, scores) means over the repeats."""
    runs = [simulate(section, how, order, settings, seed) for seed in range(repeats)]
    return np.array([[[row[score] for score in SCORES] for row in run] for run in runs]).mean(axis=0)


def group_of(name: str) -> str:
    """A section's name without the number of its stain."""
    return re.sub(r"-\d$", "", name)


def interval(values: Floats, groups: Sequence[str]) -> tuple[float, float]:
    """95 % of the mean, by bootstrap over groups."""
    members = [np.flatnonzero(np.array(groups) == group) for group in dict.fromkeys(groups)]
    drawn = np.random.default_rng(0).integers(0, len(members), (2000, len(members)))
    means = [values[np.concatenate([members[one] for one in draw])].mean() for draw in drawn]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def row_of(values: Iterable[float]) -> str:
    """Cells of a table."""
    return " | ".join(f"{value:.3f}".replace("0.", ".", 1).replace("-", "−") for value in values)


def curves(folder: Path, which: str, order: str, out: Path, schema: LabelSchema) -> None:
    """The rows of one set and order of clicks."""
    sections = sections_of(folder, which, schema)
    best = np.array([[section.scores(section.best())[score] for score in SCORES] for section in sections.values()])
    print(f"{folder.name} {which}, {len(sections)} sections; best single names: {row_of(best.mean(axis=0))}")
    settings, by_arm = Settings(), {}
    repeats = REPEATS if len(sections) == 1 and order != "largest" else 1
    for how in ARMS if order == "largest" else MAIN:
        values = np.stack([curve(section, how, order, settings, repeats) for section in sections.values()])
        by_arm[how] = values  # (sections, clicks, scores)
        for column, score in enumerate(SCORES):
            print(f"| {which} | {order} | {how} | {score} | {row_of(values.mean(axis=0)[:, column])} |", flush=True)
        mean = values.mean(axis=0)[:, 0]
        print(f"| {which} | {order} | {how} | error gone | {row_of((mean - mean[0]) / (1 - mean[0]))} |", flush=True)
    groups = [group_of(name) for name in sections]
    if len(set(groups)) > 1:
        compare(by_arm, groups)
    found = {how: values.tolist() for how, values in by_arm.items()}
    about = {"clicks": CLICKS, "scores": SCORES, "sections": list(sections), "best": best.tolist()}
    write_json(out / f"{folder.name}-{which}-{order}.json", {**about, "curves": found})


def compare(by_arm: dict[str, Floats], groups: Sequence[str]) -> None:
    """Paired differences of the mean IoU, with intervals."""
    for one, other in PAIRS:
        away = by_arm[one][:, :, 0] - by_arm[other][:, :, 0]  # (sections, clicks)
        cells = [difference(away[:, at], groups) for at in range(1, len(CLICKS))]
        print(f"| {one} − {other} | {' | '.join(cells)} |", flush=True)


def difference(values: Floats, groups: Sequence[str]) -> str:
    """Mean and interval."""
    low, high = interval(values, groups)
    return f"{row_of([values.mean()])} ({row_of([low])}, {row_of([high])})"


def review(folder: Path, which: str, schema: LabelSchema) -> None:
    """Mostly wrong regions among the first of a section: by area, by area times doubt, and as the page has them."""
    found: dict[str, list[list[float]]] = {"area": [], "area × doubt": [], "area × doubt²": []}
    for section in sections_of(folder, which, schema).values():
        graph, (pixels, wrong) = section.graph, wrong_regions(section)
        glass = graph.tissue[middle_parts(graph)] == schema.background_index
        squared = likely_errors(graph)
        keys = np.where(glass, 0, pixels), np.sqrt(squared * pixels), squared
        for name, key in zip(found, keys, strict=True):
            order = np.argsort(-key, kind="stable")
            found[name].append([float(wrong[order[:first]].sum()) for first in FIRST])
    for name, counts in found.items():
        cells = " | ".join(f"{count:.1f}" for count in np.mean(counts, axis=0))
        print(f"| {which} | {len(counts)} | {name} | {cells} |", flush=True)


def wrong_regions(section: Section) -> tuple[Floats, NDArray[np.bool_]]:
    """Pixels of each region of the mask, and whether most of what is known of it is wrong."""
    graph = section.graph
    wrong = (section.pixels * ~section.truth.right[:, graph.tissue].T).sum(axis=1)
    of_region = [np.bincount(graph.region, each) for each in (graph.pixels, wrong, section.pixels.sum(axis=1))]
    return of_region[0], 2 * of_region[1] > of_region[2]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("keep", "curves", "review"))
    parser.add_argument("--kept", type=Path, default=Path("curves"), help="folder with the graphs of a model")
    parser.add_argument("--sets", default="report", help="names of sets or sections, with commas between")
    parser.add_argument("--orders", default="largest", help=f"of clicks: {', '.join(ORDERS)}")
    parser.add_argument("--classes", type=Path, help="classes.csv of the model; default: those of skin")
    parser.add_argument("--out", type=Path, default=Path("tables"))
    parser.add_argument("--from", type=Path, dest="source", help="keep: folder of the real images")
    parser.add_argument("--section", default="A1-1", help="keep: of skin-pas")
    parser.add_argument("--most", type=int, default=20, help="keep: images of glas and gleason, about")
    parser.add_argument("--model", default="bundled", help="keep: what segments them")
    asked = parser.parse_args(arguments)
    schema = read_schema(asked.classes) if asked.classes else SKIN
    if asked.what == "keep":
        asked.kept.mkdir(parents=True, exist_ok=True)
        predictor = Predictor(load(asked.model), "cpu", batch=4)
        for which in asked.sets.split(","):
            for picture in pictures(which, asked):
                keep(picture, predictor, asked.kept)
    elif asked.what == "review":
        for which in asked.sets.split(","):
            review(asked.kept, which, schema)
    else:
        for which in asked.sets.split(","):
            for order in asked.orders.split(","):
                curves(asked.kept, which, order, asked.out, schema)


if __name__ == "__main__":
    main()
