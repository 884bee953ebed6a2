"""Sections of ``skin-pas`` laid together from their tiles, and what a network of the twelve skin tissues says of them.

Tiles are called ``<section>_<x>_<y>`` after their place in pixels. Where a tile is missing there is glass, and nothing
is known. A rim of glass goes around the section.

What is called right, by tissue (``LENIENT``; beside it ``STRICT``): the dataset knows no layers of the dermis and no
follicles. The dermal-epidermal junction is a band of its own in the dataset and part of neither tissue in ours: it is
ignored. Every cancer is wrong, since the skin is normal.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ntrm.core.labels import CANCERS, IGNORE, SKIN, read_schema
from ntrm.core.mpp import Resolution
from ntrm.data.resample import area_average, majority_vote
from ntrm.regions.cancers import cancer_types

TILE_MPP = 0.25
RIM_UM = 430.0  # Glass around a section: a slide has some, and a network is used to it

TISSUES = ("dermis", "epidermis", "keratin", "background")
_FROM_DATASET = {"DER": 0, "EPI": 1, "KER": 2, "BKG": 3}
LENIENT = {
    "dermis": ("RET", "PAP", "HYP", "INF", "GLD"),
    "epidermis": ("EPI", "FOL"),
    "keratin": ("KER",),
    "background": ("BKG",),
}
STRICT = {**LENIENT, "dermis": ("RET", "PAP"), "epidermis": ("EPI",)}

Mask = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Laid:
    """A section laid together at one resolution."""

    image: NDArray[np.uint8]  # (H, W, 3); glass where there is no tile
    truth: Mask  # (H, W) index into ``TISSUES``; ignore where nothing is known, and at the junction
    there: NDArray[np.bool_]  # (H, W) where there is a tile
    mpp: float

    def save(self, path: Path) -> None:
        """Keep it as arrays."""
        np.savez_compressed(path, image=self.image, truth=self.truth, there=self.there, mpp=self.mpp)

    @classmethod
    def read(cls, path: Path) -> Laid:
        """What ``save`` kept."""
        with np.load(path) as kept:
            return cls(kept["image"], kept["truth"], kept["there"], float(kept["mpp"]))


def lay(folder: Path, section: str, mpp: float, *, rim_um: float = RIM_UM) -> Laid:
    """Lay the tiles of ``section`` together and bring them to ``mpp`` µm/px, by area."""
    paths = sorted((folder / "Images").glob(f"{section}_*.jpg"))
    places = np.array([[int(number) for number in path.stem.split("_")[-2:]] for path in paths])  # (N, 2) x, y
    rim = round(rim_um / TILE_MPP)
    tiles = [np.asarray(Image.open(path).convert("RGB")) for path in paths]
    side = tiles[0].shape[0]
    width, height = places.max(0) - places.min(0) + side + 2 * rim
    image = np.full((height, width, 3), 255, dtype=np.uint8)
    truth, there = np.full((height, width), IGNORE, dtype=np.uint8), np.zeros((height, width), dtype=np.uint8)
    table = tissue_table(folder)
    for path, tile, (x, y) in zip(paths, tiles, places - places.min(0) + rim, strict=True):
        here = np.s_[y : y + side, x : x + side]
        image[here], there[here] = tile, 1
        truth[here] = table[np.asarray(Image.open(folder / "Masks" / f"{path.stem}.png"))]
    factor = mpp / TILE_MPP
    return Laid(
        image=area_average(image, factor, factor),
        truth=majority_vote(truth, factor, factor, len(TISSUES)),
        there=majority_vote(there, factor, factor, 2) == 1,
        mpp=mpp,
    )


def tissue_table(folder: Path) -> Mask:
    """Lookup table from the dataset's classes to ``TISSUES``."""
    table = np.full(256, IGNORE, dtype=np.uint8)
    for tissue in read_schema(folder / "classes.csv").tissues:
        table[tissue.index] = _FROM_DATASET.get(tissue.name, IGNORE)
    return table


def confusion(truth: Mask, predicted: Mask) -> NDArray[np.int64]:
    """(4, 12) pixels by true tissue and predicted skin class."""
    known = truth != IGNORE
    cells = truth[known].astype(np.int64) * len(SKIN) + predicted[known]
    return np.bincount(cells, minlength=len(TISSUES) * len(SKIN)).reshape(len(TISSUES), len(SKIN))


def tissue_ious(table: NDArray[np.int64], mapping: dict[str, tuple[str, ...]]) -> dict[str, float]:
    """IoU of each tissue, where a pixel of it is right if ``mapping`` has the predicted class under its name."""
    found = {}
    for row, tissue in enumerate(TISSUES):
        columns = [SKIN.index(name) for name in mapping[tissue]]
        right, called = table[row, columns].sum(), table[:, columns].sum()
        found[tissue] = float(right / (table[row].sum() + called - right))
    return found


def score(laid: Laid, predicted: Mask, confidence: NDArray[np.float32]) -> dict[str, Any]:
    """Everything that is reported of one section; shares are of its known pixels."""
    table = confusion(laid.truth, predicted)
    lenient, strict = tissue_ious(table, LENIENT), tissue_ious(table, STRICT)
    cancers = [SKIN.index(name) for name in CANCERS]
    shares = table / table.sum(axis=1, keepdims=True)
    epidermis, tissue = TISSUES.index("epidermis"), table[:3]
    seen = np.where(laid.there, predicted, IGNORE)
    named = cancer_types(seen, confidence, SKIN, Resolution.square(laid.mpp))
    return {
        "iou": float(np.mean(list(lenient.values()))),
        "strict": float(np.mean(list(strict.values()))),
        "tissues": lenient,
        "epidermis_right": float(shares[epidermis, [SKIN.index(name) for name in LENIENT["epidermis"]]].sum()),
        "epidermis_cancer": float(shares[epidermis, cancers].sum()),
        "tissue_cancer": float(tissue[:, cancers].sum() / tissue.sum()),
        "named": [finding.name for finding in named if finding.present],
        "confusion": table.tolist(),
    }
