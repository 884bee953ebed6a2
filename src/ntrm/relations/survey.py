"""One pass over the mask of a piece, from top to bottom: areas, regions, neighbours, and where tumours end.

The mask comes in bands of rows; each is looked at together with the last row of the one before. Memory grows with the
number of regions and with the outlines of the tumours, not with the pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError
from ntrm.core.labels import CANCERS, IGNORE, LabelSchema, Mask
from ntrm.core.mpp import Resolution
from ntrm.relations.regions import Contacts, Parts, RegionTable, contacts_of, joined, parts_of
from ntrm.relations.runs import Runs, components, runs_of, stretched

Ints = NDArray[np.int64]
Where = NDArray[np.bool_]

BAND_PIXELS = 1 << 20
"""Pixels looked at together: a run and all that is told of it take some 200 bytes, and a pixel may be one."""
LEFT, RIGHT, UP, DOWN = range(4)
BACKGROUND, NOTHING = -1, -2
"""What lies beyond a side that is no region."""


class Sides(NamedTuple):
    """The pixel sides around the regions of some tissues, also those at the edge of the mask."""

    pixel: Ints
    """(n,) flattened index of the pixel within."""
    way: NDArray[np.int8]
    """(n,) out of it."""
    region: NDArray[np.int32]
    """(n,) of the pixel."""
    beyond: NDArray[np.int32]
    """(n,) region on the other side, or BACKGROUND, or NOTHING."""


class _Seam(NamedTuple):
    """The runs of the last row: values, parts or what they are instead, first pixels and lengths."""

    value: Mask
    number: Ints
    start: Ints
    length: Ints


@dataclass(frozen=True, eq=False)
class Survey:
    """What one pass over a mask tells."""

    shape: tuple[int, int]
    schema: LabelSchema
    resolution: Resolution
    pixels: Ints
    """(256,) by value of the mask."""
    regions: RegionTable
    sides: Sides
    """Those of the tissues that were asked for."""

    def rim(self, chosen: Where) -> Ints:
        """(n, 2) row and column of the pixels of the regions ``chosen`` (R,) with a side to what is not chosen."""
        # Two more entries, which BACKGROUND and NOTHING find.
        within = np.append(chosen, [False, False])
        ends = within[self.sides.region] & ~within[self.sides.beyond]
        return self.places(np.unique(self.sides.pixel[ends]))

    def places(self, flat: Ints) -> Ints:
        """(n, 2) row and column of flattened indices."""
        return np.stack([flat // self.shape[1], flat % self.shape[1]], axis=1)


class Surveyor:
    """Takes bands of a mask from top to bottom; ``outlined`` are the tissues whose sides are wanted."""

    def __init__(self, width: int, schema: LabelSchema, outlined: tuple[str, ...] = CANCERS) -> None:
        self._width, self._schema, self._height = width, schema, 0
        self._outside = np.zeros(256, dtype=np.int8)
        self._outside[IGNORE] = NOTHING
        if schema.background_index is not None:
            self._outside[schema.background_index] = BACKGROUND
        self._outlined = np.zeros(256, dtype=bool)
        self._outlined[[schema.index(name) for name in outlined if name in schema.names]] = True
        self._pixels = np.zeros(256, dtype=np.int64)
        self._parts: list[Parts] = []
        self._contacts: list[Contacts] = []
        self._links: list[Ints] = []
        self._sides: list[Sides] = []
        self._count = 0
        self._seam: _Seam | None = None

    def add(self, rows: Mask, confidence: NDArray[np.number[Any]] | None = None) -> None:
        """The next rows (n, width), and how sure each pixel is."""
        seam, skip, sums = self._seam, int(self._seam is not None), None
        above_too = [rows] if seam is None else [np.repeat(seam.value, seam.length)[None], rows]
        runs = runs_of(np.concatenate(above_too))
        if confidence is not None:
            above = int(np.searchsorted(runs.start, skip * self._width))
            start = runs.start[above:] - skip * self._width
            sums = np.add.reduceat(np.ascontiguousarray(confidence).ravel(), start, dtype=np.float64)
            sums = np.concatenate([np.zeros(above), sums])
        self._add(runs, sums, skip)

    def add_runs(self, runs: Runs) -> None:
        """The whole mask by its runs, instead of bands."""
        self._add(runs, None, 0)

    def _add(self, runs: Runs, confidence: NDArray[np.float64] | None, skip: int) -> None:
        """Runs of a band and of ``skip`` rows before it."""
        value = runs.value
        offset = (self._height - skip) * self._width
        outside, wanted = self._outside[value], self._outlined[value]
        own = runs.start >= skip * self._width
        self._pixels += np.bincount(value[own], weights=runs.length[own], minlength=256).astype(np.int64)
        self._check()
        runs = runs.revalued(np.where(outside < 0, np.uint8(IGNORE), value))
        parts, count = components(runs, outside=IGNORE, eight=True)
        self._parts.append(parts_of(runs, parts, count, confidence, offset, skip=skip))
        found = contacts_of(runs, parts, count, skip=skip)
        one, other = (np.where(end >= 0, end + self._count, end) for end in (found.one, found.other))
        self._contacts.append(found._replace(one=one, other=other))
        number = np.where(parts > 0, parts + (self._count - 1), outside)
        if skip and self._seam is not None:
            here = number[: len(self._seam.number)]
            self._links.append(np.stack([self._seam.number, here])[:, here >= 0])
        if wanted.any():
            self._sides += _sides(runs, number, wanted, offset, skip=skip)
        last = slice(int(np.searchsorted(runs.start, (runs.shape[0] - 1) * self._width)), None)
        self._seam = _Seam(value[last], number[last], runs.start[last] + offset, runs.length[last])
        self._height, self._count = self._height + runs.shape[0] - skip, self._count + count

    def _check(self) -> None:
        unknown = np.flatnonzero(self._pixels[len(self._schema) : IGNORE])
        if unknown.size:
            raise DataError(
                "the mask has labels that the schema does not know",
                got=f"label {int(unknown[0]) + len(self._schema)}",
                expected=f"0 to {len(self._schema) - 1}, or {IGNORE} for nothing",
                mend="give the schema that the mask was made with",
            )

    def survey(self, resolution: Resolution, full: float | None = None) -> Survey:
        """Of all rows, which ends it; a confidence of ``full`` is certainty, None if there were none."""
        parts = Parts(*map(np.concatenate, zip(*self._parts, strict=True)))
        contacts = Contacts(*map(np.concatenate, zip(*self._contacts, strict=True)))
        links = np.concatenate([np.zeros((2, 0), dtype=np.int64), *self._links], axis=1)
        regions, region = joined(parts, contacts, links, resolution, full)
        sides = self._joined_sides(np.append(region, [NOTHING, BACKGROUND]).astype(np.int32))
        return Survey((self._height, self._width), self._schema, resolution, self._pixels, regions, sides)

    def _joined_sides(self, region: NDArray[np.int32]) -> Sides:
        """All sides, with regions (by part) instead of parts."""
        seam = self._seam
        if seam is not None:
            # The mask ends below its last row.
            last = self._outlined[seam.value]
            nothing = np.full(len(last), NOTHING)
            self._sides.append(_level(seam.start[last], seam.length[last], DOWN, seam.number[last], nothing[last]))
        every = Sides(*map(np.concatenate, zip(*self._sides, strict=True)))
        self._sides.clear()
        return Sides(every.pixel, every.way, region[every.region], region[every.beyond])


def _sides(runs: Runs, number: Ints, wanted: Where, offset: int, *, skip: int) -> list[Sides]:
    """Sides of the runs that are ``wanted``; ``number`` tells each run's part, or what it is instead."""
    touching, width = runs.touching, runs.shape[1]
    own = wanted & (runs.row >= skip)
    nothing = np.full(len(runs), NOTHING)
    found = []
    for one, other, pixel, way in (
        (touching.left, touching.right, runs.stop - 1, RIGHT),
        (touching.right, touching.left, runs.start, LEFT),
    ):
        at = own[one]
        found.append(_upright(pixel[one[at]] + offset, way, number[one[at]], number[other[at]]))
    for at, pixel, way in ((runs.left == 0, runs.start, LEFT), (runs.stop % width == 0, runs.stop - 1, RIGHT)):
        ends = own & at
        found.append(_upright(pixel[ends] + offset, way, number[ends], nothing[ends]))
    first = np.maximum(runs.start[touching.above] + width, runs.start[touching.below]) + offset
    for one, other, back, way in (
        (touching.above, touching.below, width, DOWN),
        (touching.below, touching.above, 0, UP),
    ):
        at = wanted[one] & (number[one] != number[other])
        found.append(_level(first[at] - back, touching.shared[at], way, number[one[at]], number[other[at]]))
    if not skip:
        top = wanted & (runs.row == 0)
        found.append(_level(runs.start[top] + offset, runs.length[top], UP, number[top], nothing[top]))
    return found


def _upright(pixel: Ints, way: int, region: Ints, beyond: Ints) -> Sides:
    ways = np.full(len(pixel), way, dtype=np.int8)
    return Sides(pixel, ways, region.astype(np.int32), beyond.astype(np.int32))


def _level(first: Ints, length: Ints, way: int, region: Ints, beyond: Ints) -> Sides:
    """As many sides as each stretch is long."""
    return _upright(stretched(first, length), way, np.repeat(region, length), np.repeat(beyond, length))


def survey_mask(
    mask: Mask,
    schema: LabelSchema,
    resolution: Resolution,
    confidence: NDArray[np.number[Any]] | None = None,
    full: float = 1.0,
) -> Survey:
    """The survey of a mask (H, W), band by band."""
    height, width = mask.shape
    surveyor, rows = Surveyor(width, schema), band_rows(width)
    for top in range(0, height, rows):
        part = np.s_[top : top + rows]
        surveyor.add(mask[part], None if confidence is None else confidence[part])
    return surveyor.survey(resolution, None if confidence is None else full)


def band_rows(width: int) -> int:
    """Rows of a band."""
    return max(1, BAND_PIXELS // width)
