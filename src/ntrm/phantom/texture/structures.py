"""Strands (collagen, fibrils, keratin, whorls, rings; each about -1 to 1) and hollow tissues (fat cells, glands).

All are level lines of a distance bent by noise: where the distance grows steadily lines run parallel, where the noise
wins they close into lenses and swirls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntrm.phantom.noise import Field, derive
from ntrm.phantom.texture.scene import FAT_CELL_UM, FAT_CELLS, Cells, Positions, cells_at


@dataclass(frozen=True)
class Noises:
    """Three noises over the same pixels, each about standard normal."""

    bend: Field  # Slow: gives strands their waves
    grain: Field  # At the scale of a cell
    wobble: Field  # A little coarser than a cell


@dataclass(frozen=True)
class Lines:
    """Level lines of ``steady`` times a distance plus noises, one line every ``period_um``."""

    period_um: float
    steady: float = 1.0
    bend_um: float = 0.0
    grain_um: float = 0.0
    wobble_um: float = 0.0

    def over(self, distance_um: Field, noises: Noises) -> Field:
        """Cosine across the lines: 1 on a line, -1 half-way between two."""
        bent = np.float32(self.steady) * distance_um + np.float32(self.bend_um) * noises.bend
        for amount_um, noise in ((self.grain_um, noises.grain), (self.wobble_um, noises.wobble)):
            if amount_um:
                bent += np.float32(amount_um) * noise
        return np.asarray(np.cos(bent * np.float32(2.0 * np.pi / self.period_um)))


COARSE_BUNDLE = Lines(period_um=44.0, bend_um=26.0, grain_um=5.0)
FINE_BUNDLE = Lines(period_um=29.0, bend_um=-34.0, wobble_um=8.0)
FIBRIL = Lines(period_um=17.0, steady=0.4, bend_um=22.0, grain_um=7.0)
THIN_LAMELLA = Lines(period_um=11.0, bend_um=14.0, grain_um=2.0)
THICK_LAMELLA = Lines(period_um=37.0, bend_um=14.0, grain_um=2.0)
SLIT = Lines(period_um=61.0, bend_um=24.0, grain_um=2.0)
WHORL = Lines(period_um=75.0, steady=0.7, bend_um=55.0, grain_um=3.0)
SCAR_FIBRE = Lines(period_um=13.0, bend_um=5.0, grain_um=1.5)
RING = Lines(period_um=26.0, bend_um=5.0, grain_um=2.0)

_WHORL_REACH_UM = 150.0  # How far from keratin whorls still turn around it


def bundles(depth_um: Field, noises: Noises) -> Field:
    """Coarse wavy collagen: two systems of strands that run together and apart, so that bundles begin and end."""
    coarse, fine = COARSE_BUNDLE.over(depth_um, noises), FINE_BUNDLE.over(depth_um, noises)
    return np.asarray(np.clip(0.6 * coarse + 0.5 * fine + 0.2 * noises.grain - 0.1, -1.0, 0.8))


def lamellae(distance_um: Field, noises: Noises) -> Field:
    """Sheets along keratin's border; sharp pale slits where they split."""
    open_here = np.clip(3.0 * noises.bend - 0.6, 0.0, 1.0)
    slit = np.clip(14.0 * (SLIT.over(distance_um, noises) - 0.9), 0.0, 1.0) * open_here
    thin, thick = THIN_LAMELLA.over(distance_um, noises), THICK_LAMELLA.over(distance_um, noises)
    return np.asarray(0.14 * thin + 0.12 * thick + 0.08 * noises.wobble - slit)


def whorls(distance_um: Field, noises: Noises) -> Field:
    """Swirls of flattened cells, strong around keratin, faint elsewhere."""
    near = np.clip(distance_um * np.float32(1.0 / _WHORL_REACH_UM), 0.0, 1.0)
    swirl = WHORL.over(near * np.float32(_WHORL_REACH_UM), noises)
    return np.asarray((0.8 - 0.4 * near) * swirl + 0.2 * noises.wobble)


STRANDS: dict[str, tuple[str, Callable[[Field, Noises], Field]]] = {
    "bundles": ("depth_um", bundles),
    "fibrils": ("depth_um", lambda um, noises: 0.5 * FIBRIL.over(um, noises) + 0.3 * noises.wobble),
    "parallels": ("depth_um", lambda um, noises: 0.7 * SCAR_FIBRE.over(um, noises) + 0.2 * noises.wobble),
    "lamellae": ("from_keratin_um", lamellae),
    "whorls": ("from_keratin_um", whorls),
    "rings": ("from_nest_um", lambda um, noises: 0.8 * RING.over(um, noises) + 0.1 * noises.wobble),
}
"""By the texture table's column: a distance of ``Geometry``, and the pattern from it and the noises."""

MOST_ROOM = 5.0  # Largest relative density of nuclei that any structure allows

