"""One section, measured and ready to be painted window by window."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ntrm.labels import SKIN, Mask
from ntrm.phantom import noise
from ntrm.phantom.noise import Field, derive
from ntrm.phantom.texture.cells import cells_at
from ntrm.phantom.texture.geometry import Geometry, survey
from ntrm.phantom.texture.grid import CoarseMap, Places, Window
from ntrm.phantom.texture.table import CONNECTIVE, TextureTable, members, texture_table

FAT_CELLS, FAT_CELL_UM = "fat cells", 78.0
"""Name of the fat cells' lattice, and its spacing."""
_SLOW_GRID_UM = 13.4
_RET, _HYP = SKIN.index("RET"), SKIN.index("HYP")
_FAT_OR_CONNECTIVE = members("HYP", *CONNECTIVE) > 0


@dataclass(frozen=True)
class SlowNoise:
    """Noise that is smooth enough for a coarse grid."""

    eosin: CoarseMap
    haematoxylin: CoarseMap
    bend: CoarseMap
    """Bends strands."""
    patch: CoarseMap
    """Tells patches apart; septa run where it crosses zero."""


@dataclass(frozen=True)
class Scene:
    """A section: what lies where, how each tissue looks, and the randomness that belongs to it."""

    mask: Mask
    mpp: float
    seed: int
    table: TextureTable
    geometry: Geometry = field(repr=False)
    slow: SlowNoise = field(repr=False)

    @classmethod
    def prepare(cls, mask: Mask, mpp: float, seed: int, ambiguity: float) -> Scene:
        """Measure the section and draw its slow noise once."""
        table = texture_table(ambiguity)
        return cls(mask, mpp, seed, table, survey(mask, mpp, table), _slow_noise(mask.shape, mpp, seed))

    def noise(self, name: str, window: Window, wavelength_um: float) -> Field:
        """The section's noise called ``name`` over a window."""
        values = noise.field(derive(self.seed, name), window.shape, window.mpp, wavelength_um, window.origin_um)
        return np.ascontiguousarray(values)

    def tissue_at(self, y_um: Places, x_um: Places, fatty: Field | None = None) -> Mask:
        """Mask value under each position (beyond the edge: of the edge), with fat cells kept whole.

        ``fatty`` is the geometry's map at the positions, for callers that can read it faster than point by point.
        """
        height, width = self.mask.shape
        row, column = np.clip(y_um * (1 / self.mpp), 0, height - 1), np.clip(x_um * (1 / self.mpp), 0, width - 1)
        tissue = np.asarray(self.mask[row.astype(np.intp), column.astype(np.intp)])
        fatty = self.geometry.fatty.at(y_um, x_um) if fatty is None else fatty
        here = np.nonzero((fatty > 0.02) & (fatty < 0.98) & _FAT_OR_CONNECTIVE[tissue])
        if here[0].size:
            tissue[here] = self._by_fat_cell(tissue[here], y_um[here], x_um[here])
        return tissue

    def _by_fat_cell(self, tissue: Mask, y_um: Places, x_um: Places) -> Mask:
        """Where fat meets connective tissue, a fat cell belongs to one side as a whole."""
        cells = cells_at(derive(self.seed, FAT_CELLS), y_um, x_um, FAT_CELL_UM)
        fat = self.geometry.fatty.at(cells.centre_y_um, cells.centre_x_um) > 0.35 + 0.3 * cells.mark
        return np.where(fat, _HYP, np.where(tissue == _HYP, _RET, tissue)).astype(np.uint8)


def _slow_noise(shape: tuple[int, ...], mpp: float, seed: int) -> SlowNoise:
    size = tuple(int(np.ceil(n * mpp / _SLOW_GRID_UM)) + 1 for n in shape)

    def slow(name: str, wavelength_um: float, count: int) -> CoarseMap:
        values = noise.octaves(derive(seed, name), (size[0], size[1]), _SLOW_GRID_UM, wavelength_um, count)
        return CoarseMap(np.ascontiguousarray(values), _SLOW_GRID_UM)

    return SlowNoise(
        eosin=slow("eosin", 900.0, 4),
        haematoxylin=slow("haematoxylin", 700.0, 4),
        bend=slow("bend", 180.0, 2),
        patch=slow("patch", 400.0, 2),
    )
