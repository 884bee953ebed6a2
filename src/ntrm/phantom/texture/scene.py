"""One section measured for painting: windows of pixels, maps on coarser grids, depth, borders and nearby tissues.

Look-alike tissues are never told apart here: every map treats the members of a group as one, or blurs a column of the
texture table, so that the table alone decides how much they differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, sparse

from ntrm.core.labels import IGNORE, SKIN, Mask
from ntrm.core.pixels import block_means
from ntrm.phantom import noise
from ntrm.phantom.anatomy.frame import PhantomGrid
from ntrm.phantom.noise import Field, Points, derive, hash_uniform, pixel_centres
from ntrm.phantom.texture.looks import Look
from ntrm.phantom.texture.table import (
    BASALOID,
    CONNECTIVE,
    DERMAL,
    EMPTY,
    IN_PASSAGE,
    TextureTable,
    members,
    texture_table,
)
from ntrm.phantom.tissues import PASSING, codes_of

_NEAR_GRID_UM, _FAR_GRID_UM = 6.7, 13.4
_BORDER_BLUR_UM = 8.0  # About the height of a basal cell
_TRANSITION_BLUR_UM = 28.0
"""Papillary dermis, reticular dermis and inflammation pass into each other over about three times this."""
_DISTANCE_BLUR_UM = 20.0
_STRAND_BLUR_UM = 4.0
_FAR_AWAY = 1000.0  # Steps to what is nowhere in the section

_CELL_JITTER = 0.75
"""Fraction of a lattice square over which its cell's centre may lie; below 1 keeps cells of comparable size."""
FAT_CELLS, FAT_CELL_UM = "fat cells", 78.0  # Name of the fat cells' lattice, and its spacing
_RET, _HYP = SKIN.index("RET"), SKIN.index("HYP")
_FAT_OR_CONNECTIVE = members("HYP") + IN_PASSAGE > 0

Positions = Points | Field
"""µm positions along one axis, precise for points, single precision for every pixel of a window."""


@dataclass(frozen=True)
class CoarseMap:
    """Smooth values on a grid that starts at the section's corner; read bilinearly, constant beyond the edge."""

    values: Field
    mpp: float

    def over(self, window: PhantomGrid) -> Field:
        """Values at the window's pixel centres."""
        (y_um, x_um), (height, width), size = window.origin_um, window.shape, self.values.shape
        rows, across_y = _linear_matrix(y_um, height, window.mpp, self.mpp, size[0])
        columns, across_x = _linear_matrix(x_um, width, window.mpp, self.mpp, size[1])
        # Columns first: the large product then comes out row by row in memory.
        narrow = np.ascontiguousarray((across_x @ self.values[rows, columns].T).T)
        return np.asarray(across_y @ narrow)

    def at(self, y_um: Positions, x_um: Positions) -> Field:
        """Values at arbitrary points."""
        where = np.stack([y_um / self.mpp - 0.5, x_um / self.mpp - 0.5])
        return np.asarray(ndimage.map_coordinates(self.values, where, order=1, mode="nearest"))

    def uphill_at(self, y_um: Positions, x_um: Positions) -> Points:
        """Direction (radians, from x towards y) in which the values grow at points."""
        steps = (-self.mpp, self.mpp)
        neighbours = [*((y_um, x_um + step) for step in steps), *((y_um + step, x_um) for step in steps)]
        left, right, above, below = (self.at(y, x).astype(np.float64) for y, x in neighbours)
        return np.arctan2(below - above, right - left)


