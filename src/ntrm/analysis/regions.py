"""Connected regions of tissue: the one engine behind every file, table and picture that speaks of regions.

A *region* is a set of pixels of one tissue, in one piece of the section, connected over pixel sides
(``runs.CONNECTIVITY``). Regions are numbered from 1 over the whole slide, in reading order of their first pixels.
Pixels outside all pieces (crumbs, glass) have piece 0. Background and ignored pixels belong to no region.

The mask is read once, in strips of rows. A strip is reduced to *runs*, stretches of one label along a row, and
everything is computed from these, exactly as from the pixels. Memory grows with the length of the outlines, not with
the number of pixels, and the height of the strips does not change the result. Why 4 neighbours, and why no library:
docs/decisions/0019-one-region-engine.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.analysis.runs import (
    Floats,
    Ints,
    Runs,
    Where,
    components,
    connected,
    distinct,
    ranges,
    run_starts,
    sides_of,
    split_overlaps,
)
from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, LabelSchema, Mask
from ntrm.core.mpp import Resolution

STRIP_PIXELS = 1 << 20
"""Pixels of a mask that are read together."""
SIDES = 1 << 18
"""Places where runs meet that are counted together."""
BACKGROUND, NOTHING = -1, -2
"""In place of a region: background, and pixels that are ignored or lie beyond the mask."""


class PieceGrid(NamedTuple):
    """The piece of each pixel, told by a coarser mask: pixel (r, c) has ``numbers[rows[r], columns[c]]``."""

    numbers: NDArray[np.integer[Any]]
    rows: NDArray[np.integer[Any]]
    """(H,) rising."""
    columns: NDArray[np.integer[Any]]
    """(W,)"""

    def changes(self, top: int, height: int) -> Ints:
        """Flattened indices, within some rows, of the pixels that have another piece than their left neighbours."""
        rows, step = self.rows[top : top + height], np.flatnonzero(np.diff(self.columns))
        first, used = int(rows[0]), self.columns[np.append(step, len(self.columns) - 1)]
        coarse = self.numbers[first : int(rows[-1]) + 1]
        # Where the mask is the finer one, as nearly always, no column is left out: a view will do.
        every = bool((np.diff(used) == 1).all())
        shown = coarse[:, used[0] : used[-1] + 1] if every else coarse.take(used, axis=1)
        row, index = np.divmod(np.flatnonzero(shown[:, 1:] != shown[:, :-1]), max(len(step), 1))
        before = np.searchsorted(row, np.arange(len(coarse) + 1))
        begin, count = before[rows - first], np.diff(before)[rows - first]
        along = step[index[ranges(begin, count)]] + 1
        return np.asarray(along + np.repeat(np.arange(len(rows)) * len(self.columns), count), dtype=np.int64)

    def at(self, row: Ints, column: Ints) -> NDArray[np.uint16]:
        """The pieces of some pixels."""
        return np.asarray(self.numbers[self.rows[row], self.columns[column]], dtype=np.uint16)


def strip_rows(width: int) -> int:
    """Rows of a strip of a mask."""
    return max(1, STRIP_PIXELS // max(width, 1))


@dataclass(frozen=True, eq=False)
class RegionTable:
    """R regions in the order of their numbers. Pixel sides are counted by direction: (…, 2) horizontal, vertical."""

    resolution: Resolution
    number: Ints
    """(R,) from 1, over the whole slide."""
    tissue: Ints
    """(R,) class."""
    piece: Ints
    """(R,) from 1; 0 outside all pieces."""
    pixels: Ints
    """(R,)"""
    first: Ints
    """(R,) flattened index of the first pixel."""
    centroid: Floats
    """(R, 2) row and column in pixels."""
    box: Ints
    """(R, 4) top, left, height, width in pixels."""
    confidence: Floats | None
    """(R,) mean, if there are confidences."""
    outline: Ints
    """(R, 2) all pixel sides, holes and the edge of the mask included."""
    background: Ints
    """(R, 2) those to background."""
    nothing: Ints
    """(R, 2) those to ignored pixels or other pieces; the edge of the mask is neither."""
    contacts: Ints
    """(C, 2) pairs of regions of one piece that share a pixel side: indices in this table, the smaller first."""
    contact_sides: Ints
    """(C, 2) sides that they share."""
    person: Floats | None = None
    """(R, 2) fractions of the pixels that a person named, and that followed from these, where a mask was corrected.
    Then ``confidence`` is the mean over the other pixels, NaN where there are none."""

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


@dataclass(frozen=True, eq=False)
class Regions:
    """All regions of a mask, and the n runs that they consist of."""

    runs: Runs
    """Of labels, cut where the piece changes."""
    piece: NDArray[np.uint16]
    """(n,)"""
    region: NDArray[np.int32]
    """(n,) index of each run's region in the table; ``BACKGROUND`` or ``NOTHING``."""
    table: RegionTable

    @cached_property
    def pixels(self) -> Ints:
        """(256,) pixels by label."""
        return np.bincount(self.runs.value, self.runs.length, 256).astype(np.int64)

    def of_piece(self, piece: int, top: int, left: int, height: int, width: int) -> Regions:
        """Those of one piece, which lies in this window of the mask; other pieces become nothing.

        The runs are those of the window; positions in the table remain those of the whole mask.
        """
        table, wide = self.table.of_piece(piece), self.runs.shape[1]
        first, last = np.searchsorted(self.runs.start, [top * wide, (top + height) * wide]).tolist()
        rows = Runs((height, wide), self.runs.start[first:last] - top * wide, np.arange(first, last))
        # Which runs they are, before anything is done with them: beside the window there may be many more.
        chosen = rows.window(0, left, height, width)
        own, region = self.piece[chosen.value] == piece, self.region[chosen.value]
        # The last two entries are those of NOTHING (-2) and BACKGROUND (-1).
        index = np.append(np.full(len(self.table), NOTHING), [NOTHING, BACKGROUND])
        index[np.flatnonzero(self.table.piece == piece)] = np.arange(len(table))
        label = np.where(own, self.runs.value[chosen.value], IGNORE)
        runs = chosen.relabelled((np.where(own, index[region], NOTHING) + 2) << 8 | label)
        labels = Runs(runs.shape, runs.start, (runs.value & 255).astype(np.uint8))
        pieces = np.full(len(runs), piece, dtype=np.uint16)
        return Regions(labels, pieces, ((runs.value >> 8) - 2).astype(np.int32), table)

    def among(self, chosen: Where) -> Regions:
        """The same with regions that are not ``chosen`` (R,) as nothing: of far fewer runs. All are in the table."""
        region = np.where(np.append(chosen, [False, False])[self.region], self.region, NOTHING).astype(np.int32)
        runs = self.runs.relabelled(region)
        before = self.runs.at(runs.start)
        label = np.where(runs.value == NOTHING, IGNORE, self.runs.value[before]).astype(np.uint8)
        return Regions(Runs(runs.shape, runs.start, label), self.piece[before], runs.value, self.table)

    def rim(self, chosen: Where) -> Ints:
        """(n, 2) row and column of the pixels of the regions ``chosen`` (R,) with a side to what is not chosen."""
        return self._border(self.runs.relabelled(np.append(chosen, [False, False])[self.region]))[0]

    def borders(self, chosen: Where) -> tuple[Ints, Ints]:
        """(n, 2) row and column of the pixels of the regions ``chosen`` with a side to another, and their regions."""
        within = np.append(chosen, [False, False])[self.region]
        runs = self.runs.relabelled(np.where(within, self.region + 1, 0))
        pixels, flat = self._border(runs)
        return pixels, runs.value[runs.at(flat)] - 1

    def _border(self, runs: Runs) -> tuple[Ints, Ints]:
        """Pixels with a side to another value, as (n, 2) row and column and as flattened indices."""
        flat = distinct(sides_of(runs, runs.value)[0])
        row = flat // self.runs.shape[1]
        return np.stack([row, flat - row * self.runs.shape[1]], axis=1), flat


