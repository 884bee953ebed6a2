"""Regions too small to be tissue, given to what lies around them; band by band, as if the mask were in memory.

A region (8 neighbours, as everywhere) of less than so many pixels is a speck. Each of its pixels takes the tissue of
the nearest pixel that is in none; of several, of the uppermost, then the leftmost. One that has none so near as
``reach_of`` says stays as it is, which bounds how much of a mask must be known at once. Background is a tissue like the
others; where the network did not look, there is nothing, which neither gives nor takes.

Memory grows with the number of regions and with the outlines of the specks, not with the pixels.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.io import whole_file
from ntrm.core.labels import IGNORE
from ntrm.relations.runs import components, runs_of, stretched
from ntrm.relations.survey import band_rows

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

REACH = 2.0
"""In sides of a square as large as the least region: no speck that is not among others is so thick."""
TOGETHER = 1 << 18
"""Pixels whose nearest are looked for at a time, about."""
FAR = 1 << 60


class Given(NamedTuple):
    """What was given away."""

    regions: int
    pixels: int


class Specks(NamedTuple):
    """Regions too small, as stretches along rows, in reading order."""

    start: Ints
    """(n,) index of the first pixel in the flattened mask."""
    length: Ints
    region: Ints
    """(n,) any number that those of one region share."""


class _Tissue(NamedTuple):
    """Stretches of what stays, in reading order."""

    start: Ints
    stop: Ints
    value: Bytes


def reach_of(smallest: float) -> int:
    """Pixels within which the nearest tissue must lie.

    >>> reach_of(64), reach_of(1.5)
    (16, 3)
    """
    return math.ceil(REACH * math.sqrt(smallest))


def write_without_specks(path: Path, labels: Bytes, smallest: float, rows: int | None = None) -> Given:
    """Write ``labels`` (H, W; may lie on disk) to a file as ``slide.bands`` keeps them, but without specks.

    ``smallest`` are the pixels that a region must have; ``rows`` are read at a time, which has no say in the result.
    """
    height, width = labels.shape
    specks, reach = find_specks(labels, smallest, rows), reach_of(smallest)
    rows = rows or max(band_rows(width), 2 * reach)
    regions, pixels = [np.zeros(0, dtype=np.int64)], 0
    with whole_file(path) as partial, partial.open("wb") as stream:
        for top in range(0, height, rows):
            band = np.array(labels[top : top + rows])
            own = _between(specks, top * width, (top + rows) * width)
            if len(own.start):
                tissue = _tissue_around(labels, specks, max(0, top - reach), min(height, top + rows + reach))
                for some in _portions(own):
                    places = stretched(some.start, some.length)
                    value = _nearest(places, tissue, width, reach)
                    found = value != IGNORE
                    band.reshape(-1)[places[found] - top * width] = value[found]
                    regions.append(np.unique(np.repeat(some.region, some.length)[found]))
                    pixels += int(np.count_nonzero(found))
            if (band != IGNORE).any():
                # 255 + 1 overflows to 0, which is how nothing is stored.
                stream.write((band + np.uint8(1)).data)
            else:
                stream.seek(band.size, os.SEEK_CUR)
        stream.truncate(height * width)
    return Given(len(np.unique(np.concatenate(regions))), pixels)


def find_specks(labels: Bytes, smallest: float, rows: int | None = None) -> Specks:
    """Regions of less than ``smallest`` pixels; bands of rows are looked at with the last row of the one before."""
    height, width = labels.shape
    rows = rows or band_rows(width)
    above = np.zeros((0, width), dtype=np.uint8)
    seam, count = np.zeros(0, dtype=np.int64), 0
    sizes = [np.zeros(0, dtype=np.int64)]
    links = [np.zeros((2, 0), dtype=np.int64)]
    maybe = [Specks(*np.zeros((3, 0), dtype=np.int64))]
    for top in range(0, height, rows):
        band = np.concatenate([above, labels[top : top + rows]])
        runs, skip = runs_of(band), len(above)
        parts, more = components(runs, outside=IGNORE, eight=True)
        own = runs.row >= skip
        size = np.bincount(parts[own], weights=runs.length[own], minlength=more + 1).astype(np.int64)
        number = parts + (count - 1)
        # The row that both bands hold has the same runs in both.
        inside = parts[: len(seam)] > 0
        links.append(np.stack([seam, number[: len(seam)]])[:, inside])
        few = own & (parts > 0) & (size[parts] < smallest)
        maybe.append(Specks(runs.start[few] + (top - skip) * width, runs.length[few], number[few]))
        seam, above = number[runs.row == len(band) - 1], band[-1:]
        sizes.append(size[1:])
        count += more
    return _joined(maybe, np.concatenate(sizes), np.concatenate(links, axis=1), smallest)


def _joined(maybe: list[Specks], sizes: Ints, links: Ints, smallest: float) -> Specks:
    """Those that are still small with what bands above and below hold of them; ``sizes`` and ``links`` are by part."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    every, size = Specks(*map(np.concatenate, zip(*maybe, strict=True))), len(sizes)
    one, other = links.astype(np.int32)
    _, region = connected_components(coo_array((np.ones(len(one), np.int8), (one, other)), (size, size)), False)
    whole = np.bincount(region, weights=sizes)
    of = region[every.region].astype(np.int64)
    small = whole[of] < smallest
    return Specks(every.start[small], every.length[small], of[small])