@lru_cache(maxsize=64)
def _linear_matrix(
    origin_um: float, count: int, mpp: float, map_mpp: float, map_size: int
) -> tuple[slice, sparse.csr_matrix]:
    """The stretch of a map's axis that ``count`` pixels need, and the sparse matrix that interpolates along it."""
    position = np.clip(pixel_centres(count, mpp, origin_um) / map_mpp - 0.5, 0, map_size - 1)
    low = np.minimum(position.astype(np.int64), max(map_size - 2, 0))
    high = np.minimum(low + 1, map_size - 1)
    stretch = slice(int(low[0]), int(high[-1]) + 1)
    weights = np.stack([1.0 - (position - low), position - low], axis=1).astype(np.float32)
    columns = np.stack([low, high], axis=1) - stretch.start
    ends = np.arange(0, 2 * count + 1, 2)
    shape = (count, stretch.stop - stretch.start)
    return stretch, sparse.csr_matrix((weights.ravel(), columns.ravel(), ends), shape=shape)


@dataclass(frozen=True)
class Cells:
    """Worley noise at points: how far each is from its cell's centre and wall, and where that centre is."""

    centre_um: Field
    wall_um: Field
    centre_y_um: Field
    centre_x_um: Field
    mark: Field  # Uniform in [0, 1), one value per cell


def cells_at(seed: int, y_um: Positions, x_um: Positions, spacing_um: float) -> Cells:
    """Cells of a jittered lattice (the polygons of fat, the coils of glands) around points (1-D, at least one)."""
    y, x = (y_um / spacing_um).astype(np.float32), (x_um / spacing_um).astype(np.float32)
    row, column = np.floor(y).astype(np.int64), np.floor(x).astype(np.int64)
    # Centres of the squares that the points lie in and of one more on every side, flattened.
    rows = np.arange(row.min() - 1, row.max() + 2)[:, None]
    columns = np.arange(column.min() - 1, column.max() + 2)[None, :]
    lattice = (
        rows + 0.5 + _CELL_JITTER * (hash_uniform(derive(seed, "y"), rows, columns) - 0.5),
        columns + 0.5 + _CELL_JITTER * (hash_uniform(derive(seed, "x"), rows, columns) - 0.5),
        hash_uniform(derive(seed, "mark"), rows, columns),
    )
    centre_y, centre_x, mark = (values.astype(np.float32).ravel() for values in lattice)
    width = columns.size
    own = (row - rows[0, 0]) * width + (column - columns[0, 0])
    nearest, second = np.full(y.shape, 9.0, np.float32), np.full(y.shape, 9.0, np.float32)
    owner = np.zeros(y.shape, dtype=np.int64)
    for step in (dy * width + dx for dy in (-1, 0, 1) for dx in (-1, 0, 1)):
        index = own + step
        gap = (centre_y[index] - y) ** 2 + (centre_x[index] - x) ** 2
        closer = gap < nearest
        second = np.where(closer, nearest, np.minimum(second, gap))
        nearest = np.where(closer, gap, nearest)
        owner = np.where(closer, index, owner)
    to_centre, to_second, scale = np.sqrt(nearest), np.sqrt(second), np.float32(spacing_um)
    return Cells(
        centre_um=to_centre * scale,
        wall_um=(to_second - to_centre) * (scale / 2),
        centre_y_um=centre_y[owner] * scale,
        centre_x_um=centre_x[owner] * scale,
        mark=mark[owner],
    )


