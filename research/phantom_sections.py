"""Sections of the phantom for ``research/carry_over.py``: drawn once, kept as arrays, read onto the device.

``train`` and ``val`` are sections of ``ntrm phantom phantom-290 --sections 290 --seed 290``, pixel for pixel alike.
``normal`` and ``varied`` are the specimens of training sections without a cancer, ``held-out`` those of validation
sections. Words behind these names, or alone for ``train``, change how a section looks: ``loose`` and ``dark`` paint its
tissues otherwise (``research/section_textures.py``), ``strands`` weaves its keratin (``research/basket_weave.py``):
``second`` are sections of the phantom's second version, a quarter of them without a cancer. ``loose-dark`` are training
sections with both, ``varied-strands`` sections without a cancer with woven keratin.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from research.basket_weave import loosen
from research.section_textures import LOOKS, painted
from torch import Tensor

from ntrm.core.labels import IGNORE
from ntrm.core.mpp import level_resolution
from ntrm.data.tiles import GLASS, cut, tile_windows
from ntrm.phantom.anatomy.adnexa import AdnexaParameters, draw_adnexa
from ntrm.phantom.anatomy.layers import SkinParameters, normal_skin
from ntrm.phantom.anatomy.section_plan import draw_plan
from ntrm.phantom.anatomy.tumours import Lesions
from ntrm.phantom.generate import PlannedSection, plan_sections
from ntrm.phantom.layout import lay_slide, paint_mask
from ntrm.phantom.noise import derive
from ntrm.phantom.render import render

PHANTOM_SEED, PHANTOM_SECTIONS = 290, 290
_LOOKS = ("loose", "dark", "loose-dark")
COUNTS = {
    "10x": {
        "train": 140, "val": 43, "varied": 70, "held-out": 15, "strands": 140, "varied-strands": 70, "normal": 70,
        **{look + weave: 70 for look in _LOOKS for weave in ("", "-strands")},
        **{f"varied-{look}{weave}": 35 for look in _LOOKS for weave in ("", "-strands")},
    },
    "5x": {"train": 70, "val": 20, "varied": 35, "held-out": 8},
}  # fmt: skip
"""Sections of each kind; at 5x, which takes four times as long to draw and to score, half of them."""
SECOND = {
    "10x": {"second": ((2001, 2002, 2003, 2004), 100), "second-val": ((2005,), 40)},
    "5x": {"second": ((2001, 2002), 50), "second-val": ((2005,), 20)},
}
"""Sections of the second version of the phantom, by kind: seeds of phantoms, and sections of each."""
SECOND_NORMAL = 0.25
WINDOW = 256
VARIED = SkinParameters(
    keratin=(8.0, 120.0), epidermis=(26.0, 170.0), ridge_height=(6.0, 130.0), ridge_wavelength=(80.0, 300.0)
)
"""Normal skin from thin to acanthotic; the phantom's own epidermis is 26 to 48 µm thick without its ridges."""


class Sheet(NamedTuple):
    """A section that is to be drawn."""

    kind: str
    section: PlannedSection
    level: str
    out: Path
    phantom: int = PHANTOM_SEED
    """Seed of the phantom that it is of."""

    @property
    def path(self) -> Path:
        other = "" if self.phantom == PHANTOM_SEED else f"-{self.phantom}"
        return self.out / self.level / self.kind / f"{self.section.name}{other}.npz"


def plan_sheets(out: Path, levels: Sequence[str], kinds: Sequence[str] = ()) -> list[Sheet]:
    """Every section of the study, or those of some kinds."""
    plan = plan_sections(PHANTOM_SECTIONS, PHANTOM_SEED)
    parts = {split: [each for each in plan if each.split == split] for split in ("train", "val")}
    first = [
        Sheet(kind, section, level, out)
        for level in levels
        for kind, count in COUNTS[level].items()
        if not kinds or kind in kinds
        for section in _spaced(parts["val" if kind in ("val", "held-out") else "train"], count)
    ]
    second = [
        Sheet(kind, section, level, out, seed)
        for level in levels
        for kind, (seeds, count) in SECOND[level].items()
        if not kinds or kind in kinds
        for seed in seeds
        for section in plan_sections(count, seed, SECOND_NORMAL)
    ]
    return first + second