def scan_mask(
    mask: Mask,
    schema: LabelSchema,
    resolution: Resolution,
    *,
    confidence: NDArray[np.number[Any]] | None = None,
    full: float = 1.0,
    pieces: PieceGrid | None = None,
) -> Regions:
    """``scan`` with the background of ``schema`` outside; refuses what is no label mask of this schema."""
    if mask.ndim != 2 or mask.dtype != np.uint8:
        raise DataError("this is no label mask", got=f"{mask.dtype} {mask.shape}", expected="uint8 (height, width)")
    outside = () if schema.background_index is None else (schema.background_index,)
    regions = scan(mask, resolution, outside=outside, confidence=confidence, full=full, pieces=pieces)
    unknown = np.flatnonzero(regions.pixels[len(schema) : IGNORE])
    if unknown.size:
        raise DataError(
            "the mask has labels that the schema does not know",
            got=f"label {int(unknown[0]) + len(schema)}",
            expected=f"0 to {len(schema) - 1}, or {IGNORE} for nothing",
            hint="give the schema that the mask was made with",
        )
    return regions


def scan(
    mask: Mask,
    resolution: Resolution,
    *,
    outside: Collection[int] = (),
    confidence: NDArray[np.number[Any]] | None = None,
    full: float = 1.0,
    pieces: PieceGrid | None = None,
    rows: int | None = None,
) -> Regions:
    """The regions of a mask (H, W) that may lie on disk; it is read once, in strips of ``rows``.

    Labels in ``outside`` and ignored pixels make no regions. A ``confidence`` (H, W) of ``full`` is certainty.
    Without ``pieces``, all pixels have piece 0.
    """
    runs, sums = _read(mask, confidence, pieces, rows)
    piece = np.zeros(len(runs), dtype=np.uint16) if pieces is None else pieces.at(runs.row, runs.left)
    is_outside = np.zeros(256, dtype=bool)
    is_outside[[IGNORE, *outside]] = True
    inside = ~is_outside[runs.value]
    keyed = Runs(runs.shape, runs.start, piece.astype(np.uint32) << 8 | runs.value)
    links, borders = split_overlaps(keyed, inside)
    region, count = connected(links, inside)
    region[region < 0] = np.where(runs.value[region < 0] == IGNORE, NOTHING, BACKGROUND)
    table = region_table(runs, piece, region, count, sums, full, resolution, borders)
    # New runs: the cached rows and lengths of those above need not be kept.
    return Regions(Runs(runs.shape, runs.start, runs.value), piece, region, table)


