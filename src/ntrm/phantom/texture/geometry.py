"""Where a pixel lies in the section: its depth, the nearest border, the tissues it passes into.

Look-alike tissues are never told apart here: every map treats the members of a group as one, or blurs a column of the
texture table, so that the table alone decides how much they differ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.labels import Mask
from ntrm.phantom.noise import Field
from ntrm.phantom.texture.grid import CoarseMap, block_mean
from ntrm.phantom.texture.table import BASALOID, CONNECTIVE, DERMAL, EMPTY, TextureTable, members

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