def _between(specks: Specks, first: int, last: int) -> Specks:
    part = slice(*np.searchsorted(specks.start, [first, last]))
    return Specks(*(each[part] for each in specks))


def _portions(specks: Specks) -> list[Specks]:
    """About ``TOGETHER`` pixels each."""
    before = np.cumsum(specks.length) // TOGETHER
    cuts = np.flatnonzero(np.diff(before)) + 1
    return [Specks(*each) for each in zip(*(np.split(each, cuts) for each in specks), strict=True)]


def _tissue_around(labels: Bytes, specks: Specks, top: int, bottom: int) -> _Tissue:
    """What stays in some rows, read a few at a time: a mask's runs take less memory than the mask."""
    width = labels.shape[1]
    rows = band_rows(width)
    found = []
    for first in range(top, bottom, rows):
        runs = runs_of(np.asarray(labels[first : min(bottom, first + rows)]))
        start = runs.start + first * width
        small = _between(specks, first * width, min(bottom, first + rows) * width).start
        stays = runs.value != IGNORE
        stays[np.searchsorted(start, small)] = False
        found.append(_Tissue(start[stays], (runs.stop + first * width)[stays], runs.value[stays]))
    return _Tissue(*map(np.concatenate, zip(*found, strict=True)))


def _nearest(places: Ints, tissue: _Tissue, width: int, reach: int) -> Bytes:
    """For each of some flattened indices the tissue nearest to it; ``IGNORE`` if there is none within ``reach``."""
    # One more at each end, too far from everything.
    start, stop = np.append(tissue.start, FAR), np.append(-FAR, tissue.stop)
    best, value = np.full(len(places), reach**2 + 1), np.full(len(places), IGNORE, dtype=np.uint8)
    column = places % width
    active = np.arange(len(places))
    for away in range(reach + 1):
        active = active[best[active] >= away**2]
        for down in (-away, away)[: 1 + (away > 0)]:
            here, across = places[active] + down * width, column[active]
            following = np.searchsorted(tissue.start, here, side="right")
            left, right = np.maximum(here - (stop[following] - 1), 0), start[following] - here
            # Not beyond the ends of the row.
            left, right = np.where(left > across, FAR, left), np.where(right >= width - across, FAR, right)
            by = np.minimum(np.minimum(left, right), reach + 1) ** 2 + away**2
            # Of equally near ones the uppermost: those above are above all before them, those below are not.
            nearer = (by <= np.minimum(best[active], reach**2)) if down < 0 else (by < best[active])
            at = active[nearer]
            best[at] = by[nearer]
            value[at] = tissue.value[(following - (left <= right))[nearer]]
    return value
