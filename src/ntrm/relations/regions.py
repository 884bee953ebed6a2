"""Connected regions of one tissue each (8 neighbours): their areas, outlines, places and mutual contacts.

A mask is looked at in bands of rows, so that a region may come in several parts, one per band; ``joined`` makes regions
of them. All that is added up are whole numbers: the bands' height has no say in the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.mpp import Resolution
from ntrm.relations.runs import Runs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RegionTable:
    """All regions of a piece; a region's number is its place here, counted from 1 in reading order."""

    tissue: Ints
    """(R,) class."""
    pixels: Ints
    """(R,) size."""
    area_mm2: Floats
    perimeter_mm: Floats
    """(R,) pixel sides to anything else, holes included; the edge of the array takes no part."""
    outside_mm: Floats
    """(R,) what of it is with background or nothing."""
    centroid: Floats
    """(R, 2) row and column in pixels."""
    box: Ints
    """(R, 4) top, left, height, width in pixels."""
    confidence: Floats | None
    """(R,) mean, if confidences were given."""
    contacts: Ints
    """(C, 2) pairs of regions that share a pixel side, the smaller number first; counted from 0."""
    contact_mm: Floats
    """(C,) length that they share."""

    def __len__(self) -> int:
        return len(self.tissue)

    def counts(self, classes: int) -> Ints:
        """(K,) regions per class."""
        return np.bincount(self.tissue, minlength=classes)[:classes].astype(np.int64)


class Parts(NamedTuple):
    """What a band holds of regions; places are those of the whole mask."""

    tissue: NDArray[np.uint8]
    """(P,) class; any, for a part that the band only borders on."""
    pixels: Ints
    first: Ints
    """(P,) flattened index of the first pixel; beyond all of them, for a part without any."""
    low: Ints
    high: Ints
    """(P, 2) first and last row and column."""
    middle: Floats
    """(P, 2) sums of the pixels' rows and columns."""
    confidence: Floats
    """(P,) sums."""


class Contacts(NamedTuple):
    """Pixel sides between parts; a part of -1 is background or nothing."""

    one: Ints
    other: Ints
    level: Ints
    """(n,) horizontal sides, each as long as a pixel is wide."""
    upright: Ints


def parts_of(runs: Runs, parts: Ints, count: int, confidence: Floats | None, offset: int, *, skip: int) -> Parts:
    """Sum up the runs by their ``parts`` (from 1; 0 is none), but for those of the first ``skip`` rows.

    ``confidence`` are sums by run; ``offset`` is what the first pixel is preceded by in the whole mask.
    """
    own = (parts > 0) & (runs.row >= skip)
    part, left, length = parts[own] - 1, runs.left[own], runs.length[own]
    row, start = runs.row[own] + offset // runs.shape[1], runs.start[own] + offset
    beyond = np.iinfo(np.int64).max
    tissue, first = np.zeros(count, dtype=np.uint8), np.full(count, beyond)
    low, high = np.full((count, 2), beyond), np.full((count, 2), -1)
    # The last of several values for one place stays.
    tissue[part], first[part[::-1]] = runs.value[own], start[::-1]
    low[part[::-1], 0], high[part, 0] = row[::-1], row
    np.minimum.at(low[:, 1], part, left)
    np.maximum.at(high[:, 1], part, left + length - 1)
    middle = (_sums(part, row * length, count), _sums(part, (left + (length - 1) / 2) * length, count))
    sums = np.zeros(count) if confidence is None else _sums(part, confidence[own], count)
    pixels = np.bincount(part, weights=length, minlength=count).astype(np.int64)
    return Parts(tissue, pixels, first, low, high, np.stack(middle, axis=1), sums)


