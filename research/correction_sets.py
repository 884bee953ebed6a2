"""Sections that a model segments badly, with their truth and region graphs: what clicks are simulated on.

    python research/correction_sets.py learn choose report own --model bundled --out curves/v3
    python research/correction_sets.py skin-pas --from skin-pas --section A1-1 --model bundled --out curves/v3
    python research/correction_sets.py renders --from skin-masks --model bundled --out curves/v3
    python research/correction_sets.py glas --from glas --model bundled --out curves/v3

``learn``, ``choose`` and ``report`` are phantom sections in the stain of another laboratory: to learn weights, to
choose settings, and for the figures. ``own`` are those of ``report`` in their own stain. ``renders`` are drawn texture
over real masks. Each section is kept as ``NAME.graph.npz`` and ``NAME.truth.npz``; what is there stays.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np
import torch
from numpy.typing import NDArray
from research.simulated_clicks import CORES, CORES_AS_SKIN, GLANDS, GLANDS_AS_SKIN, SKIN_PAS, Names
from research.skin_pas import lay
from tests.reference.region_graph import region_graph

from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution, level_resolution
from ntrm.data.image_files import read_image, read_mask
from ntrm.data.layouts import cancer_of, open_dataset, patient_of, section_of
from ntrm.data.resample import area_average, majority_vote
from ntrm.data.transforms import jitter_stains, mix_colours
from ntrm.evaluation.robustness import DEGRADATIONS
from ntrm.inference.predictor import Predictor
from ntrm.inference.sliding_window import stitch
from ntrm.models.hub import load

SEEDS = {"choose": 1901, "report": 1902, "learn": 1903}
SECTIONS = {"choose": 8, "report": 8, "own": 8, "learn": 20}
NORMAL = 0.25
MOST_PIXELS = {"choose": 900_000, "report": 900_000, "own": 900_000, "learn": 500_000}
MOST_TILES = 9
"""Larger sections are left out, for time."""
STAINS = 2
"""Foreign stains of each phantom section; of ``choose`` and ``report`` the first of ``DEGRADATIONS``."""
SCALES = (0.4, 2.2)
"""How strong each stain of a random laboratory is."""
MIXING = 0.15
"""Standard deviation of what each colour takes from the others in a random laboratory."""
CORE_MPP = 1.25
"""Of both sets of glands: that of ``gleason2019``."""
AMBIGUITY = 0.5
NAMES = {"skin-pas": (SKIN_PAS,), "glas": (GLANDS, GLANDS_AS_SKIN), "gleason": (CORES, CORES_AS_SKIN)}
"""Sets whose truth has other words than the model: by model, the set's own tissues first."""

Image = NDArray[np.uint8]
Mask = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Picture:
    """A section before it is segmented."""

    name: str
    image: Image
    truth: Mask
    mpp: Resolution
    there: NDArray[np.bool_] | None = None
    """(H, W) where there is an image at all."""


def names_of(which: str, schema: LabelSchema) -> Names:
    """The words of a set's truth, as far as the model has them."""
    known = [
        names for names in NAMES.get(which, ()) if {word for some in names.right for word in some} <= {*schema.names}
    ]
    return known[0] if known else Names.same(schema)


def phantom(which: str) -> Iterator[Picture]:
    """Phantom sections, each in foreign stains or in its own."""
    from ntrm.phantom.generate import plan_sections
    from ntrm.phantom.layout import lay_slide
    from ntrm.phantom.render import render

    mpp, seed = level_resolution("10x"), SEEDS["report" if which == "own" else which]
    for planned in plan_sections(SECTIONS[which], seed, NORMAL):
        slide = lay_slide(planned.seed, mpp.x, planned.cancer, 1)
        if slide.mask.size > MOST_PIXELS[which]:
            continue
        image = render(slide.fine, mpp.x, planned.seed, stain=planned.stain(seed))
        for number in range(1 if which == "own" else STAINS):
            name = f"{which}-{planned.name}-{number}"
            yield Picture(name, stained(which, image, planned.seed + number, number), slide.mask, mpp)


def stained(which: str, image: Image, seed: int, number: int) -> Image:
    """An image in the stain that a set has."""
    if which == "own":
        return image
    return random_laboratory(image, seed) if which == "learn" else DEGRADATIONS[number](image)


