"""The pieces of tissue on a slide, found in its tissue mask and numbered row by row, from left to right.

A section that tore or whose fat hardly shows is still one piece: fragments closer together than the least gap that is
left between sections by hand belong together.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.errors import DataError, UsageError
from ntrm.core.io import read_arrays, write_arrays
from ntrm.core.mpp import Resolution
from ntrm.core.threads import thread_map
from ntrm.data.tiles import Window
from ntrm.wsi.quality.morphology import BoolMask, Indices, dilated

PieceLabels = NDArray[np.uint16]
Box = tuple[int, int, int, int]
"""Top, left, height, width."""

JOINED_UM = 350.0
"""Fragments closer together than this are one piece."""
LEAST_MM2 = 0.1
"""Smaller ones are crumbs: they belong to no piece."""
MOST_PIECES = np.iinfo(np.uint16).max
BAND_PIXELS = 1 << 20
"""Pixels of a tissue mask that are looked at together, in one of several threads."""


@dataclass(frozen=True)
class Piece:
    """One piece of tissue on a slide."""

    number: int
    """From 1, in reading order."""
    bbox: Box
    """In pixels of the tissue mask."""
    area_mm2: float
    touches_edge: bool
    """Cut off by the edge of the scan, perhaps: what lies beyond is not known."""

    def __post_init__(self) -> None:
        top, left, height, width = self.bbox
        if self.number < 1 or min(top, left) < 0 or min(height, width) < 1 or not 0 < self.area_mm2 < math.inf:
            raise UsageError("impossible piece", got=self, expected="a number from 1, a box with pixels, an area")

    def window(self, mask_mpp: Resolution, grid_mpp: Resolution, shape: tuple[int, int]) -> Window:
        """Its box on another grid of the same slide, ``shape`` (height, width) pixels large; every pixel it touches.

        >>> Piece(1, (2, 4, 10, 20), 1.0, False).window(Resolution(20, 20), Resolution(10, 10), (100, 100))
        Window(top=4, left=8, height=20, width=40, pad_bottom=0, pad_right=0)
        """
        top, left, height, width = self.bbox
        rows = _stretched(top, height, mask_mpp.y / grid_mpp.y, shape[0])
        columns = _stretched(left, width, mask_mpp.x / grid_mpp.x, shape[1])
        return Window(rows[0], columns[0], rows[1] - rows[0], columns[1] - columns[0])

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {**asdict(self), "bbox": list(self.bbox)}


def find_pieces(tissue: BoolMask, mpp: Resolution) -> tuple[tuple[Piece, ...], PieceLabels]:
    """The pieces of a tissue mask (H, W) at ``mpp`` µm/px, and the mask of their numbers (H, W), 0 for no piece.

    >>> tissue = np.zeros((60, 120), dtype=bool)
    >>> tissue[10:50, 10:50] = tissue[12:50, 90:110] = True
    >>> pieces, labels = find_pieces(tissue, Resolution.square(20.0))
    >>> [(piece.number, piece.bbox, piece.area_mm2) for piece in pieces]
    [(1, (10, 10, 40, 40), 0.64), (2, (12, 90, 38, 20), 0.304)]
    """
    if tissue.ndim != 2 or tissue.dtype != np.bool_:
        raise DataError("no tissue mask", got=f"{tissue.dtype} {tissue.shape}", expected="bool (height, width)")
    own, region = _joined(tissue, mpp)
    areas = np.bincount(region, own.stop - own.start) * (mpp.pixel_area_um2 / 1e6)
    large = np.flatnonzero(areas >= LEAST_MM2)
    if len(large) > MOST_PIECES:
        raise DataError("too many pieces on one slide", got=len(large), expected=f"at most {MOST_PIECES}")
    every = _boxes(own, region, len(areas))
    boxes = [_box(*every[one]) for one in large]
    order = reading_order(boxes)
    numbers = np.zeros(len(areas), dtype=np.uint16)
    numbers[large[order]] = np.arange(1, len(order) + 1)
    pieces = tuple(
        Piece(number, boxes[k], round(float(areas[large[k]]), 6), _touches_edge(every[large[k]], tissue.shape))
        for number, k in enumerate(order, start=1)
    )
    return pieces, own.painted(numbers[region])


class _Stretches(NamedTuple):
    """The stretches of a mask along its rows, in reading order; a thumbnail has few of them for its many pixels.

    Places count along all rows, each with an empty pixel before its first, so that no stretch goes on in the next row.
    """

    shape: tuple[int, int]
    start: Indices
    stop: Indices
    """Place after the last pixel."""

    @property
    def wide(self) -> int:
        """Places of a row."""
        return self.shape[1] + 1

    def painted(self, values: PieceLabels) -> PieceLabels:
        """(H, W) the value of each stretch, and 0 outside."""
        row = self.start // self.wide + 1
        cuts = np.stack([self.start - row, self.stop - row], axis=1).ravel()
        lengths = np.diff(cuts, prepend=0, append=self.shape[0] * self.shape[1])
        between = np.zeros(len(lengths), dtype=np.uint16)
        between[1::2] = values
        return np.repeat(between, lengths).reshape(self.shape)


def _joined(tissue: BoolMask, mpp: Resolution) -> tuple[_Stretches, Indices]:
    """The stretches of tissue, and for each the number of its region, which is one with all that lies near enough."""
    height, width = tissue.shape
    reach = math.ceil(JOINED_UM / 2 / mpp.y)
    step = max(BAND_PIXELS // max(width, 1), 4 * reach)

    def found(top: int) -> tuple[Indices, ...]:
        first, bottom = max(top - reach, 0), min(top + step, height)
        # Half the distance on either side: two fragments grow together when the gap is less than the whole.
        near = dilated(tissue[first : bottom + reach], JOINED_UM / 2, mpp)
        shift = top * (width + 1)
        return (*(_edges(tissue[top:bottom]) + shift), *(_edges(near[top - first : bottom - first]) + shift))

    none = (np.zeros(0, dtype=np.int64),) * 4
    columns = [np.concatenate(each) for each in zip(none, *thread_map(found, range(0, height, step)), strict=True)]
    own, near = _Stretches((height, width), *columns[:2]), _Stretches((height, width), *columns[2:])
    return own, _regions(near)[np.searchsorted(near.start, own.start, side="right") - 1]


def _edges(mask: BoolMask) -> Indices:
    """(2, n) where the stretches of a mask begin, and where they have ended."""
    padded = np.zeros((mask.shape[0], mask.shape[1] + 1), dtype=bool)
    padded[:, 1:] = mask
    flat = padded.ravel()
    edges = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    if len(edges) % 2:
        edges = np.append(edges, flat.size)  # the last stretch ends with the mask
    return np.asarray(edges.reshape(-1, 2).T)


def _regions(near: _Stretches) -> Indices:
    """For each stretch the number of its region, in reading order: stretches of neighbouring rows that touch."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    # Also at corners: above a stretch, up to the pixels before and after it.
    first = np.searchsorted(near.stop, near.start - near.wide)
    above = np.searchsorted(near.start, near.stop - near.wide, side="right") - first
    below = np.repeat(np.arange(len(first)), above)
    index = np.arange(len(below)) - np.repeat(np.cumsum(above) - above, above) + np.repeat(first, above)
    graph = coo_array((np.ones(len(below), dtype=np.int8), (below, index)), (len(first), len(first)))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def _boxes(own: _Stretches, region: Indices, count: int) -> list[tuple[slice, slice]]:
    """Rows and columns of each region."""
    row, left = np.divmod(own.start, own.wide)
    low, high = np.full((2, count), max(own.shape)), np.zeros((2, count), dtype=np.int64)
    for axis, (begin, end) in enumerate(((row, row + 1), (left - 1, left - 1 + own.stop - own.start))):
        np.minimum.at(low[axis], region, begin)
        np.maximum.at(high[axis], region, end)
    spans = np.stack([low, high], axis=-1).tolist()
    return [(slice(*rows), slice(*columns)) for rows, columns in zip(*spans, strict=True)]