def contacts_of(runs: Runs, parts: Ints, count: int, *, skip: int) -> Contacts:
    """Sides between the parts (from 1; 0 is none); those within the first ``skip`` rows do not count."""
    touching = runs.touching
    beside = runs.row[touching.left] >= skip
    one = parts[np.concatenate([touching.left[beside], touching.above])]
    other = parts[np.concatenate([touching.right[beside], touching.below])]
    border = np.flatnonzero(one != other)
    one, other = one[border], other[border]
    code, place = np.unique(np.minimum(one, other) * (count + 1) + np.maximum(one, other), return_inverse=True)
    upright = border < np.count_nonzero(beside)
    shared = touching.shared[border[~upright] - np.count_nonzero(beside)]
    return Contacts(
        code // (count + 1) - 1,
        code % (count + 1) - 1,
        np.bincount(place[~upright], weights=shared, minlength=len(code)).astype(np.int64),
        np.bincount(place[upright], minlength=len(code)).astype(np.int64),
    )


def joined(
    parts: Parts, contacts: Contacts, links: Ints, resolution: Resolution, full: float | None
) -> tuple[RegionTable, Ints]:
    """Regions from the parts of all bands and ``links`` (2, n) between them, and (P,) the region of each part.

    A confidence of ``full`` is certainty; None if no confidences were given.
    """
    region, count = _regions(parts, links)
    pixels = _sums(region, parts.pixels, count)
    low, high = np.full((count, 2), np.iinfo(np.int64).max), np.full((count, 2), -1)
    np.minimum.at(low, region, parts.low)
    np.maximum.at(high, region, parts.high)
    real = parts.pixels > 0
    tissue = np.zeros(count, dtype=np.int64)
    tissue[region[real]] = parts.tissue[real]
    middle = np.stack([_sums(region, parts.middle[:, axis], count) for axis in (0, 1)], axis=1)
    pairs, mm = _lengths(contacts, region, count, resolution)
    between = pairs[:, 0] >= 0
    outside = _sums(pairs[~between, 1], mm[~between], count)
    around = outside.copy()
    for end in (0, 1):
        around += _sums(pairs[between, end], mm[between], count)
    table = RegionTable(
        tissue=tissue,
        pixels=pixels.astype(np.int64),
        area_mm2=pixels * (resolution.pixel_area_um2 / 1e6),
        perimeter_mm=around,
        outside_mm=outside,
        centroid=middle / pixels[:, None],
        box=np.concatenate([low, high - low + 1], axis=1),
        confidence=None if full is None else _sums(region, parts.confidence, count) / pixels / full,
        contacts=pairs[between],
        contact_mm=mm[between],
    )
    return table, region


def _regions(parts: Parts, links: Ints) -> tuple[Ints, int]:
    """(P,) the region of each part, in reading order of the regions, and how many there are."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    size = len(parts.pixels)
    one, other = links.astype(np.int32)
    count, found = connected_components(coo_array((np.ones(len(one), np.int8), (one, other)), (size, size)), False)
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, found, parts.first)
    place = np.empty(count, dtype=np.int64)
    place[np.argsort(first)] = np.arange(count)
    return place[found], int(count)


def _lengths(contacts: Contacts, region: Ints, count: int, resolution: Resolution) -> tuple[Ints, Floats]:
    """(C, 2) pairs of regions, the smaller number first, -1 being outside, and (C,) the mm that they share."""
    # One more entry, which -1 finds.
    place = np.append(region, -1)
    one, other = place[contacts.one], place[contacts.other]
    code = (np.minimum(one, other) + 1) * (count + 1) + np.maximum(one, other) + 1
    unique, at = np.unique(code, return_inverse=True)
    level, upright = (_sums(at, sides, len(unique)) for sides in (contacts.level, contacts.upright))
    pairs = np.stack([unique // (count + 1), unique % (count + 1)], axis=1) - 1
    return pairs, (level * resolution.x + upright * resolution.y) / 1e3


def _sums(place: Ints, values: NDArray[np.number], count: int) -> Floats:
    return np.bincount(place, weights=values, minlength=count).astype(np.float64)
