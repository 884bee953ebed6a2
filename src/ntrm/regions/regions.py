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

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Floats, Ints, plain_array
from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, LabelSchema, Mask, pixel_counts
from ntrm.core.mpp import Resolution
from ntrm.regions.region_table import BACKGROUND, NOTHING, RegionTable, region_table
from ntrm.regions.runs import RunLengths, Where, connected, distinct, run_starts, sides_of, split_overlaps

STRIP_PIXELS = 1 << 20  # Pixels of a mask that are read together


class PieceGrid(NamedTuple):
    """The piece of each pixel, told by a coarser mask: pixel (r, c) has ``numbers[rows[r], columns[c]]``."""

    numbers: NDArray[np.integer[Any]]
    rows: NDArray[np.integer[Any]]  # (H,) rising
    columns: NDArray[np.integer[Any]]  # (W,)

    def at(self, row: Ints, column: Ints) -> NDArray[np.uint16]:
        """The pieces of some pixels."""
        return np.asarray(self.numbers[self.rows[row], self.columns[column]], dtype=np.uint16)


def strip_rows(width: int) -> int:
    """Rows of a strip of a mask."""
    return max(1, STRIP_PIXELS // max(width, 1))


@dataclass(frozen=True, eq=False)
class Regions:
    """All regions of a mask, and the n runs that they consist of."""

    runs: RunLengths  # Of labels, cut where the piece changes
    piece: NDArray[np.uint16]  # (n,)
    region: NDArray[np.int32]  # (n,) index of each run's region in the table; BACKGROUND or NOTHING
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
        rows = RunLengths((height, wide), self.runs.start[first:last] - top * wide, np.arange(first, last))
        # Which runs they are, before anything is done with them: beside the window there may be many more.
        chosen = rows.window(0, left, height, width)
        own, region = self.piece[chosen.value] == piece, self.region[chosen.value]
        # The last two entries are those of NOTHING (-2) and BACKGROUND (-1).
        index = np.append(np.full(len(self.table), NOTHING), [NOTHING, BACKGROUND])
        index[np.flatnonzero(self.table.piece == piece)] = np.arange(len(table))
        label = np.where(own, self.runs.value[chosen.value], IGNORE)
        runs = chosen.relabelled((np.where(own, index[region], NOTHING) + 2) << 8 | label)
        labels = RunLengths(runs.shape, runs.start, (runs.value & 255).astype(np.uint8))
        pieces = np.full(len(runs), piece, dtype=np.uint16)
        return Regions(labels, pieces, ((runs.value >> 8) - 2).astype(np.int32), table)

    def rim(self, chosen: Where) -> Ints:
        """(n, 2) row and column of the pixels of the regions ``chosen`` (R,) with a side to what is not chosen."""
        return self._border(self.within(chosen))[0]

    def within(self, chosen: Where) -> RunLengths:
        """Where the regions ``chosen`` (R,) are."""
        return self.runs.relabelled(np.append(chosen, [False, False])[self.region])

    def borders(self, chosen: Where) -> tuple[Ints, Ints]:
        """(n, 2) row and column of the pixels of the regions ``chosen`` with a side to another, and their regions."""
        within = np.append(chosen, [False, False])[self.region]
        return self._border(self.runs.relabelled(np.where(within, self.region + 1, 0)))

    def _border(self, runs: RunLengths) -> tuple[Ints, Ints]:
        """Pixels with a side to another value, as (n, 2) row and column, and their values less one."""
        flat = distinct(sides_of(runs, runs.value)[0])
        return np.stack(np.divmod(flat, self.runs.shape[1]), axis=1), runs.value[runs.at(flat)].astype(np.int64) - 1


def table_of_mask(
    mask: NDArray[Any], confidence: NDArray[Any] | None, schema: LabelSchema, resolution: Resolution
) -> RegionTable:
    """The regions of a mask that a user gave: whole numbers of any type, and each pixel's probability, if known."""
    values = plain_array("the mask", mask)
    pixel_counts(values, len(schema))  # refuses what would become another label as a byte
    labels = values.astype(np.uint8)
    if confidence is None:
        return scan_mask(labels, schema, resolution).table
    given = plain_array("the confidence", confidence)
    if labels.ndim != 2 or given.shape != labels.shape:
        raise DataError(
            "mask and confidence are not of one section",
            got=f"mask {labels.shape}, confidence {given.shape}",
            expected="two (height, width) arrays of one size",
        )
    if given.dtype.kind not in "fiub":
        raise DataError("these are no confidences", got=f"values of type {given.dtype}", expected="numbers from 0 to 1")
    # Resampled probabilities are a little outside. Written so that NaN fails too.
    if given.size and not (given.min() >= -0.001 and given.max() <= 1.001):
        raise DataError(
            "these are no confidences",
            got=f"values from {given.min():.3g} to {given.max():.3g}",
            expected="probabilities from 0 to 1",
            hint="confidence.ome.tif has bytes from 0 to 255: divide by 255" if given.dtype == np.uint8 else "",
        )
    return scan_mask(labels, schema, resolution, confidence=given).table


def scan_mask(
    mask: Mask,
    schema: LabelSchema,
    resolution: Resolution,
    *,
    confidence: NDArray[np.number[Any]] | None = None,
    full: float = 1.0,
    pieces: PieceGrid | None = None,
) -> Regions:
    """The regions of a mask (H, W) that may lie on disk; it is read once, in strips.

    The background of ``schema`` and ignored pixels make no regions; what is no label mask of this schema is refused. A
    ``confidence`` (H, W) of ``full`` is certainty. Without ``pieces``, all pixels have piece 0.
    """
    if mask.ndim != 2 or mask.dtype != np.uint8:
        raise DataError(
            "not a label mask",
            got=f"{mask.dtype} {mask.shape}",
            expected="uint8 (height, width)",
            hint="convert whole numbers with mask.astype(np.uint8)" if mask.ndim == 2 else "",
        )
    runs, sums = read_runs(mask, confidence, pieces)
    unknown = runs.value[(runs.value >= len(schema)) & (runs.value != IGNORE)]
    if unknown.size:
        raise DataError(
            "the mask has labels that the schema does not know",
            got=f"label {unknown.min()}",
            expected=f"0 to {len(schema) - 1}, or {IGNORE} for nothing",
            hint="give the schema that the mask was made with",
        )
    piece = np.zeros(len(runs), dtype=np.uint16) if pieces is None else pieces.at(runs.row, runs.left)
    outside = IGNORE if schema.background_index is None else schema.background_index
    inside = (runs.value != IGNORE) & (runs.value != outside)
    keyed = RunLengths(runs.shape, runs.start, piece.astype(np.uint32) << 8 | runs.value)
    links, borders = split_overlaps(keyed, inside)
    region, count = connected(links, inside)
    region[region < 0] = np.where(runs.value[region < 0] == IGNORE, NOTHING, BACKGROUND)
    table = region_table(runs, piece, region, count, sums, full, resolution, borders)
    # New runs: the cached rows and lengths of those above need not be kept.
    return Regions(RunLengths(runs.shape, runs.start, runs.value), piece, region, table)


def read_runs(
    mask: Mask, confidence: NDArray[np.number[Any]] | None = None, pieces: PieceGrid | None = None
) -> tuple[RunLengths, Floats | None]:
    """The runs of a mask, cut where the piece changes, and the sums of confidences over each of them."""
    width = mask.shape[1]
    height, step = mask.shape[0] if width else 0, strip_rows(width)
    starts, labels, sums = [np.zeros(0, np.int64)], [np.zeros(0, np.uint8)], [np.zeros(0)]
    for top in range(0, height, step):
        strip = np.ascontiguousarray(mask[top : top + step])
        apart = [] if pieces is None else [pieces.numbers[pieces.rows[top : top + step]][:, pieces.columns]]
        start = run_starts(strip, *apart)
        starts.append(start + top * width)
        labels.append(strip.ravel().take(start))
        if confidence is not None:
            values = np.ascontiguousarray(confidence[top : top + step]).ravel()
            sums.append(np.add.reduceat(values, start, dtype=np.float64))
    runs = RunLengths((height, width), np.concatenate(starts), np.concatenate(labels))
    return runs, None if confidence is None else np.concatenate(sums)