def random_laboratory(image: Image, seed: int) -> Image:
    """Both stains stronger or weaker, and colours mixed: from a little to very strange."""
    random = np.random.default_rng(seed)
    scale = np.exp(random.uniform(*np.log(SCALES), 2))
    mixing = np.eye(3) + random.uniform(0, 2) * MIXING * random.normal(size=(3, 3))
    x = torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255
    x = jitter_stains(x, torch.from_numpy(scale[None]).float(), torch.zeros(1, 2))
    mixed = mix_colours(x, torch.from_numpy(mixing[None]).float())[0].permute(1, 2, 0)
    return np.asarray((mixed.clamp(0, 1) * 255).round().byte().numpy())


def skin_pas(folder: Path, section: str) -> Iterator[Picture]:
    """A section of ``skin-pas`` laid together."""
    laid = lay(folder, section, level_resolution("10x").x)
    yield Picture(f"skin-pas-{section}", laid.image, laid.truth, Resolution.square(laid.mpp), laid.there)


def renders(masks: Path, out: Path) -> Iterator[Picture]:
    """Drawn texture over the real masks of the test part of the relation study."""
    from research.relation_data import divide, make_renders

    tiles: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(masks.glob("*.png")):
        tiles[section_of(path.stem)].append(path)
    split = divide({name: patient_of(name) for name in tiles}, {name: cancer_of(name) for name in tiles})
    chosen = out / "renders-masks"
    chosen.mkdir(exist_ok=True)
    for name, paths in tiles.items():
        for path in paths if split[name] == "test" and len(paths) <= MOST_TILES else ():
            shutil.copyfile(path, chosen / path.name)
    for name, image, mask, _ in sections(make_renders(out / "renders-data", chosen, AMBIGUITY, 1).folder):
        yield Picture(f"renders-{name}", image, mask, level_resolution("10x"))


def glands(which: str, folder: Path, most: int) -> Iterator[Picture]:
    """Some images of the test part of GlaS or Gleason, evenly over it, at one resolution."""
    for name, image, mask, mpp in sections(folder, "test", most):
        factor = CORE_MPP / mpp
        smaller = area_average(image, factor, factor), majority_vote(mask, factor, factor, len(CORES.tissues))
        yield Picture(f"{which}-{name}", *smaller, Resolution.square(CORE_MPP))


def sections(folder: Path, split: str = "", most: int = 0) -> Iterator[tuple[str, Image, Mask, float]]:
    """Name, image, mask and µm/px of each section of a dataset, or of some of one of its parts."""
    dataset = open_dataset(folder)
    cases = (dataset.in_split(split) if split else dataset).cases
    for case in cases[:: max(1, len(cases) // most)] if most else cases:
        if case.image is not None and case.mask is not None and case.resolution is not None:
            mask = read_mask(case.mask, dataset.schema).mask
            yield case.name, read_image(case.image), mask, case.resolution.x


def keep(picture: Picture, predictor: Any, out: Path, side: int) -> None:
    """Segment a section and write its graph and truth."""
    graph, truth = out / f"{picture.name}.graph.npz", out / f"{picture.name}.truth.npz"
    if truth.exists():
        return
    started = time.perf_counter()
    mask = stitch(predictor, picture.image).mask
    made = region_graph(predictor, picture.image, mask, picture.mpp, side=side)
    made.save(graph)
    there = {} if picture.there is None else {"there": picture.there}
    np.savez_compressed(truth, truth=picture.truth, **there)
    seconds = time.perf_counter() - started
    print(f"{picture.name}: {len(made)} nodes, {len(made.edges)} edges, {seconds:.1f} s", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets = ("learn", "choose", "report", "own", "skin-pas", "renders", "glas", "gleason")
    parser.add_argument("sets", nargs="+", choices=sets)
    parser.add_argument("--from", type=Path, dest="source", help="folder of the real images or masks")
    parser.add_argument("--section", default="A1-1", help="of skin-pas")
    parser.add_argument("--most", type=int, default=20, help="images of glas and gleason, about")
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--side", type=int, default=16, help="of the cells that regions are divided by, in pixels")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    predictor = Predictor(load(asked.model), asked.device, batch=4)
    makers: dict[str, Callable[[], Iterator[Picture]]] = {
        "skin-pas": lambda: skin_pas(asked.source, asked.section),
        "renders": lambda: renders(asked.source, asked.out),
        "glas": lambda: glands("glas", asked.source, asked.most),
        "gleason": lambda: glands("gleason", asked.source, asked.most),
    }
    for which in asked.sets:
        for picture in makers[which]() if which in makers else phantom(which):
            keep(picture, predictor, asked.out, asked.side)


if __name__ == "__main__":
    main()