class _Grids:
    """The mask seen through lookup tables, averaged onto a finer and a coarser grid."""

    def __init__(self, mask: Mask, mpp: float) -> None:
        self.mask = mask
        self.present = np.bincount(mask.ravel(), minlength=IGNORE + 1) > 0
        self.near_factor = max(1, round(_NEAR_GRID_UM / mpp))  # pixels per step of the finer grid
        self.near_mpp = mpp * self.near_factor
        self.far_factor = max(1, round(_FAR_GRID_UM / self.near_mpp))  # finer steps per step of the coarser grid
        self.far_mpp = self.near_mpp * self.far_factor

    def _mean(self, lookup: Field) -> Field:
        return block_means(lookup[self.mask], (self.near_factor,) * 2)

    def near(self, lookup: Field) -> CoarseMap:
        """Values of ``lookup`` within a cell's height."""
        return CoarseMap(blur(self._mean(lookup), _BORDER_BLUR_UM / self.near_mpp), self.near_mpp)

    def where(self, lookup: Field) -> NDArray[np.bool_]:
        """Where ``lookup`` is above one half, on the finer grid."""
        return self._mean(lookup) > 0.5

    def smooth(self, steps: Field) -> CoarseMap:
        """A distance counted in steps of the finer grid, as smooth µm on the coarser one."""
        values = block_means(steps, (self.far_factor,) * 2) * np.float32(self.near_mpp)
        return CoarseMap(blur(values, _DISTANCE_BLUR_UM / self.far_mpp), self.far_mpp)

    def sharp(self, steps: Field) -> CoarseMap:
        """The same on the finer grid, hardly smoothed."""
        values = steps * np.float32(self.near_mpp)
        return CoarseMap(blur(values, _STRAND_BLUR_UM / self.near_mpp), self.near_mpp)

    def has(self, name: str) -> bool:
        """Whether a fine tissue is in the section."""
        return bool(self.present[codes_of(name)].any())

    def around(self, name: str) -> Field:
        """Fraction of a tissue in the neighbourhood, on the coarser grid."""
        fraction = block_means(self._mean(members(name)), (self.far_factor,) * 2)
        return blur(fraction, _TRANSITION_BLUR_UM / self.far_mpp)

    def ratio(self, values: Field, total: Field) -> CoarseMap:
        """A fraction of ``total``."""
        return CoarseMap(np.asarray(values / np.maximum(total, np.float32(1e-6)), dtype=np.float32), self.far_mpp)


class Geometry:
    """Maps over the whole section. Fractions are of the tissue around."""

    def __init__(self, mask: Mask, mpp: float, table: TextureTable) -> None:
        grids = _Grids(mask, mpp)
        self.dermis_near = grids.near(DERMAL)  # Fraction, 0.5 at the border, above 0 within a cell's height of it
        self.cleft_near = grids.near(table["cleft"])
        reticular, papillary, inflamed, fat = (grids.around(name) for name in (*CONNECTIVE, "HYP"))
        # Papillary and reticular dermis are added first: exchanging them must not change a single bit of the sum.
        connective = (reticular + papillary) + inflamed
        # Fractions of the connective tissue: elastosis, oedema and scars only where the section has them.
        self.papillary, self.inflamed = grids.ratio(papillary, connective), grids.ratio(inflamed, connective)
        self.passing = {name: grids.ratio(grids.around(name), connective) for name in PASSING if grids.has(name)}
        self.fatty = grids.ratio(fat, fat + connective)
        keratin, tissue = grids.where(members("KER")), ~grids.where(EMPTY)
        # Distances from a border are negative inside it.
        self.from_nest_um = grids.smooth(_steps_from(grids.where(members(*BASALOID))))
        from_keratin = _steps_from(keratin)
        self.from_keratin_um = grids.smooth(from_keratin)
        self.in_keratin_um = grids.sharp(from_keratin) if grids.has("basket weave") else None
        # Depth below the skin's surface is from keratin where there is any, else from the outline of the tissue.
        self.depth_um = self.from_keratin_um
        if tissue.all() and not keratin.any():  # without an outline, layers run along the rows
            rows = np.arange(len(tissue), dtype=np.float32)[:, None]
            self.depth_um = grids.smooth(np.broadcast_to(rows, tissue.shape))
        elif not keratin.any():
            self.depth_um = grids.smooth(-_steps_from(ndimage.binary_fill_holes(tissue)))


def blur(values: Field, sigma_px: float) -> Field:
    """Smooth by a Gaussian; edge pixels are repeated beyond the edge."""
    return np.asarray(ndimage.gaussian_filter(values, sigma_px, mode="nearest", truncate=3.0), dtype=np.float32)