def _spaced(sections: Sequence[PlannedSection], count: int) -> list[PlannedSection]:
    places = np.linspace(0, len(sections) - 1, min(count, len(sections))).round().astype(int)
    return [sections[place] for place in places]


def draw(sheet: Sheet) -> None:
    """Draw a section and keep it, unless it is there already."""
    if sheet.path.exists():
        return
    mpp = level_resolution(sheet.level).x
    if sheet.kind.endswith("strands"):
        image, mask = _kept(sheet._replace(kind=sheet.kind.removesuffix("strands").rstrip("-") or "train"))
        image, mask = loosen(image, mask, mpp, derive(sheet.section.seed, sheet.kind))
    else:
        image, mask = _drawn(sheet, mpp)
    sheet.path.parent.mkdir(parents=True, exist_ok=True)
    partial = sheet.path.with_suffix(f".{os.getpid()}.part")
    with partial.open("wb") as stream:
        np.savez(stream, image=image, mask=mask)
    partial.rename(sheet.path)


def _kept(sheet: Sheet) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    draw(sheet)
    with np.load(sheet.path) as kept:
        return kept["image"], kept["mask"]


def _drawn(sheet: Sheet, mpp: float) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    section, words = sheet.section, sheet.kind.split("-")
    if "second" in words:
        slide = lay_slide(section.seed, mpp, section.cancer, version="2")
        stain = section.stain(sheet.phantom)
        return render(slide.fine, mpp, section.seed, ambiguity=0.5, stain=stain, version="2"), slide.mask
    if {"varied", "normal", "held"} & set(words):
        seed = derive(section.seed, "without a cancer")
        mask = normal_mask(seed, section.cancer, mpp, VARIED if "varied" in words else SkinParameters())
    else:
        seed, mask = section.seed, lay_slide(section.seed, mpp, section.cancer, version="1").mask
    with painted(tuple(word for word in words if word in LOOKS), seed):
        stain = section.stain(PHANTOM_SEED)
        return render(mask, mpp, seed, ambiguity=0.5, stain=stain, version="1"), mask


def normal_mask(seed: int, cancer: str, mpp: float, skin: SkinParameters) -> NDArray[np.uint8]:
    """The section of ``seed`` without its tumour: the same specimen, cut and damage, and all of its adnexa."""
    plan = draw_plan(seed, cancer, version="1")
    specimen = plan.specimen
    adnexa = draw_adnexa(seed, specimen.half_um, specimen.depth_um, lambda _: True, AdnexaParameters())
    strata = normal_skin(seed, specimen.axis, skin)
    return paint_mask(replace(plan, lesions=Lesions(strata), adnexa=adnexa), mpp)


class Windows(NamedTuple):
    """Windows on the device."""

    images: Tensor
    """(N, 3, S, S) uint8."""
    masks: Tensor
    """(N, S, S) uint8."""


class Sections(NamedTuple):
    """Whole sections on the device."""

    images: list[Tensor]
    """(3, H, W) uint8."""
    masks: list[Tensor]


@cache
def load_windows(folder: Path, level: str, kind: str, device: str) -> Windows:
    images, masks = [], []
    for path in sorted((folder / level / kind).glob("*.npz")):
        with np.load(path) as kept:
            image, mask = kept["image"], kept["mask"]
        for window in tile_windows(*mask.shape, size=WINDOW, overlap=64):
            images.append(torch.from_numpy(cut(image, window, fill=GLASS)).permute(2, 0, 1))
            masks.append(torch.from_numpy(cut(mask, window, fill=IGNORE)))
    return Windows(torch.stack(images).to(device), torch.stack(masks).to(device))


@cache
def load_sections(folder: Path, level: str, kind: str, device: str) -> Sections:
    found = Sections([], [])
    for path in sorted((folder / level / kind).glob("*.npz")):
        with np.load(path) as kept:
            found.images.append(torch.from_numpy(kept["image"]).permute(2, 0, 1).contiguous().to(device))
            found.masks.append(torch.from_numpy(kept["mask"]).to(device))
    return found
