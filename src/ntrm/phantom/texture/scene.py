"""One section measured for painting: depth, nearest border, the tissues passed on the way in.

Look-alike tissues are never told apart here: every map treats the members of a group as one, or blurs a column of the
texture table, so that the table alone decides how much they differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.labels import SKIN, Mask
from ntrm.phantom import noise
from ntrm.phantom.noise import Field, derive
from ntrm.phantom.texture.canvas import CoarseMap, Places, Window, block_mean, cells_at
from ntrm.phantom.texture.table import BASALOID, CONNECTIVE, DERMAL, EMPTY, TextureTable, members, texture_table

_NEAR_GRID_UM, _FAR_GRID_UM = 6.7, 13.4
_BORDER_BLUR_UM = 8.0
"""About the height of a basal cell."""
_PASSAGE_BLUR_UM = 28.0
"""Papillary dermis, reticular dermis and inflammation pass into each other over about three times this."""
_DISTANCE_BLUR_UM = 20.0
_FAR_AWAY = 1000.0
"""Steps to what is nowhere in the section."""


@dataclass(frozen=True)
class Geometry:
    """Maps over the whole section."""

    from_keratin_um: CoarseMap
    """From keratin's border; negative inside it."""
    depth_um: CoarseMap
    """Below the skin's surface: from keratin where there is any, else from the outline of the tissue."""
    from_nest_um: CoarseMap
    """From the border of basaloid tissue; negative inside it."""
    dermis_near: CoarseMap
    """Share of dermal tissue around: 0.5 at the border, above 0 within a cell's height of it."""
    cleft_near: CoarseMap
    """The cleft parameter of the tissue around."""
    papillary: CoarseMap
    """Share of papillary dermis in the connective tissue around."""
    inflamed: CoarseMap
    """Share of inflammation in the connective tissue around."""
    fatty: CoarseMap
    """Share of hypodermis in the hypodermis and connective tissue around."""


@dataclass(frozen=True)
class _Grids:
    """The mask seen through lookup tables, averaged onto a finer and a coarser grid."""

    mask: Mask
    mpp: float

    @property
    def fine(self) -> int:
        """Pixels per step of the finer grid."""
        return max(1, round(_NEAR_GRID_UM / self.mpp))

    @property
    def further(self) -> int:
        """Finer steps per step of the coarser grid."""
        return max(1, round(_FAR_GRID_UM / self.near_mpp))

    @property
    def near_mpp(self) -> float:
        """µm per step of the finer grid."""
        return self.mpp * self.fine

    @property
    def far_mpp(self) -> float:
        """µm per step of the coarser grid."""
        return self.near_mpp * self.further

    def near(self, lookup: NDArray[np.float32]) -> CoarseMap:
        """Values of ``lookup`` within a cell's height."""
        values = block_mean(lookup[self.mask], self.fine)
        return CoarseMap(_blur(values, _BORDER_BLUR_UM / self.near_mpp), self.near_mpp)

    def where(self, lookup: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Where ``lookup`` is above one half, on the finer grid."""
        return block_mean(lookup[self.mask], self.fine) > 0.5

    def smooth(self, steps: Field) -> CoarseMap:
        """A distance counted in steps of the finer grid, as smooth µm on the coarser one."""
        values = block_mean(steps, self.further) * np.float32(self.near_mpp)
        return CoarseMap(_blur(values, _DISTANCE_BLUR_UM / self.far_mpp), self.far_mpp)

    def around(self, name: str) -> Field:
        """Share of a tissue within the reach of a passage, on the coarser grid."""
        share = block_mean(block_mean(members(name)[self.mask], self.fine), self.further)
        return _blur(share, _PASSAGE_BLUR_UM / self.far_mpp)


def survey(mask: Mask, mpp: float, table: TextureTable) -> Geometry:
    """Measure the section."""
    grids = _Grids(mask, mpp)
    reticular, papillary, inflamed = (grids.around(name) for name in CONNECTIVE)
    # Papillary and reticular dermis are added first: exchanging them must not change a single bit of the sum.
    connective = (reticular + papillary) + inflamed
    fat = grids.around("HYP")
    keratin, nests = grids.where(members("KER")), grids.where(members(*BASALOID))
    from_keratin = grids.smooth(_steps_from(keratin))
    depth = from_keratin if keratin.any() else grids.smooth(_steps_below_outline(~grids.where(EMPTY)))
    return Geometry(
        from_keratin_um=from_keratin,
        depth_um=depth,
        from_nest_um=grids.smooth(_steps_from(nests)),
        dermis_near=grids.near(DERMAL),
        cleft_near=grids.near(table["cleft"]),
        papillary=CoarseMap(_ratio(papillary, connective), grids.far_mpp),
        inflamed=CoarseMap(_ratio(inflamed, connective), grids.far_mpp),
        fatty=CoarseMap(_ratio(fat, fat + connective), grids.far_mpp),
    )


def _ratio(part: Field, whole: Field) -> Field:
    return np.asarray(part / np.maximum(whole, np.float32(1e-6)), dtype=np.float32)


def _blur(values: Field, sigma_px: float) -> Field:
    return np.asarray(ndimage.gaussian_filter(values, sigma_px, mode="nearest", truncate=3.0), dtype=np.float32)


def _steps_below_outline(tissue: NDArray[np.bool_]) -> Field:
    """Depth in pixels below the outline; where none is in sight, layers run along the rows."""
    if tissue.all():
        return np.broadcast_to(np.arange(len(tissue), dtype=np.float32)[:, None], tissue.shape)
    return -_steps_from(ndimage.binary_fill_holes(tissue))


def _steps_from(inside: NDArray[np.bool_]) -> Field:
    """Pixels from the border of a region: negative inside it, positive outside."""
    rim = inside & ~ndimage.binary_erosion(inside, border_value=1)
    if not rim.any():
        return np.full(inside.shape, -_FAR_AWAY if inside.any() else _FAR_AWAY, dtype=np.float32)
    # The border runs half a pixel outside the rim's centres.
    steps = ndimage.distance_transform_edt(~rim)
    return np.asarray(np.where(inside, -steps - 0.5, steps - 0.5), dtype=np.float32)


# One section, measured and ready to be painted window by window.


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
