"""The texture of every tissue as one table, and how ambiguity draws look-alike tissues together."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from ntrm.core.labels import IGNORE, SKIN
from ntrm.phantom.tissues import CODES, FINE, LABELS, PASSING, codes_of


@dataclass(frozen=True, kw_only=True)
class Texture:
    """One tissue. Concentrations are optical densities under the mean stain; layer amounts run from 0 to 1."""

    eosin: float = 0.0
    haematoxylin: float = 0.0
    mottle: float = 0.0  # Relative slow variation of both dyes
    grain: float = 0.0  # Relative variation at the scale of a cell
    bundles: float = 0.0  # Coarse wavy collagen with gaps between the bundles
    fibrils: float = 0.0  # Fine loose collagen
    parallels: float = 0.0  # Fine collagen that runs straight along the surface
    lamellae: float = 0.0  # Sheets parallel to the surface that split
    whorls: float = 0.0  # Concentric swirls around keratin
    rings: float = 0.0  # Layers parallel to the outline
    acini: float = 0.0  # Coiled tubes with a lumen, here and there pale foamy cells
    coil: float = 0.0  # Coiled tubes with a lumen, everywhere
    foam: float = 0.0  # Pale foamy cells with a small nucleus in the middle, everywhere
    fat: float = 0.0  # Empty polygonal cells with thin walls
    lobules: float = 0.0  # Thin stromal septa through nests
    palisade: float = 0.0  # Crowding of upright nuclei along the border to the dermis
    cleft: float = 0.0  # Retraction of the stroma around nests
    rim: float = 0.0  # Darker cytoplasm along the border to the dermis, as relative haematoxylin
    weave: float = 0.0  # Strands with gaps between them along keratin's border
    melanin: float = 0.0  # Optical density of the pigment along the border to the dermis
    melanophages: float = 0.0  # Fraction of sites with a cell full of pigment
    nuclei_per_mm2: float = 0.0
    nucleus_radius_um: float = 2.5
    nucleus_spread: float = 0.1  # Standard deviation of the logarithm of the radius
    nucleus_elongation: float = 1.2  # Long over short axis
    nucleus_haematoxylin: float = 0.0
    nucleus_rim: float = 0.0  # 0: evenly dark; 1: pale inside with a dark membrane


PARAMETERS = tuple(field.name for field in fields(Texture))

TEXTURES = {
    "EPI": Texture(
        eosin=0.28, haematoxylin=0.10, mottle=0.10, grain=0.12, palisade=0.8,
        nuclei_per_mm2=8500, nucleus_radius_um=2.9, nucleus_spread=0.12, nucleus_elongation=1.3,
        nucleus_haematoxylin=0.24, nucleus_rim=0.4,
    ),
    "GLD": Texture(
        eosin=0.2, haematoxylin=0.05, mottle=0.15, grain=0.15, fibrils=0.3, acini=1.0,
        nuclei_per_mm2=9500, nucleus_radius_um=2.6, nucleus_elongation=1.15, nucleus_haematoxylin=0.38,
    ),
    "INF": Texture(
        eosin=0.14, haematoxylin=0.04, mottle=0.20, grain=0.10, bundles=0.4, fibrils=0.45,
        nuclei_per_mm2=6500, nucleus_radius_um=2.2, nucleus_spread=0.12, nucleus_elongation=1.1,
        nucleus_haematoxylin=0.55,
    ),
    "RET": Texture(
        eosin=0.15, mottle=0.16, grain=0.1, bundles=0.8, fibrils=0.15,
        nuclei_per_mm2=650, nucleus_radius_um=2.1, nucleus_spread=0.2, nucleus_elongation=3.0,
        nucleus_haematoxylin=0.60,
    ),
    "FOL": Texture(
        eosin=0.28, haematoxylin=0.10, mottle=0.10, grain=0.10, rings=0.5, palisade=0.5, cleft=0.1,
        nuclei_per_mm2=9000, nucleus_radius_um=2.8, nucleus_spread=0.12, nucleus_elongation=1.5,
        nucleus_haematoxylin=0.28, nucleus_rim=0.2,
    ),
    "PAP": Texture(
        eosin=0.13, haematoxylin=0.02, mottle=0.12, grain=0.1, bundles=0.10, fibrils=0.6,
        nuclei_per_mm2=1300, nucleus_radius_um=2.2, nucleus_spread=0.2, nucleus_elongation=2.0,
        nucleus_haematoxylin=0.5,
    ),
    "HYP": Texture(
        eosin=0.15, mottle=0.25, fat=1.0,
        nuclei_per_mm2=300, nucleus_radius_um=2.4, nucleus_spread=0.2, nucleus_elongation=2.2,
        nucleus_haematoxylin=0.60,
    ),
    "KER": Texture(eosin=0.38, haematoxylin=0.01, mottle=0.16, grain=0.08, lamellae=0.9),
    "BKG": Texture(),
    "BCC": Texture(
        eosin=0.2, haematoxylin=0.18, mottle=0.12, grain=0.10, lobules=0.8, palisade=1.0, cleft=0.8,
        nuclei_per_mm2=13500, nucleus_radius_um=2.9, nucleus_spread=0.15, nucleus_elongation=1.5,
        nucleus_haematoxylin=0.36,
    ),
    "SCC": Texture(
        eosin=0.32, haematoxylin=0.05, mottle=0.16, grain=0.12, whorls=0.5, palisade=0.3,
        nuclei_per_mm2=3800, nucleus_radius_um=3.9, nucleus_spread=0.25, nucleus_elongation=1.3,
        nucleus_haematoxylin=0.24, nucleus_rim=0.7,
    ),
    "IEC": Texture(
        eosin=0.26, haematoxylin=0.13, mottle=0.12, grain=0.13, palisade=0.1,
        nuclei_per_mm2=7500, nucleus_radius_um=3.7, nucleus_spread=0.30, nucleus_elongation=1.35,
        nucleus_haematoxylin=0.30, nucleus_rim=0.5,
    ),
}  # fmt: skip

LOOK_ALIKE = (("EPI", "SCC", "IEC"), ("BCC", "FOL"), ("PAP", "RET"))
"""Tissues that only their surroundings tell apart once ambiguity is 1."""

BASALOID = ("BCC", "FOL")  # Dark-blue nests with a palisade and, partly, a cleft around them

CONNECTIVE = ("RET", "PAP", "INF")  # Tissues that pass into each other without a border


def members(*names: str) -> NDArray[np.float32]:
    """Lookup table over the values of a fine mask: 1 for the named tissues, 0 for all others.

    A label stands for all that lies under it.
    """
    table = np.zeros(IGNORE + 1, dtype=np.float32)
    table[np.isin(LABELS, [SKIN.index(name) for name in names if name not in FINE])] = 1.0
    table[codes_of(*names)] = 1.0
    return table


BODIES = tuple(name for name, labels in FINE.items() if name not in PASSING and set(labels) & set(CONNECTIVE))
"""Fine tissues within connective tissue that have a border of their own."""

IN_PASSAGE = members(*CONNECTIVE) * (1.0 - members(*BODIES))
"""Connective tissue that passes into other connective tissue."""

DERMAL = members("PAP", "RET", "INF", "HYP", "GLD")  # What lies below epithelium: basal cells stand on its border

EMPTY = 1.0 - members(*(name for name in SKIN.names if name != SKIN.background))  # Glass, and whatever is not known


TextureTable = dict[str, NDArray[np.float32]]
"""Every parameter by mask value: ``table["eosin"][mask]``. Values without a class read as background."""


Textures = dict[str, Texture]


def texture_table(ambiguity: float, tissues: Textures = TEXTURES, fine: Textures | None = None) -> TextureTable:
    """The table with every look-alike tissue drawn towards the mean of its group; fine tissues stay as they are.

    Without textures for them, fine tissues look as the label says.

    >>> table = texture_table(1.0)
    >>> bool(table["eosin"][SKIN.index("EPI")] == table["eosin"][SKIN.index("SCC")])
    True
    """
    values = np.array([[getattr(tissues[name], p) for p in PARAMETERS] for name in SKIN.names], dtype=np.float64)
    for group in LOOK_ALIKE:
        rows = [SKIN.index(name) for name in group]
        values[rows] = (1.0 - ambiguity) * values[rows] + ambiguity * values[rows].mean(axis=0)
    full = np.empty((IGNORE + 1, len(PARAMETERS)), dtype=np.float32)
    full[:] = values[SKIN.index("BKG")]
    full[: len(SKIN)] = values
    for (name, label), code in CODES.items():
        full[code] = full[SKIN.index(label)] if fine is None else [getattr(fine[name], p) for p in PARAMETERS]
    return {name: np.ascontiguousarray(full[:, k]) for k, name in enumerate(PARAMETERS)}