def region_sizes(mask: Mask, rows: int | None = None) -> tuple[Runs, NDArray[np.int32], Ints]:
    """The runs of a mask, the region of each (-1 for ignored pixels), and (R,) the pixels of each region.

    The regions are those of ``scan``, without pieces and with nothing outside.
    """
    runs, _ = _read(mask, None, None, rows)
    region, count = components(runs, runs.value != IGNORE)
    return runs, region, _summed(region, runs.length, count)


def _read(
    mask: Mask, confidence: NDArray[np.number[Any]] | None, pieces: PieceGrid | None, rows: int | None
) -> tuple[Runs, Floats | None]:
    """The runs of a mask, cut where the piece changes, and the sums of confidences over each of them."""
    width = mask.shape[1]
    height, step = mask.shape[0] if width else 0, rows or strip_rows(width)
    starts, labels, sums = [], [], []
    for top in range(0, height, step):
        strip = np.ascontiguousarray(mask[top : top + step])
        start = run_starts(strip, also=None if pieces is None else pieces.changes(top, len(strip)))
        starts.append(start + top * width)
        labels.append(strip.ravel().take(start))
        if confidence is not None:
            sums.append(_sums(confidence[top : top + step], start))
    runs = Runs((height, width), _joined(starts, np.int64), _joined(labels, np.uint8))
    return runs, None if confidence is None else _joined(sums, np.float64)