def _steps_from(inside: NDArray[np.bool_]) -> Field:
    """Pixels from the border of a region: negative inside it, positive outside."""
    rim = inside & ~ndimage.binary_erosion(inside, border_value=1)
    if not rim.any():
        return np.full(inside.shape, -_FAR_AWAY if inside.any() else _FAR_AWAY, dtype=np.float32)
    # The border runs half a pixel outside the rim's centres.
    steps = ndimage.distance_transform_edt(~rim)
    return np.asarray(np.where(inside, -steps - 0.5, steps - 0.5), dtype=np.float32)


@dataclass(frozen=True)
class SlowNoise:
    """Noise that is smooth enough for a coarse grid."""

    eosin: CoarseMap
    haematoxylin: CoarseMap
    bend: CoarseMap  # Bends strands
    patch: CoarseMap  # Tells patches apart; septa run where it crosses zero


@dataclass(frozen=True)
class Scene:
    """A section: what lies where, how each tissue looks, and the randomness that belongs to it."""

    mask: Mask
    mpp: float
    seed: int
    table: TextureTable
    geometry: Geometry = field(repr=False)
    slow: SlowNoise = field(repr=False)
    look: Look | None = None  # What is particular to the look of this section

    @classmethod
    def prepare(cls, mask: Mask, mpp: float, seed: int, ambiguity: float, look: Look | None = None) -> Scene:
        """Measure the section and draw its slow noise once."""
        table = texture_table(ambiguity) if look is None else texture_table(ambiguity, look.tissues, look.fine)
        geometry = Geometry(mask, mpp, table)
        height, width = (int(np.ceil(n * mpp / _FAR_GRID_UM)) + 1 for n in mask.shape)

        def slow(name: str, wavelength_um: float, count: int) -> CoarseMap:
            values = noise.octaves(derive(seed, name), (height, width), _FAR_GRID_UM, wavelength_um, count)
            return CoarseMap(np.ascontiguousarray(values), _FAR_GRID_UM)

        dyes = slow("eosin", 900.0, 4), slow("haematoxylin", 700.0, 4)
        slow_noise = SlowNoise(*dyes, bend=slow("bend", 180.0, 2), patch=slow("patch", 400.0, 2))
        return cls(mask, mpp, seed, table, geometry, slow_noise, look)

    def noise(self, name: str, window: PhantomGrid, wavelength_um: float) -> Field:
        """The section's noise called ``name`` over a window."""
        values = noise.field(derive(self.seed, name), window.shape, window.mpp, wavelength_um, window.origin_um)
        return np.ascontiguousarray(values)

    def tissue_at(self, y_um: Positions, x_um: Positions, fatty: Field | None = None) -> Mask:
        """Mask value under each position (beyond the edge: of the edge), with fat cells kept whole.

        ``fatty`` is the geometry's map at the positions, for callers that can read it faster than point by point.
        """
        height, width = self.mask.shape
        row, column = np.clip(y_um * (1 / self.mpp), 0, height - 1), np.clip(x_um * (1 / self.mpp), 0, width - 1)
        tissue = np.asarray(self.mask[row.astype(np.intp), column.astype(np.intp)])
        fatty = self.geometry.fatty.at(y_um, x_um) if fatty is None else fatty
        mixed = np.nonzero((fatty > 0.02) & (fatty < 0.98) & _FAT_OR_CONNECTIVE[tissue])
        if mixed[0].size:  # A fat cell belongs to one side as a whole.
            cells = cells_at(derive(self.seed, FAT_CELLS), y_um[mixed], x_um[mixed], FAT_CELL_UM)
            fat = self.geometry.fatty.at(cells.centre_y_um, cells.centre_x_um) > 0.35 + 0.3 * cells.mark
            tissue[mixed] = np.where(fat, _HYP, np.where(tissue[mixed] == _HYP, _RET, tissue[mixed]))
        return tissue