NEST_SEPTUM, _FAT_SEPTUM = 4.5, 20.0  # Sharpness of the septa through nests (wide) and fat (thin)

_WALL_UM, _WALL_NUCLEI_UM = 1.6, 3.0
_TUBE_SPACING_UM, _TUBE_RADIUS_UM, _WIDEST_LUMEN_UM = 46.0, 20.0, 7.0
_TUBE_NUCLEI_UM = (9.0, 19.0)
_SEBOCYTE_UM, _SEBOCYTE_WALL_UM, _SEBOCYTE_NUCLEUS_UM = 17.0, 2.5, 3.5


@dataclass(frozen=True)
class Spots:
    """Positions in a section, with its slow noises there."""

    seed: int
    y_um: Positions
    x_um: Positions
    eosin: Field
    bend: Field
    patch: Field

    @property
    def sebaceous(self) -> NDArray[np.bool_]:
        """Where a gland is a sebaceous one; elsewhere it is a sweat gland."""
        return np.asarray(self.patch > 0.5)

    def cells(self, name: str, spacing_um: float) -> Cells:
        """The lattice of cells called ``name`` here."""
        return cells_at(derive(self.seed, name), self.y_um, self.x_um, spacing_um)


def septum(noise: Field, sharpness: float) -> Field:
    """1 on the lines where a noise changes sign, 0 away from them; the sharper the thinner."""
    return np.asarray(np.clip(1.0 - np.abs(noise) * np.float32(sharpness), 0.0, 1.0))


def fat_dye(spots: Spots, mpp: float) -> Field:
    """Thin walls, torn here and there, septa between lobules, hardly anything else."""
    to_wall_um, width_um = spots.cells(FAT_CELLS, FAT_CELL_UM).wall_um, max(mpp, 1.0)
    # Fraction of a pixel that lies in the wall: at most all of it, at most the whole wall.
    wall = np.clip((_WALL_UM / 2 - to_wall_um) / width_um + 0.5, 0.0, min(1.0, _WALL_UM / width_um))
    torn = np.clip(0.85 + 0.45 * spots.bend, 0.1, 1.2)
    lobule = septum(spots.eosin, _FAT_SEPTUM) * np.clip(0.6 + 0.5 * spots.bend, 0.0, 1.0)
    return np.asarray(np.maximum(wall * torn, lobule) + 0.02, dtype=np.float32)


def fat_room(spots: Spots) -> Field:
    """Nuclei lie in the walls."""
    in_wall = spots.cells(FAT_CELLS, FAT_CELL_UM).wall_um < _WALL_NUCLEI_UM
    return np.where(in_wall, np.float32(MOST_ROOM), np.float32(0.0))


def coil_dye(spots: Spots, mpp: float) -> Field:
    """Tubes around a lumen in loose stroma."""
    tube = spots.cells("tube", _TUBE_SPACING_UM)
    lumen = np.clip((tube.centre_um - _WIDEST_LUMEN_UM * tube.mark) / max(mpp, 2.0) + 0.5, 0.0, 1.0)
    return np.asarray(np.where(tube.centre_um < _TUBE_RADIUS_UM, lumen, np.float32(0.55)), dtype=np.float32)


def coil_room(spots: Spots) -> Field:
    """A ring of nuclei in every tube."""
    to_middle_um = spots.cells("tube", _TUBE_SPACING_UM).centre_um
    first_um, last_um = _TUBE_NUCLEI_UM
    return np.where((to_middle_um > first_um) & (to_middle_um < last_um), np.float32(1.6), np.float32(0.08))


def foam_dye(spots: Spots, mpp: float) -> Field:
    """Pale cells within their walls."""
    to_wall_um = spots.cells("sebocyte", _SEBOCYTE_UM).wall_um
    return np.asarray(0.35 + 0.5 * np.clip(1.0 - to_wall_um / _SEBOCYTE_WALL_UM, 0.0, 1.0), dtype=np.float32)


def foam_room(spots: Spots) -> Field:
    """One nucleus in the middle of every cell."""
    in_nucleus = spots.cells("sebocyte", _SEBOCYTE_UM).centre_um < _SEBOCYTE_NUCLEUS_UM
    return np.where(in_nucleus, np.float32(1.5), np.float32(0.0))


HOLLOWS: dict[str, tuple[Callable[[Spots, float], Field], Callable[[Spots], Field]]] = {
    "fat": (fat_dye, fat_room),
    "acini": (
        lambda spots, mpp: np.where(spots.sebaceous, foam_dye(spots, mpp), coil_dye(spots, mpp)),
        lambda spots: np.where(spots.sebaceous, foam_room(spots), coil_room(spots)),
    ),
    "coil": (coil_dye, coil_room),
    "foam": (foam_dye, foam_room),
}
"""By the texture table's column: how much dye is kept at a µm/px, and the room for nuclei."""