def _sums(confidence: NDArray[np.number[Any]], start: Ints) -> Floats:
    """Sums over the runs of a strip. Those of bytes along a row are whole numbers, which are quicker than floats."""
    whole = confidence.dtype == np.uint8 and confidence.shape[1] < 1 << 24
    values = np.ascontiguousarray(confidence).ravel()
    return np.add.reduceat(values, start, dtype=np.uint32 if whole else np.float64).astype(np.float64, copy=False)


def _joined(arrays: list[Any], dtype: Any) -> Any:
    """The arrays as one; the list is emptied, so that memory does not hold both."""
    joined = np.concatenate([np.zeros(0, dtype), *arrays])
    arrays.clear()
    return joined


def region_table(
    runs: Runs,
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
        borders = split_overlaps(Runs(runs.shape, runs.start, region), np.zeros(len(runs), dtype=bool))[1]
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


def _edges(runs: Runs, region: NDArray[np.int32], count: int) -> Ints:
    """(R, 2) sides at the edge of the mask."""
    begins = np.flatnonzero(runs.left == 0)
    if not len(begins):
        return np.zeros((count, 2), dtype=np.int64)
    ends = np.append(begins[1:], len(runs)) - 1
    rows = (np.arange(ends[0] + 1), np.arange(begins[-1], len(runs)))
    along = [_summed(region[row], runs.length[row], count) for row in rows]
    across = [_summed(region[column], np.ones(len(column)), count) for column in (begins, ends)]
    return np.stack([along[0] + along[1], across[0] + across[1]], axis=1)


def _summed(region: NDArray[Any], values: NDArray[Any], count: int, which: Where | None = None) -> Ints:
    """(R,) sums by region, of all values or of some; what belongs to no region is left out."""
    own = np.flatnonzero(region >= 0 if which is None else which & (region >= 0))
    return np.bincount(region.take(own), values.take(own), count).astype(np.int64)


def _contacts(
    runs: Runs, piece: NDArray[np.uint16], region: NDArray[np.int32], count: int, borders: NDArray[np.int32]
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
            sides[:, direction] += _summed(high, length, count, which)
        nothing[:, direction] += _summed(low, length, count, apart)
        border = np.flatnonzero(~apart & (low >= 0) & (low < high) & (length > 0))
        code, shared = _by_pair(low.take(border), high.take(border), length.take(border), count)
        codes.append(code)
        lengths.append(np.zeros((len(code), 2), dtype=np.int64))
        lengths[-1][:, direction] = shared
    code, index = np.unique(np.concatenate(codes), return_inverse=True)
    together = np.zeros((len(code), 2), dtype=np.int64)
    np.add.at(together, index, np.concatenate(lengths))
    return background, nothing, np.stack(np.divmod(code, max(count, 1)), axis=1), together


def _by_pair(low: NDArray[np.int32], high: NDArray[np.int32], length: NDArray[Any], count: int) -> tuple[Ints, Ints]:
    """Each pair of regions once, as ``low`` · ``count`` + ``high``, and the sum of its lengths."""
    from scipy.sparse import coo_array

    # A matrix adds up equal places by counting, which is quicker than sorting the pairs.
    matrix = coo_array((length.astype(np.int64), (low, high)), (count, count)).tocsr()
    rows = np.repeat(np.arange(count), np.diff(matrix.indptr))
    return rows * count + matrix.indices, matrix.data


def _sides_between(runs: Runs, borders: NDArray[np.int32]) -> Iterator[tuple[Any, Any, NDArray[Any], int]]:
    """Pairs of runs, the number of sides between them, and their direction (0 horizontal, 1 vertical), some at a time.

    The runs are indices or slices. The last run of a row has no side to the next.
    """
    for begin in range(0, len(runs) - 1, SIDES):
        end = min(begin + SIDES, len(runs) - 1)
        yield slice(begin, end), slice(begin + 1, end + 1), (runs.left[begin + 1 : end + 1] != 0).astype(np.int64), 1
    for begin in range(0, borders.shape[1], SIDES):
        yield *borders[:, begin : begin + SIDES], 0