@dataclass(frozen=True, eq=False)
class PieceMap:
    """The pieces of a slide, found once, and their numbers (H, W) on the grid of the tissue mask."""

    pieces: tuple[Piece, ...]
    numbers: PieceLabels
    mpp: Resolution

    @classmethod
    def of(cls, tissue: BoolMask, mpp: Resolution) -> PieceMap:
        """Of a tissue mask."""
        return cls(*find_pieces(tissue, mpp), mpp)

    def on_grid(self, grid_mpp: Resolution, window: Window) -> PieceLabels:
        """Numbers of the pieces in a window of another grid of the slide: (window.height, window.width)."""
        rows, columns = self.cells(grid_mpp, window)
        # The tissue's rows are few: they are widened before they are repeated.
        first = int(rows[0])
        wide = self.numbers[first : int(rows[-1]) + 1][:, columns]
        return np.asarray(wide[rows - first])

    def cells(self, grid_mpp: Resolution, window: Window) -> tuple[Indices, Indices]:
        """Rows and columns of the tissue mask under those of a window of another grid of the slide."""
        rows = _nearest(window.top, window.height, grid_mpp.y / self.mpp.y, self.numbers.shape[0])
        columns = _nearest(window.left, window.width, grid_mpp.x / self.mpp.x, self.numbers.shape[1])
        return rows, columns

    def save(self, path: Path) -> None:
        """Keep it; ``read`` gives it back."""
        arrays = {
            "numbers": self.numbers,
            "mpp": np.array([self.mpp.x, self.mpp.y]),
            "box": np.array([piece.bbox for piece in self.pieces], dtype=np.int64).reshape(-1, 4),
            "area_mm2": np.array([piece.area_mm2 for piece in self.pieces], dtype=np.float64),
            "touches_edge": np.array([piece.touches_edge for piece in self.pieces], dtype=bool),
        }
        write_arrays(path, arrays)

    @classmethod
    def read(cls, path: Path, *, hint: str) -> PieceMap:
        """What ``save`` kept; what cannot be read is our error, with this hint."""
        kept = read_arrays(path, hint=hint)
        try:
            columns = zip(kept["box"].tolist(), kept["area_mm2"].tolist(), kept["touches_edge"].tolist(), strict=True)
            pieces = (Piece(number, tuple(box), area, edge) for number, (box, area, edge) in enumerate(columns, 1))
            return cls(tuple(pieces), kept["numbers"].astype(np.uint16), Resolution(*kept["mpp"].tolist()))
        except (KeyError, ValueError, TypeError, UsageError) as error:
            raise DataError(f"cannot read {path}", got=error, hint=hint) from error

    def with_tissue(self, found: BoolMask) -> PieceMap:
        """With the tissue ``found`` (H, W) on the same grid.

        It belongs to the nearest piece, unless none is as near as fragments of one piece are to each other.
        """
        new = found & (self.numbers == 0)
        if not (self.pieces and new.any()):
            return self
        away, (row, column) = ndimage.distance_transform_edt(
            self.numbers == 0, sampling=(self.mpp.y, self.mpp.x), return_indices=True
        )
        joins = new & (away < JOINED_UM)
        numbers = np.where(joins, self.numbers[row, column], self.numbers)
        return PieceMap(tuple(self._grown(piece, numbers) for piece in self.pieces), numbers, self.mpp)

    def _grown(self, piece: Piece, numbers: PieceLabels) -> Piece:
        """The piece with all pixels of its number."""
        own = numbers == piece.number
        added = int(own.sum()) - int((self.numbers == piece.number).sum())
        if not added:
            return piece
        slices = ndimage.find_objects(own.astype(np.uint8))[0]
        area = round(piece.area_mm2 + added * self.mpp.pixel_area_um2 / 1e6, 6)
        return Piece(piece.number, _box(*slices), area, piece.touches_edge or _touches_edge(slices, numbers.shape))


