"""Several sections on one slide-sized picture, as a microtome leaves them on the glass."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ntrm.core.labels import SKIN, Mask
from ntrm.phantom.anatomy.truth import SectionTruth
from ntrm.phantom.layout import Section, layout
from ntrm.phantom.noise import derive, generator

GRID_UM = 6.7
"""Pieces lie on this grid: a whole number of pixels at 1x, 2x, 5x and 10x, so every level shows the same slide."""

GAP_UM = (600.0, 2500.0)
"""Least and greatest glass between two pieces and around them."""


@dataclass(frozen=True)
class Piece:
    """One section on a slide: where it lies and what is true of it."""

    number: int
    top_um: float
    left_um: float
    height_um: float
    width_um: float
    biopsy: str
    truth: SectionTruth

    def as_dict(self) -> dict[str, object]:
        """For ``truth.json``."""
        box = {key: round(getattr(self, key), 2) for key in ("top_um", "left_um", "height_um", "width_um")}
        return {"number": self.number, **box, "biopsy": self.biopsy, **self.truth.as_dict()}


@dataclass(frozen=True)
class Slide:
    """A mask with its pieces."""

    mask: Mask
    pieces: tuple[Piece, ...]


def lay_slide(seed: int, mpp: float, cancer: str, pieces: int = 1) -> Slide:
    """Draw ``pieces`` sections of one block beside and below each other.

    One piece is the section as ``layout`` draws it, on the common grid.
    """
    sections = [layout(derive(seed, "piece", k) if k else seed, mpp, cancer) for k in range(pieces)]
    sizes = [_cells(section) for section in sections]
    if pieces == 1:
        places, (height, width) = [(0, 0)], sizes[0]
    else:
        places, (height, width) = _shelves(sizes, seed)
    pixels = GRID_UM / mpp
    shape = round(height * pixels), round(width * pixels)
    mask: Mask = np.full(shape, SKIN.index("BKG"), dtype=np.uint8)
    for section, (row, column) in zip(sections, places, strict=True):
        top, left = round(row * pixels), round(column * pixels)
        mask[top : top + section.mask.shape[0], left : left + section.mask.shape[1]] = section.mask
    boxes = zip(sections, sizes, places, strict=True)
    return Slide(mask, tuple(_piece(k, *box) for k, box in enumerate(boxes, start=1)))


def _cells(section: Section) -> tuple[int, int]:
    """Extent of a section in grid cells. The tolerance keeps rounding noise from adding a cell at one level only."""
    height, width = section.mask.shape
    scale = section.mpp / GRID_UM
    return math.ceil(height * scale - 0.5), math.ceil(width * scale - 0.5)


def _piece(number: int, section: Section, cells: tuple[int, int], place: tuple[int, int]) -> Piece:
    top, left = (value * GRID_UM for value in place)
    height, width = (value * GRID_UM for value in cells)
    return Piece(number, top, left, height, width, section.biopsy, section.truth)


def _shelves(sizes: list[tuple[int, int]], seed: int) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """Places (row, column) in cells, row by row, and the size of the slide that holds them."""
    random = generator(seed, "slide")
    columns = math.ceil(math.sqrt(len(sizes)))

    def gap() -> int:
        return round(random.uniform(*GAP_UM) / GRID_UM)

    places: list[tuple[int, int]] = []
    top, width = gap(), 0
    for first in range(0, len(sizes), columns):
        left, bottom = gap(), top
        for height_k, width_k in sizes[first : first + columns]:
            row = top + gap() // 4
            places.append((row, left))
            left += width_k + gap()
            bottom = max(bottom, row + height_k)
        width = max(width, left)
        top = bottom + gap()
    return places, (top, width)
