"""Data of the relation study: phantoms, textures rendered over real masks, and folders as they are; all with a split.

Sections go by patient: of four patients of a cancer type two are for training, one for validation, one for the test.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from ntrm.core.io import whole_file, write_text
from ntrm.core.labels import IGNORE, SKIN
from ntrm.core.processes import worker_pool
from ntrm.data.image_files import write_indexed_mask
from ntrm.data.layouts import cancer_of, open_dataset, patient_of, section_of
from ntrm.phantom.generate import PhantomOptions, write_phantom
from ntrm.phantom.noise import derive
from ntrm.phantom.render import Artefacts, render
from ntrm.phantom.stain import Stain

ROTA = ("train", "train", "val", "test")
TILE = 256
MASK_MPP = 6.7
"""µm/px of the real masks, which do not say theirs: the coarsest level of their dataset, which their content fits."""
SPLITS = "splits.csv"
DONE = ".whole"


@dataclass(frozen=True)
class Prepared:
    """A dataset ready for training."""

    folder: Path
    split_file: Path | None = None
    aligned: bool = False
    """Whether windows must not overlap, because the section is a mosaic of tiles whose places are not known."""


def divide(patients: Mapping[str, str], cancers: Mapping[str, str]) -> dict[str, str]:
    """Split of each section, given its patient and cancer type: the same wherever it is asked."""
    strata: dict[str, set[str]] = defaultdict(set)
    for name, patient in patients.items():
        strata[cancers[name]].add(patient)
    split: dict[str, str] = {}
    place = 0
    for stratum in sorted(strata):
        for patient in sorted(strata[stratum] - split.keys(), key=lambda each: hashlib.sha256(each.encode()).digest()):
            split[patient] = ROTA[place % len(ROTA)]
            place += 1
    return {name: split[patient] for name, patient in patients.items()}


def make_phantom(folder: Path, ambiguity: float, sections: int, jobs: int) -> Prepared:
    """A phantom at 10x; the same anatomy whatever the ambiguity."""
    split_file = folder / SPLITS
    if not split_file.exists():
        write_phantom(folder, PhantomOptions(sections, seed=7, ambiguity=ambiguity), jobs=jobs)
        cases = {case.name: case for case in open_dataset(folder)}
        split = divide({n: c.group for n, c in cases.items()}, {n: c.cancer for n, c in cases.items()})
        rows = [f"{name},{case.group},{split[name]},{case.cancer}" for name, case in cases.items()]
        write_text(split_file, "\n".join(["name,group,split,cancer", *rows]) + "\n")
    return Prepared(folder, split_file)


def make_renders(folder: Path, masks: Path, ambiguity: float, jobs: int) -> Prepared:
    """Real masks under synthetic texture: one mosaic for each section, its tiles stained alike."""
    if not (folder / DONE).exists():
        tiles: dict[str, list[Path]] = defaultdict(list)
        for path in sorted(masks.glob("*.png")):
            tiles[section_of(path.stem)].append(path)
        for name in ("Images", "Masks"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        tasks = [(folder, name, paths, ambiguity) for name, paths in sorted(tiles.items())]
        with worker_pool(max(1, min(jobs, len(tasks)))) as pool:
            list(pool.map(_mosaic, tasks))
        SKIN.write_csv(folder / "classes.csv")
        split = divide({n: patient_of(n) for n in tiles}, {n: cancer_of(n) for n in tiles})
        rows = [f"{name},{patient_of(name)},{split[name]},{MASK_MPP}" for name in sorted(tiles)]
        write_text(folder / "cases.csv", "\n".join(["name,group,split,mpp", *rows]) + "\n")
        write_text(folder / DONE, "")
    return Prepared(folder, aligned=True)


def _mosaic(task: tuple[Path, str, list[Path], float]) -> None:
    folder, name, paths, ambiguity = task
    if (folder / "Masks" / f"{name}.png").exists():  # written after the image
        return
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:6], "big")
    # One patient, one laboratory, one scan: what tiles of a section share, and a network may learn from the others.
    stain = Stain.draw(derive(seed, "patient"), derive(seed, "laboratory"))
    artefacts = Artefacts.draw(derive(seed, "scan"))
    columns = math.ceil(math.sqrt(len(paths)))
    rows = -(-len(paths) // columns)
    image = np.full((rows * TILE, columns * TILE, 3), 255, dtype=np.uint8)
    mask = np.full(image.shape[:2], IGNORE, dtype=np.uint8)
    for number, path in enumerate(paths):
        place = tuple(slice(start * TILE, (start + 1) * TILE) for start in divmod(number, columns))
        mask[place] = SKIN.decode(np.asarray(Image.open(path).convert("RGB"))).mask
        image[place] = render(
            mask[place], MASK_MPP, seed + number, ambiguity=ambiguity, stain=stain, artefacts=artefacts
        )
    with whole_file(folder / "Images" / f"{name}.png") as partial:
        Image.fromarray(image).save(partial, format="PNG", compress_level=1)
    write_indexed_mask(folder / "Masks" / f"{name}.png", mask, SKIN)
