"""The pieces of tissue on a slide, found in its tissue mask and numbered row by row, from left to right.

A section that tore or whose fat hardly shows is still one piece: fragments closer together than the least gap that is
left between sections by hand belong together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from ntrm.core.arrays import BoolMask, Ints
from ntrm.core.errors import DataError, UsageError
from ntrm.core.io import write_arrays
from ntrm.core.mpp import Resolution
from ntrm.data.tiles import Window
from ntrm.regions.runs import dilated, runs_of
from ntrm.results.folder import SlideFolder
from ntrm.slides.quality.thumbnail import EIGHT, region_areas

PieceLabels = NDArray[np.uint16]
PieceBox = tuple[int, int, int, int]  # Top, left, height, width

JOINED_UM = 350.0  # Fragments closer together than this are one piece
LEAST_MM2 = 0.1  # Smaller ones are crumbs: they belong to no piece
MOST_PIECES = np.iinfo(np.uint16).max
MOST_PIXELS = 2**28  # Of a kept map: at 8 µm/px, a slide of 13 × 13 cm
NO_PIECE = 0  # In place of a piece's number, on glass and on crumbs


@dataclass(frozen=True)
class Piece:
    """One piece of tissue on a slide."""

    number: int  # From 1, in reading order
    bbox: PieceBox
    area_mm2: float
    touches_edge: bool  # Cut off by the edge of the scan, perhaps: what lies beyond is not known


@dataclass(frozen=True, eq=False)
class PieceMap:
    """The pieces of a slide and their numbers (H, W) on the grid of the tissue mask, 0 for no piece."""

    pieces: tuple[Piece, ...]
    numbers: PieceLabels
    mpp: Resolution

    @classmethod
    def of(cls, tissue: BoolMask, mpp: Resolution) -> PieceMap:
        """Those of a tissue mask (H, W) at ``mpp`` µm/px."""
        # Half the distance on either side: two fragments grow together when the gap is less than the whole.
        joined = dilated(runs_of(tissue), np.array([mpp.y, mpp.x]), JOINED_UM / 2).dense()
        labels, count = ndimage.label(joined, EIGHT)
        labels[~tissue] = 0
        areas = region_areas(labels, count, mpp)
        large = [number for number in range(1, count + 1) if areas[number] >= LEAST_MM2]
        if len(large) > MOST_PIECES:
            raise DataError("too many pieces on one slide", got=len(large), expected=f"at most {MOST_PIECES}")
        places = ndimage.find_objects(labels)
        ordered = reading_order([_box(places[number - 1]) for number in large])
        numbers = np.zeros(count + 1, dtype=np.uint16)
        numbers[[large[k] for k in ordered]] = np.arange(1, len(ordered) + 1)
        return cls.numbered(numbers[labels], mpp)

    @classmethod
    def numbered(cls, numbers: PieceLabels, mpp: Resolution) -> PieceMap:
        """Those of a mask of numbers, which begin with 1 and have no gaps."""
        areas, pieces = region_areas(numbers, int(numbers.max(initial=0)), mpp), []
        for number, place in enumerate(ndimage.find_objects(numbers.astype(np.int32)), start=1):
            top, left, height, width = box = _box(place)
            edge = 0 in (top, left) or top + height == numbers.shape[0] or left + width == numbers.shape[1]
            pieces.append(Piece(number, box, round(float(areas[number]), 6), edge))
        return cls(tuple(pieces), numbers, mpp)

    def cells(self, grid_mpp: Resolution, window: Window) -> tuple[Ints, Ints]:
        """Rows and columns of the tissue mask under those of a window of another grid of the slide."""
        return cells_under(window, grid_mpp, self.numbers.shape, self.mpp)

    def window(self, piece: Piece, grid_mpp: Resolution, shape: tuple[int, int]) -> Window:
        """The box of one of the pieces on another grid of the slide, ``shape`` (height, width) pixels large."""
        top, left, height, width = piece.bbox
        rows = _stretched(top, height, self.mpp.y / grid_mpp.y, self.numbers.shape[0], shape[0])
        columns = _stretched(left, width, self.mpp.x / grid_mpp.x, self.numbers.shape[1], shape[1])
        return Window(rows[0], columns[0], rows[1] - rows[0], columns[1] - columns[0])

    def save(self, path: Path) -> None:
        """Keep it; ``read`` gives it back."""
        write_arrays(path, {"numbers": self.numbers, "mpp": np.array([self.mpp.x, self.mpp.y])})

    @classmethod
    def read(cls, path: Path, *, hint: str) -> PieceMap:
        """Read what ``save`` wrote; raise a ``DataError`` with this hint where that fails."""
        kept = SlideFolder(path.parent).arrays(path.name, hint=hint, most=2 * MOST_PIXELS)
        try:
            numbers = kept["numbers"]
            if numbers.dtype != np.uint16 or numbers.ndim != 2:
                raise ValueError(f"numbers of pieces as {numbers.dtype} {numbers.shape}")
            return cls.numbered(numbers, Resolution(*kept["mpp"].tolist()))
        except (KeyError, ValueError, TypeError, UsageError) as error:
            raise DataError(f"cannot read {path}", got=error, hint=hint) from error

    def with_tissue(self, found: BoolMask) -> PieceMap:
        """The pieces with the tissue ``found`` (H, W) on the same grid added.

        It belongs to the nearest piece, unless none is as near as fragments of one piece are to each other.
        """
        new = found & (self.numbers == 0)
        if not (self.pieces and new.any()):
            return self
        away, (row, column) = ndimage.distance_transform_edt(
            self.numbers == 0, sampling=(self.mpp.y, self.mpp.x), return_indices=True
        )
        numbers = np.where(new & (away < JOINED_UM), self.numbers[row, column], self.numbers)
        return PieceMap.numbered(numbers, self.mpp)


def _box(place: tuple[slice, slice] | None) -> PieceBox:
    if place is None:
        raise ValueError("numbers of pieces with a gap")
    rows, columns = place
    return rows.start, columns.start, rows.stop - rows.start, columns.stop - columns.start


def reading_order(boxes: list[PieceBox]) -> list[int]:
    """Indices of boxes row by row, and from left to right in a row.

    A row is all boxes whose centre is level with the row's topmost box: a few pixels up or down change nothing.
    """
    left_over = sorted(range(len(boxes)), key=lambda k: boxes[k])
    order: list[int] = []
    while left_over:
        top, _, height, _ = boxes[left_over[0]]
        row = [k for k in left_over if k == left_over[0] or top <= boxes[k][0] + boxes[k][2] / 2 < top + height]
        order += sorted(row, key=lambda k: (boxes[k][1], boxes[k][0]))
        left_over = [k for k in left_over if k not in row]
    return order


def cells_under(window: Window, grid_mpp: Resolution, shape: tuple[int, ...], mpp: Resolution) -> tuple[Ints, Ints]:
    """Rows and columns of a mask of ``shape`` at ``mpp`` under the centres of those of a window of another grid."""
    rows = (window.top + np.arange(window.height) + 0.5) * (grid_mpp.y / mpp.y)
    columns = (window.left + np.arange(window.width) + 0.5) * (grid_mpp.x / mpp.x)
    # The coarser grid may end a fraction of a pixel before the finer one.
    return np.clip(rows.astype(np.int64), 0, shape[0] - 1), np.clip(columns.astype(np.int64), 0, shape[1] - 1)


def _stretched(start: int, length: int, factor: float, size: int, other: int) -> tuple[int, int]:
    """First and one past the last of ``other`` pixels that those from ``start`` on, out of ``size``, touch."""
    stop = start + length
    low = min(math.floor(start * factor + 1e-6), other - 1)
    # The last pixel stands for all that the finer grid has beyond the coarser one, as in ``cells_under``.
    return low, max(low + 1, other if stop == size else min(math.ceil(stop * factor - 1e-6), other))
