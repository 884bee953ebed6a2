"""What clicks are worth: simulated corrections of sections that a model segments badly, or that no model has seen.

    python research/correction_curves.py keep --sets skin-pas-A1-1,skin-pas-A1-2 --from skin-pas --kept curves
    python research/correction_curves.py keep --sets glas --split test --most 24 --from glas --kept curves
    python research/correction_curves.py keep --sets phantom-own,phantom-foreign --kept curves
    python research/correction_curves.py curves --kept curves --sets skin-pas-A1-2,glas --out tables
    python research/correction_curves.py carried --kept curves --sets skin-pas-A1-1,skin-pas-A1-2

``keep`` writes slides, has the product segment them and read their texture, and keeps their truth. ``curves`` simulates
clicks, with the network's mask and from nothing, and prints means over the sections of a set. ``carried`` clicks on
each section of a list in turn and applies what was learned to the others, which nobody touches.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np
from numpy.typing import NDArray
from research.simulated_clicks import (
    CLICKS,
    CORES_AS_SKIN,
    GLANDS_AS_SKIN,
    ORDERS,
    SKIN_PAS,
    Names,
    Score,
    Truth,
    from_nothing,
    simulate,
)
from research.skin_pas import lay

from ntrm.core.io import write_json
from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.mpp import Resolution, level_resolution
from ntrm.correct.engine import ENGINE, propose
from ntrm.correct.learning import Seen, learn
from ntrm.correct.log import Step
from ntrm.correct.mask import open_mask
from ntrm.correct.pixels import PixelSet
from ntrm.correct.state import State
from ntrm.data.image_files import read_image, read_mask, write_image
from ntrm.data.layouts import open_dataset
from ntrm.data.resample import majority_vote
from ntrm.evaluation.robustness import DEGRADATIONS
from ntrm.segment.batch import segment_slides
from ntrm.slides.inputs import SlideInput

SEED, SECTIONS, NORMAL, MOST_PIXELS = 1902, 8, 0.25, 900_000  # Of the phantom; larger sections are left out, for time
SLIDE_MPP = 0.5  # Of real sections that were laid together from tiles
WORDS = {"skin-pas": SKIN_PAS, "glas": GLANDS_AS_SKIN, "gleason": CORES_AS_SKIN, "phantom": Names.same(SKIN.names)}
"""True tissues of each set in the words of a model of skin."""


class Picture(NamedTuple):
    """A section before it is segmented; its truth may be finer than the model."""

    name: str
    image: NDArray[np.uint8]
    truth: NDArray[np.uint8]
    mpp: float
    truth_mpp: float


def phantom(which: str) -> Iterator[Picture]:
    """Phantom sections in their own stain or in a foreign one."""
    from ntrm.phantom.generate import plan_sections
    from ntrm.phantom.layout import lay_slide
    from ntrm.phantom.render import render

    mpp = level_resolution("10x").x
    for planned in plan_sections(SECTIONS, SEED, NORMAL):
        slide = lay_slide(planned.seed, mpp, planned.cancer, 1)
        if slide.mask.size <= MOST_PIXELS:
            image = render(slide.fine, mpp, planned.seed)
            seen = image if which == "phantom-own" else DEGRADATIONS[0](image)
            yield Picture(f"{which}-{planned.name}", seen, slide.mask, mpp, mpp)


def pictures(which: str, asked: argparse.Namespace) -> Iterator[Picture]:
    """The sections of a set."""
    if which.startswith("phantom"):
        yield from phantom(which)
    elif which.startswith("skin-pas-"):
        section, mpp = which.removeprefix("skin-pas-"), level_resolution("10x").x
        fine, truth = (lay(asked.source, section, at) for at in (SLIDE_MPP, mpp))
        yield Picture(which, fine.image, truth.truth, SLIDE_MPP, mpp)
    else:
        dataset = open_dataset(asked.source)
        cases = dataset.in_split(asked.split).cases
        for case in cases[:: max(1, len(cases) // asked.most)]:
            if case.image is not None and case.mask is not None and case.resolution is not None:
                mask, mpp = read_mask(case.mask, dataset.schema).mask, case.resolution.x
                yield Picture(f"{which}-{case.name}", read_image(case.image), mask, mpp, mpp)


def keep(picture: Picture, asked: argparse.Namespace) -> None:
    """Write a section as a slide, segment it, read its texture and keep its truth on the grid of its mask."""
    slide, truth = (asked.kept / folder / picture.name for folder in ("slides", "truth"))
    slide, truth = slide.with_name(f"{slide.name}.tif"), truth.with_name(f"{truth.name}.npz")
    slide.parent.mkdir(parents=True, exist_ok=True)
    truth.parent.mkdir(parents=True, exist_ok=True)
    if truth.exists():
        return
    write_image(slide, picture.image, Resolution.square(picture.mpp))
    segment_slides([slide], out=asked.kept / "results", model=asked.model, device=asked.device)
    mask = open_mask(asked.kept / "results" / picture.name)
    ENGINE.prepare(mask, SlideInput(slide, slide.name), asked.device)
    factor = mask.resolution.x / picture.truth_mpp
    classes = int(picture.truth[picture.truth != IGNORE].max(initial=0)) + 1
    known = picture.truth if factor == 1 else majority_vote(picture.truth, factor, factor, classes)
    height, width = mask.shape
    np.savez_compressed(truth, truth=known[:height, :width])
    print(picture.name, mask.shape, mask.summary.familiarity.verdict, flush=True)


def section(kept: Path, name: str) -> tuple[Seen, Truth]:
    """A section that was kept."""
    seen = ENGINE.seen(open_mask(kept / "results" / name))
    words = next(words for which, words in WORDS.items() if name.startswith(which))
    with np.load(kept / "truth" / f"{name}.npz") as arrays:
        known = np.where(seen.labels == IGNORE, np.uint8(IGNORE), arrays["truth"])
        return seen, Truth.of(known, words, seen.schema)


def names_in(kept: Path, which: str) -> list[str]:
    """The kept sections of a set."""
    return [path.stem for path in sorted((kept / "truth").glob(f"{which}*.npz"))]


def blank(seen: Seen, truth: Truth) -> tuple[Seen, Truth]:
    """The same without a network."""
    bare = from_nothing(seen)
    return bare, replace(truth, right=np.pad(truth.right, ((0, 0), (0, 1))))


def row_of(values: Sequence[float]) -> str:
    """Cells of a table."""
    return " | ".join(f"{value:.3f}".replace("0.", ".", 1).replace("-", "−") for value in values)


def told(which: str, how: str, order: str, curves: list[list[Score]]) -> dict[str, object]:
    """Prints means over sections, the worst single step of the mean, what was lost and how long a click took."""
    iou, broken, seconds = (
        np.array([[score[k] for score in curve] for curve in curves]).mean(axis=0) for k in range(3)
    )
    print(f"| {which} | {how} | {order} | {row_of([iou[k] for k in CLICKS if k < len(iou)])} |", end=" ")
    print(f"worst step {np.diff(iou).min():.3f}, lost {100 * broken[1:].mean():.2f} % a click", end=", ")
    print(f"{seconds[1:].mean():.2f} s", flush=True)
    return {"iou": iou.tolist(), "broken": broken.tolist(), "seconds": seconds.tolist()}


def curves(asked: argparse.Namespace, which: str, order: str) -> None:
    """The rows of one set and order of clicks."""
    kept, found = [section(asked.kept, name) for name in names_in(asked.kept, which)], {}
    for how in asked.arms.split(","):
        bare = how == "nothing"
        own = [blank(*each) if bare else each for each in kept]
        runs = [simulate(*each, order, most=asked.clicks, revise=asked.revise)[0] for each in own]
        found[how] = told(which, how, order, runs)
    write_json(asked.out / f"{which}-{order}.json", {"sections": len(kept), "curves": found})


def carried(asked: argparse.Namespace, names: Sequence[str]) -> None:
    """What clicks on all sections but one, or on one, are worth on the others."""
    kept = {name: section(asked.kept, name) for name in names}
    states: dict[str, State] = {name: simulate(*each, most=asked.clicks)[1] for name, each in kept.items()}
    for name, (seen, truth) in kept.items():
        clicked = [(kept[other][0], states[other]) for other in names if other != name]
        classifier, empty = learn(clicked), State(truth.mask.shape, seen.schema)
        click = Step(action="name", tissue=classifier.about.named[0], spread="texture")
        step = propose(seen, empty, click, PixelSet.empty(), classifier=classifier).step(seen.schema, 1.0)
        after = truth.mean_iou(empty.with_step(step).paint(seen.labels))
        print(f"| {name} | {row_of([truth.mean_iou(seen.labels), after])} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("keep", "curves", "carried"))
    parser.add_argument("--kept", type=Path, default=Path("curves"), help="folder of slides, results and truth")
    parser.add_argument("--sets", default="phantom-own", help="names of sets or sections, with commas between")
    parser.add_argument("--orders", default="largest", help=f"of clicks: {', '.join(ORDERS)}")
    parser.add_argument("--arms", default="network,nothing", help="curves: from the network's mask, from nothing")
    parser.add_argument("--clicks", type=int, default=max(CLICKS))
    parser.add_argument("--revise", choices=("none", "clicked", "all"), help="what a click may change of followers")
    parser.add_argument("--out", type=Path, default=Path("tables"))
    parser.add_argument("--from", type=Path, dest="source", help="keep: folder of the real images")
    parser.add_argument("--split", default="test", help="keep: of glas and gleason")
    parser.add_argument("--most", type=int, default=24, help="keep: images of glas and gleason, about")
    parser.add_argument("--model", default="bundled", help="keep: what segments them")
    parser.add_argument("--device", default="cpu", help="keep: where that runs")
    asked = parser.parse_args(arguments)
    sets = asked.sets.split(",")
    if asked.what == "carried":
        carried(asked, sets)
    elif asked.what == "keep":
        for which in sets:
            for picture in pictures(which, asked):
                keep(picture, asked)
    else:
        asked.out.mkdir(parents=True, exist_ok=True)
        for which in sets:
            for order in asked.orders.split(","):
                curves(asked, which, order)


if __name__ == "__main__":
    main()
