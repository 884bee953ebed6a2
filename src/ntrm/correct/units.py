"""Whole regions of the network's mask, which a person can name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ntrm.core.arrays import Floats, Ints
from ntrm.core.errors import UsageError
from ntrm.core.mpp import Resolution
from ntrm.correct.log import Place
from ntrm.correct.pixels import PixelSet
from ntrm.regions.region_table import NOTHING, region_table
from ntrm.regions.regions import Regions
from ntrm.regions.runs import RunLengths, Where, distinct

MOST_OF_IT = 0.5  # A lasso picks what lies inside it with at least this share of its pixels


@dataclass(frozen=True, eq=False)
class Units:
    """Regions by number, from 0."""

    runs: RunLengths
    of: Ints  # (n,) the unit of each run; negative where nothing is known
    tissue: Ints  # (U,) what the network called each of them

    @classmethod
    def in_mask(cls, regions: Regions) -> Units:
        """The connected regions of a mask."""
        return cls(regions.runs, regions.region.astype(np.int64), regions.table.tissue)

    def at(self, place: Place) -> int:
        """The unit under a pixel of the mask."""
        (row, column), (height, width) = place, self.runs.shape
        if not (0 <= row < height and 0 <= column < width):
            raise UsageError(
                "the place lies outside the mask",
                got=f"row {row}, column {column}",
                expected=f"rows 0 to {height - 1}, columns 0 to {width - 1}",
            )
        unit = int(self.of[self.runs.at(np.array([row * width + column]))[0]])
        if unit < 0:
            raise UsageError("no region is known here", got=f"row {row}, column {column}", hint="choose another place")
        return unit

    def pixels(self, units: Ints) -> PixelSet:
        """All pixels of some units."""
        return PixelSet.of_runs(self.runs, np.isin(self.of, units[units >= 0]))

    @cached_property
    def first(self) -> Ints:
        """(U,) flattened index of the first pixel of each."""
        first = np.zeros(len(self.tissue) + 1, dtype=np.int64)
        first[np.maximum(self.of, -1)[::-1]] = self.runs.start[::-1]
        return first[:-1]

    def place(self, unit: int) -> Place:
        """Its first pixel."""
        row, column = divmod(int(self.first[unit]), self.runs.shape[1])
        return row, column

    def pixels_of(self, pixels: PixelSet) -> Ints:
        """(U,) how many of these pixels each has."""
        size = self.runs.shape[0] * self.runs.shape[1]
        cut = distinct(np.concatenate([self.runs.start, pixels.start, pixels.stop]))
        cut = cut[cut < size]
        unit, length = self.of[self.runs.at(cut)], np.diff(cut, append=size) * pixels.holds(cut)
        return np.bincount(unit[unit >= 0], length[unit >= 0], len(self.tissue)).astype(np.int64)

    def inside(self, drawn: PixelSet, is_glass: Where) -> Ints:
        """What a lasso picks: units that lie in it for the most part, or the one that fills most of it.

        Glass, told for each unit, is picked where there is nothing else: who draws around tissue means the tissue.
        """
        known, counts = self.of >= 0, self.pixels_of(drawn)
        whole = np.bincount(self.of[known], self.runs.length[known], len(self.tissue))
        found = np.flatnonzero((counts >= MOST_OF_IT * whole) & (counts > 0))
        if not len(found) and counts.any():
            found = np.array([int(counts.argmax())])
        tissue = found[~is_glass[found]]
        return tissue if len(tissue) else found


def outlines(pixels: PixelSet, shape: tuple[int, int], scale: tuple[float, float]) -> list[Floats]:
    """Rings (n, 2) around a set of pixels, holes too, with x and y in pixels that are ``scale`` of the mask's."""
    from ntrm.regions.polygons import outlines_of

    if not pixels:
        return []
    width = shape[1]
    top, bottom = int(pixels.start[0]) // width, (int(pixels.stop[-1]) - 1) // width + 1
    begins = np.arange(top, bottom, dtype=np.int64) * width
    cut = distinct(np.concatenate([begins, pixels.start, pixels.stop[pixels.stop < bottom * width]]))
    inside = pixels.holds(cut)
    runs = RunLengths((bottom - top, width), cut - top * width, inside.astype(np.uint8))
    region, piece = np.where(inside, 0, NOTHING).astype(np.int32), np.zeros(len(runs), dtype=np.uint16)
    # Lengths are not asked for.
    table = region_table(runs, piece, region, 1, None, 1.0, Resolution.square(1.0))
    found = outlines_of(Regions(runs, piece, region, table))
    return [
        (each.points[begin:end] + np.array([0, top])) * np.array(scale)
        for each in found
        for spans in each.spans()
        for begin, end in spans
    ]