def reading_order(boxes: list[Box]) -> list[int]:
    """Indices of boxes row by row, and from left to right in a row.

    A row is all boxes whose centre is level with the row's topmost box: a few pixels up or down change nothing.

    >>> reading_order([(12, 0, 30, 10), (10, 50, 30, 10), (60, 20, 30, 10)])
    [0, 1, 2]
    """
    left_over = sorted(range(len(boxes)), key=lambda k: boxes[k])
    order: list[int] = []
    while left_over:
        top, _, height, _ = boxes[left_over[0]]
        row = [k for k in left_over if k == left_over[0] or top <= boxes[k][0] + boxes[k][2] / 2 < top + height]
        order += sorted(row, key=lambda k: (boxes[k][1], boxes[k][0]))
        left_over = [k for k in left_over if k not in row]
    return order


def _nearest(start: int, length: int, factor: float, size: int) -> Indices:
    """Pixels under the centres of ``length`` pixels of another grid."""
    indices = np.floor((start + np.arange(length) + 0.5) * factor).astype(np.int64)
    # The coarser grid may end a fraction of a pixel before the finer one.
    return np.asarray(np.clip(indices, 0, size - 1), dtype=np.int64)


def _stretched(start: int, length: int, factor: float, size: int) -> tuple[int, int]:
    low = min(math.floor(start * factor + 1e-6), size - 1)
    return low, max(low + 1, min(math.ceil((start + length) * factor - 1e-6), size))


def _box(rows: slice, columns: slice) -> Box:
    return rows.start, columns.start, rows.stop - rows.start, columns.stop - columns.start


def _touches_edge(slices: tuple[slice, slice], shape: tuple[int, ...]) -> bool:
    return any(one.start == 0 or one.stop == size for one, size in zip(slices, shape, strict=True))
