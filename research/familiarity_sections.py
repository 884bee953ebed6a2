"""Synthetic sections to make a reference of the bundled model from, and to try it on: a dataset in the usual layout.

    python research/familiarity_sections.py --out familiarity --jobs 8

Laboratories differ in how they stain, and a phantom has a few of them; here every section has one of its own, so that
the reference knows more of them. Of the small sections every sixth is drawn at 1.34 µm/px, enlarged to 1 µm/px,
compressed as JPEG and averaged to 6.7 µm/px: as scans are, before a network of that resolution sees them. A quarter is
normal skin; a fifth is of the first version of the phantom. Splits: ``train`` and ``val`` for the reference, ``test``
to try it on.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ntrm.core.csv_text import rows_text
from ntrm.core.io import write_text
from ntrm.core.labels import SKIN
from ntrm.core.mpp import level_resolution
from ntrm.data.image_files import write_image, write_rgb_mask
from ntrm.data.resample import area_average
from ntrm.phantom.generate import plan_sections
from ntrm.phantom.layout import lay_slide
from ntrm.phantom.noise import derive
from ntrm.phantom.render import render

COUNTS = {"train": 60, "val": 60, "test": 200}
SEEDS = {"train": 7101, "val": 7102, "test": 7103}
NORMAL, FIRST_VERSION, SCANNED = 0.25, 5, 6
"""Share without a cancer; every so many sections are of version 1, and go through the road of a scan."""
FINE_MPP, SCAN_MPP = 1.34, 1.0
MOST_SCANNED = 400_000  # Pixels at 6.7 µm/px of sections that do: larger ones take minutes to draw so fine.

Picture = NDArray[np.uint8]


class Planned(NamedTuple):
    """A section that is to be drawn."""

    split: str
    number: int
    out: Path

    @property
    def name(self) -> str:
        return f"{self.split}-{self.number:03d}"


def draw(planned: Planned) -> str:
    """Draw a section unless it is there; returns what it is filed under."""
    sections = plan_sections(COUNTS[planned.split], SEEDS[planned.split], NORMAL)
    section = sections[planned.number]
    image, mask = (planned.out / "10x" / folder for folder in ("Images", "Masks"))
    if (mask / f"{planned.name}.png").exists():
        return section.cancer
    version = "1" if planned.number % FIRST_VERSION == 0 and section.cancer in SKIN.names else "2"
    coarse = level_resolution("10x")
    slide = lay_slide(section.seed, coarse.x, section.cancer, 1, version)
    own_mask = slide.mask
    scanned = planned.number % SCANNED == 0 and own_mask.size <= MOST_SCANNED
    mpp = FINE_MPP if scanned else coarse.x
    if scanned:
        slide = lay_slide(section.seed, mpp, section.cancer, 1, version)
    stain = section.stain(derive(SEEDS[planned.split], "laboratory", planned.name))
    picture = render(slide.fine, mpp, section.seed, stain=stain, version=version)
    if scanned:
        picture = _fitted(as_scanned(picture, np.random.default_rng(section.seed % 2**32)), own_mask.shape)
    image.mkdir(parents=True, exist_ok=True)
    mask.mkdir(parents=True, exist_ok=True)
    write_image(image / f"{planned.name}.tif", picture, coarse)
    write_rgb_mask(mask / f"{planned.name}.png", own_mask, SKIN)
    return section.cancer


def as_scanned(picture: Picture, random: np.random.Generator) -> Picture:
    """Enlarged to the µm/px of a scan, compressed, and averaged to the model's."""
    height, width = (round(side * FINE_MPP / SCAN_MPP) for side in picture.shape[:2])
    enlarged = Image.fromarray(picture).resize((width, height), Image.Resampling.BICUBIC)
    stream = io.BytesIO()
    enlarged.save(stream, "JPEG", quality=int(random.integers(60, 96)))
    scan = np.asarray(Image.open(stream).convert("RGB"))
    factor = level_resolution("10x").x / SCAN_MPP
    return area_average(scan, factor, factor)


def _fitted(picture: Picture, shape: tuple[int, ...]) -> Picture:
    """Cut or filled with glass to the size of the mask: both are rounded."""
    fitted = np.full((*shape, 3), 255, dtype=np.uint8)
    height, width = (min(one, other) for one, other in zip(shape, picture.shape[:2], strict=True))
    fitted[:height, :width] = picture[:height, :width]
    return fitted


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1)
    asked = parser.parse_args(arguments)
    planned = [Planned(split, number, asked.out) for split, count in COUNTS.items() for number in range(count)]
    with ProcessPoolExecutor(asked.jobs, mp_context=get_context("spawn")) as pool:
        cancers = list(pool.map(draw, planned))
    rows = [[each.name, each.name, each.split, cancer] for each, cancer in zip(planned, cancers, strict=True)]
    write_text(asked.out / "cases.csv", rows_text([["name", "group", "split", "cancer"], *rows]))


if __name__ == "__main__":
    main()
