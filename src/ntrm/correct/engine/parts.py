"""Compact parts of regions: what a person names with one click.

A region that is larger than a cell of a regular grid is divided along the grid, so that a part may get another name
than the rest. The grid is the model's (a cell is a multiple of the 8 pixels that one feature of D2 covers). What a cell
holds of a tissue is *mixed* if its optical density varies much, and is divided into its darker and its lighter pixels:
borders that the network did not see are often borders of colour. What is not connected becomes several parts; slivers
go to the part of their region with which they share most of their border. Glass is divided, too, since tissue may lie
under its name. A mask is read in strips, and everything is computed from runs: memory grows with the outlines and the
grid, not with the pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Ints
from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, LabelSchema, Mask
from ntrm.core.mpp import Resolution
from ntrm.regions.region_table import RegionTable, region_table
from ntrm.regions.regions import STRIP_PIXELS, Regions, scan_mask
from ntrm.regions.runs import RunLengths, components, run_starts

SIDE = 16  # Of a cell in pixels: two features of D2
MOST_PARTS = 100_000  # More of them are not made: cells are enlarged until there are no more
SLIVER = 1 / 16  # A part with less than this share of a cell's pixels goes to a neighbour in its region
WHOLE = 1.5  # A region is divided by the grid if it is higher or wider than so many cells
MIXED = 0.03  # Standard deviation of the optical density, in the colour that varies most, above which a cell is mixed

Pixels = Callable[[int, int], NDArray[np.number[Any]]]
"""``pixels(top, height)`` gives the optical density (height, W, 3) of some rows of the section."""


@dataclass(frozen=True, eq=False)
class Parts:
    """N parts of R regions."""

    runs: RunLengths  # The index of the part of each run; -1 where nothing is known
    table: RegionTable  # Of the parts
    regions: RegionTable  # Of the undivided regions, glass included
    region: Ints  # (N,) index of each part's region


def parts_of(
    mask: Mask,
    schema: LabelSchema,
    resolution: Resolution,
    pixels: Pixels | None = None,
    *,
    side: int = SIDE,
    most: int = MOST_PARTS,
) -> Parts:
    """Divide the regions of a mask; cells of ``side`` pixels are doubled until there are at most ``most`` parts.

    Without ``pixels``, no cell is mixed.
    """
    regions = scan_mask(mask, replace(schema, background=None), resolution)
    if len(regions.table) > most:
        raise DataError(
            "the mask has more regions than can be corrected",
            got=len(regions.table),
            expected=f"at most {most}",
            hint="segment the slide with --min-area, which gives small regions to the tissue around them",
        )
    parts = split_by_grid(mask, regions, pixels, side)
    while len(parts.table) > most:
        # In the end no region is divided by the grid, and into darker and lighter pixels neither.
        side *= 2
        parts = split_by_grid(mask, regions, pixels if side < max(mask.shape) else None, side)
    return parts


def split_by_grid(mask: Mask, regions: Regions, pixels: Pixels | None, side: int) -> Parts:
    """The parts of regions along a grid with cells of ``side`` pixels."""
    of_region = regions.region.astype(np.int64)
    runs, key = _cut(mask, regions, pixels, side)
    piece, resolution = np.zeros(len(runs), dtype=np.uint16), regions.table.resolution
    part, count = components(RunLengths(runs.shape, runs.start, key), runs.value != IGNORE)
    fine = region_table(runs, piece, part, count, None, 1.0, resolution)
    joined = _without_slivers(fine, of_region[regions.runs.at(fine.first)], side)
    part, count = np.append(joined, -1)[part].astype(np.int32), int(joined.max(initial=-1)) + 1
    table = region_table(runs, piece, part, count, None, 1.0, resolution)
    merged = RunLengths(runs.shape, runs.start, part).relabelled(part)
    return Parts(merged, table, regions.table, of_region[regions.runs.at(table.first)])


def _cut(mask: Mask, regions: Regions, pixels: Pixels | None, side: int) -> tuple[RunLengths, Ints]:
    """Runs of labels, cut at the grid and where it becomes darker, and what tells parts apart for each of them."""
    height, width = mask.shape
    none = np.zeros(0, dtype=np.int64)
    starts, labels, keys = [none], [none.astype(np.uint8)], [none]
    is_large = np.append(regions.table.box[:, 2:].max(axis=1, initial=0) > WHOLE * side, [False, False])
    wide, rows = -(-width // side), side * max(1, STRIP_PIXELS // max(width, 1) // side)
    columns = np.broadcast_to(np.arange(width) // side, (rows, width))
    for top in range(0, height if width else 0, rows):
        strip = np.ascontiguousarray(mask[top : top + rows])
        cells = columns[: len(strip)] + (np.arange(top, top + len(strip)) // side * wide)[:, None]
        dark = np.zeros(strip.shape, bool) if pixels is None else darker(strip, cells, pixels(top, len(strip)))
        start = run_starts(strip, cells, dark)
        region = regions.region[regions.runs.at(start + top * width)].astype(np.int64)
        cell = np.where(is_large[region], cells.ravel()[start], 0)
        keys.append((region * (wide * -(-height // side)) + cell) * 2 + dark.ravel()[start])
        starts.append(start + top * width)
        labels.append(strip.ravel()[start])
    return RunLengths((height, width), np.concatenate(starts), np.concatenate(labels)), np.concatenate(keys)


def darker(labels: Mask, cells: Ints, density: NDArray[np.number[Any]]) -> NDArray[np.bool_]:
    """(h, w) whether a pixel is darker than the mean of its tissue in its cell, where that is mixed.

    Told in the colour of ``density`` (h, w, 3) that varies most there.
    """
    if not labels.size:
        return np.zeros(labels.shape, dtype=bool)
    group = ((cells - cells.min()) * 256 + labels).ravel()
    count = np.bincount(group)
    values = density.reshape(-1, 3).astype(np.float64)
    sums = np.stack([np.bincount(group, values[:, colour]) for colour in range(3)], axis=1)
    squares = np.stack([np.bincount(group, values[:, colour] ** 2) for colour in range(3)], axis=1)
    mean = sums / np.maximum(count, 1)[:, None]
    variance = squares / np.maximum(count, 1)[:, None] - mean**2
    colour = variance.argmax(axis=1)
    index = np.arange(len(mean))
    limit = np.where(variance[index, colour] > MIXED**2, mean[index, colour], np.inf)
    above = np.take_along_axis(values, colour[group][:, None], axis=1)[:, 0] > limit[group]
    return np.asarray(above.reshape(labels.shape))


def _without_slivers(table: RegionTable, region: Ints, side: int) -> Ints:
    """(N,) new number of each part, in reading order, once slivers went to a larger neighbour in their region."""
    into = np.arange(len(table))
    within = region[table.contacts[:, 0]] == region[table.contacts[:, 1]]
    pairs, border = table.contacts[within], table.contact_mm[within]
    sliver, neighbour = np.concatenate([pairs, pairs[:, ::-1]]).T.reshape(2, -1)
    border = np.concatenate([border, border])
    larger = (table.pixels[neighbour] > table.pixels[sliver]) | (
        (table.pixels[neighbour] == table.pixels[sliver]) & (neighbour < sliver)
    )
    chosen = np.flatnonzero(larger & (table.pixels[sliver] < SLIVER * side * side))
    # Of several neighbours the last one written stays: that with the longest border, of equals the first.
    order = chosen[np.lexsort((-neighbour[chosen], border[chosen]))]
    into[sliver[order]] = neighbour[order]
    while not np.array_equal(into, into[into]):
        into = into[into]
    first = np.full(len(table), len(table))
    np.minimum.at(first, into, np.arange(len(table)))  # parts are in reading order
    kept = np.flatnonzero(first < len(table))
    number = np.zeros(len(table), dtype=np.int64)
    number[kept[np.argsort(first[kept], kind="stable")]] = np.arange(len(kept))
    return number[into]
