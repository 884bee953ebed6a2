"""The table of all regions of a mask: sizes, places, outlines, and which of them touch, computed from their runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Floats, Ints
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution
from ntrm.core.wording import short_repr
from ntrm.regions.runs import RunLengths, Where, split_overlaps

SIDES = 1 << 18  # Places where runs meet that are counted together
BACKGROUND, NOTHING = -1, -2  # In place of a region: background, and pixels that are ignored or lie beyond the mask


@dataclass(frozen=True, eq=False)
class RegionTable:
    """R regions in the order of their numbers. Pixel sides are counted by direction: (…, 2) horizontal, vertical."""

    resolution: Resolution
    number: Ints  # (R,) from 1, over the whole slide
    tissue: Ints  # (R,) class
    piece: Ints  # (R,) from 1; 0 outside all pieces
    pixels: Ints  # (R,)
    first: Ints  # (R,) flattened index of the first pixel
    centroid: Floats  # (R, 2) row and column in pixels
    box: Ints  # (R, 4) top, left, height, width in pixels
    confidence: Floats | None  # (R,) mean, if there are confidences
    outline: Ints  # (R, 2) all pixel sides, holes and the edge of the mask included
    background: Ints  # (R, 2) those to background
    nothing: Ints  # (R, 2) those to ignored pixels or other pieces; the edge of the mask is neither
    contacts: Ints
    """(C, 2) pairs of regions of one piece that share a pixel side: indices in this table, the smaller first."""
    contact_sides: Ints  # (C, 2) sides that they share
    person: Floats | None = None
    """(R, 2) fractions of the pixels that a person named, and that followed from these, where a mask was corrected.
    Then ``confidence`` is the mean over the other pixels, NaN where there are none."""

    __repr__ = short_repr

    def __len__(self) -> int:
        return len(self.tissue)

    @cached_property
    def trust(self) -> Floats:
        """(R,) confidence, with what a person named or accepted as certain; without confidences all is certain."""
        if self.confidence is None:
            return np.ones(len(self))
        if self.person is None:
            return self.confidence
        by_person = self.person.sum(axis=1)
        return np.asarray(by_person + (1 - by_person) * np.nan_to_num(self.confidence))

    @cached_property
    def area_mm2(self) -> Floats:
        """(R,) area."""
        return self.pixels.astype(np.float64) * (self.resolution.pixel_area_um2 / 1e6)

    @cached_property
    def perimeter_mm(self) -> Floats:
        """(R,) length of the outline."""
        return self._mm(self.outline)

    @cached_property
    def outside_mm(self) -> Floats:
        """(R,) length of the outline to background or nothing."""
        return self._mm(self.background + self.nothing)

    @cached_property
    def contact_mm(self) -> Floats:
        """(C,) length of the shared boundary."""
        return self._mm(self.contact_sides)

    def _mm(self, sides: Ints) -> Floats:
        return (sides[:, 0] * self.resolution.x + sides[:, 1] * self.resolution.y) / 1e3

    def lengths_um(self, schema: LabelSchema) -> Floats:
        """(R, K) boundary of each region with each class, background included."""
        classes = len(schema)
        lengths = np.zeros((len(self), classes))
        for one, other in ((0, 1), (1, 0)):
            code = self.contacts[:, one] * classes + self.tissue[self.contacts[:, other]]
            lengths += np.bincount(code, self.contact_mm * 1e3, lengths.size).reshape(lengths.shape)
        if schema.background_index is not None:
            lengths[:, schema.background_index] += self._mm(self.background) * 1e3
        return lengths

    def of_piece(self, piece: int) -> RegionTable:
        """The regions of one piece, under their numbers."""
        chosen = np.flatnonzero(self.piece == piece)
        index = np.full(len(self) + 1, -1)
        index[chosen] = np.arange(len(chosen))
        within = index[self.contacts[:, 0]] >= 0  # contacts join regions of one piece
        names = {field.name for field in fields(self)} - {"resolution", "contacts", "contact_sides"}
        columns = {name: getattr(self, name)[chosen] for name in names if getattr(self, name) is not None}
        contacts, sides = index[self.contacts[within]].reshape(-1, 2), self.contact_sides[within]
        return replace(self, **columns, contacts=contacts, contact_sides=sides)


def region_table(
    runs: RunLengths,
    piece: NDArray[np.uint16],
    region: NDArray[np.int32],
    count: int,
    sums: Floats | None,
    full: float,
    resolution: Resolution,
    borders: NDArray[np.int32] | None = None,
) -> RegionTable:
    """The table of ``count`` regions, given the region of each run; ``sums`` are of confidences over each run.

    ``borders`` (3, n) are the runs above and below where regions may meet, and the sides that they share, if known.
    """
    # What is no region comes first, and is dropped at the end.
    of, size, every = region.astype(np.int64) + 2, count + 2, np.arange(len(runs))
    row, left, length = runs.row, runs.left, runs.length
    first, last = np.zeros((2, size), dtype=np.int64)
    # Of several values for one index the last one stays.
    first[of[::-1]], last[of] = every[::-1], every
    low, high = np.full(size, runs.shape[1]), np.zeros(size, dtype=np.int64)
    np.minimum.at(low, of, left)
    np.maximum.at(high, of, left + length)
    first, last, low, high = first[2:], last[2:], low[2:], high[2:]
    pixels = np.bincount(of, length, size)[2:]
    middle = [np.bincount(of, at * length, size)[2:] / pixels for at in (row, left + (length - 1) / 2)]
    if borders is None:
        borders = split_overlaps(RunLengths(runs.shape, runs.start, region), np.zeros(len(runs), dtype=bool))[1]
    background, nothing, pairs, shared = _contacts(runs, piece, region, count, borders)
    outline = background + nothing + _edges(runs, region, count)
    for end in (0, 1):
        np.add.at(outline, pairs[:, end], shared)
    return RegionTable(
        resolution,
        number=np.arange(1, count + 1),
        tissue=runs.value[first].astype(np.int64),
        piece=piece[first].astype(np.int64),
        pixels=pixels.astype(np.int64),
        first=runs.start[first],
        centroid=np.stack(middle, axis=1),
        box=np.stack([row[first], low, row[last] - row[first] + 1, high - low], axis=1),
        confidence=None if sums is None else np.bincount(of, sums, size)[2:] / pixels / full,
        outline=outline,
        background=background,
        nothing=nothing,
        contacts=pairs,
        contact_sides=shared,
    )


def _edges(runs: RunLengths, region: NDArray[np.int32], count: int) -> Ints:
    """(R, 2) sides at the edge of the mask."""
    begins = np.flatnonzero(runs.left == 0)
    if not len(begins):
        return np.zeros((count, 2), dtype=np.int64)
    ends = np.append(begins[1:], len(runs)) - 1
    rows = (np.arange(ends[0] + 1), np.arange(begins[-1], len(runs)))
    along = [summed(region[row], runs.length[row], count) for row in rows]
    across = [summed(region[column], np.ones(len(column)), count) for column in (begins, ends)]
    return np.stack([along[0] + along[1], across[0] + across[1]], axis=1)


def summed(region: NDArray[Any], values: NDArray[Any], count: int, which: Where | None = None) -> Ints:
    """(R,) sums by region, of all values or of some; what belongs to no region is left out."""
    own = np.flatnonzero(region >= 0 if which is None else which & (region >= 0))
    return np.bincount(region.take(own), values.take(own), count).astype(np.int64)


def _contacts(
    runs: RunLengths, piece: NDArray[np.uint16], region: NDArray[np.int32], count: int, borders: NDArray[np.int32]
) -> tuple[Ints, Ints, Ints, Ints]:
    """Sides to background and to nothing, (R, 2) each; pairs of regions (C, 2) and the sides that they share."""
    background, nothing = np.zeros((2, count, 2), dtype=np.int64)
    codes, lengths = [np.zeros(0, dtype=np.int64)], [np.zeros((0, 2), dtype=np.int64)]
    for one, other, length, direction in _sides_between(runs, borders):
        here, there = region[one], region[other]
        low, high = np.minimum(here, there), np.maximum(here, there)
        # To a region, other pieces are nothing.
        apart = piece[one] != piece[other]
        for sides, which in ((background, ~apart & (low == BACKGROUND)), (nothing, apart | (low == NOTHING))):
            sides[:, direction] += summed(high, length, count, which)
        nothing[:, direction] += summed(low, length, count, apart)
        border = np.flatnonzero(~apart & (low >= 0) & (low < high) & (length > 0))
        code, index = np.unique(low.take(border).astype(np.int64) * count + high.take(border), return_inverse=True)
        codes.append(code)
        lengths.append(np.zeros((len(code), 2), dtype=np.int64))
        lengths[-1][:, direction] = np.bincount(index, length.take(border), len(code))
    code, index = np.unique(np.concatenate(codes), return_inverse=True)
    together = np.zeros((len(code), 2), dtype=np.int64)
    np.add.at(together, index, np.concatenate(lengths))
    return background, nothing, np.stack(np.divmod(code, max(count, 1)), axis=1), together


def _sides_between(runs: RunLengths, borders: NDArray[np.int32]) -> Iterator[tuple[Any, Any, NDArray[Any], int]]:
    """Pairs of runs, the number of sides between them, and their direction (0 horizontal, 1 vertical), some at a time.

    The runs are indices or slices. The last run of a row has no side to the next.
    """
    for begin in range(0, len(runs) - 1, SIDES):
        end = min(begin + SIDES, len(runs) - 1)
        yield slice(begin, end), slice(begin + 1, end + 1), (runs.left[begin + 1 : end + 1] != 0).astype(np.int64), 1
    for begin in range(0, borders.shape[1], SIDES):
        yield *borders[:, begin : begin + SIDES], 0
