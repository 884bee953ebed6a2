"""Tissues with empty middles: fat cells, and the tubes and lobules of glands.

Each speaks twice: how much dye a pixel keeps, and how many nuclei a place may hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntrm.phantom.noise import Field, derive
from ntrm.phantom.texture.grid import Places, cells_at
from ntrm.phantom.texture.scene import FAT_CELL_UM, FAT_CELLS

MOST_ROOM = 5.0
"""Largest relative density of nuclei that any structure allows."""

NEST_SEPTUM, _FAT_SEPTUM = 4.5, 20.0
"""Sharpness of the septa through nests (wide) and fat (thin)."""

_WALL_UM, _WALL_NUCLEI_UM = 1.6, 3.0
_TUBE_SPACING_UM, _TUBE_RADIUS_UM, _WIDEST_LUMEN_UM = 46.0, 20.0, 7.0
_TUBE_NUCLEI_UM = (9.0, 19.0)
_SEBOCYTE_UM, _SEBOCYTE_WALL_UM, _SEBOCYTE_NUCLEUS_UM = 17.0, 2.5, 3.5


@dataclass(frozen=True)
class Spots:
    """Places in a section, with its slow noises there."""

    seed: int
    y_um: Places
    x_um: Places
    eosin: Field
    bend: Field
    patch: Field

    @property
    def sebaceous(self) -> NDArray[np.bool_]:
        """Where a gland is a sebaceous one; elsewhere it is a sweat gland."""
        return np.asarray(self.patch > 0.5)


def septum(noise: Field, sharpness: float) -> Field:
    """1 on the lines where a noise changes sign, 0 away from them; the sharper the thinner."""
    return np.asarray(np.clip(1.0 - np.abs(noise) * np.float32(sharpness), 0.0, 1.0))


def fat_dye(spots: Spots, mpp: float) -> Field:
    """Thin walls, torn here and there, septa between lobules, hardly anything else."""
    to_wall_um = cells_at(derive(spots.seed, FAT_CELLS), spots.y_um, spots.x_um, FAT_CELL_UM).wall_um
    width_um = max(mpp, 1.0)
    # Share of a pixel that lies in the wall: at most all of it, at most the whole wall.
    wall = np.clip((_WALL_UM / 2 - to_wall_um) / width_um + 0.5, 0.0, min(1.0, _WALL_UM / width_um))
    torn = np.clip(0.85 + 0.45 * spots.bend, 0.1, 1.2)
    lobule = septum(spots.eosin, _FAT_SEPTUM) * np.clip(0.6 + 0.5 * spots.bend, 0.0, 1.0)
    return np.asarray(np.maximum(wall * torn, lobule) + 0.02, dtype=np.float32)


def fat_room(spots: Spots) -> Field:
    """Nuclei lie in the walls."""
    to_wall_um = cells_at(derive(spots.seed, FAT_CELLS), spots.y_um, spots.x_um, FAT_CELL_UM).wall_um
    return np.where(to_wall_um < _WALL_NUCLEI_UM, np.float32(MOST_ROOM), np.float32(0.0))


def gland_dye(spots: Spots, mpp: float) -> Field:
    """Sweat glands as tubes around a lumen in loose stroma; sebaceous glands as pale foamy cells."""
    tube = cells_at(derive(spots.seed, "tube"), spots.y_um, spots.x_um, _TUBE_SPACING_UM)
    edge_um = max(mpp, 2.0)
    lumen = np.clip((tube.centre_um - _WIDEST_LUMEN_UM * tube.mark) / edge_um + 0.5, 0.0, 1.0)
    coil = np.where(tube.centre_um < _TUBE_RADIUS_UM, lumen, np.float32(0.55))
    cell = cells_at(derive(spots.seed, "sebocyte"), spots.y_um, spots.x_um, _SEBOCYTE_UM)
    foam = 0.35 + 0.5 * np.clip(1.0 - cell.wall_um / _SEBOCYTE_WALL_UM, 0.0, 1.0)
    return np.asarray(np.where(spots.sebaceous, foam, coil), dtype=np.float32)


def gland_room(spots: Spots) -> Field:
    """A ring of nuclei in every tube; one in the middle of every sebaceous cell."""
    to_middle_um = cells_at(derive(spots.seed, "tube"), spots.y_um, spots.x_um, _TUBE_SPACING_UM).centre_um
    first_um, last_um = _TUBE_NUCLEI_UM
    coil = np.where((to_middle_um > first_um) & (to_middle_um < last_um), 1.6, 0.08)
    in_cell_um = cells_at(derive(spots.seed, "sebocyte"), spots.y_um, spots.x_um, _SEBOCYTE_UM).centre_um
    foam = np.where(in_cell_um < _SEBOCYTE_NUCLEUS_UM, 1.5, 0.0)
    return np.asarray(np.where(spots.sebaceous, foam, coil), dtype=np.float32)


HOLLOWS: dict[str, tuple[Callable[[Spots, float], Field], Callable[[Spots], Field]]] = {
    "fat": (fat_dye, fat_room),
    "acini": (gland_dye, gland_room),
}
"""By the texture table's column: how much dye is kept at a µm/px, and the room for nuclei."""
