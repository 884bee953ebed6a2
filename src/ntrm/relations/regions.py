"""Connected regions of one tissue each (8 neighbours): their areas, outlines, places and mutual contacts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.relations.runs import Runs, Touching, components
from ntrm.resolution import Resolution

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


def find_regions(
    runs: Runs,
    outside: int,
    resolution: Resolution,
    confidence: NDArray[np.number[Any]] | None = None,
    full: float = 1.0,
) -> RegionTable:
    """Regions of everything but ``outside`` in a mask given by its runs; a confidence of ``full`` is certainty."""
    parts, count = components(runs, outside=outside, eight=True)
    row, left, length = runs.row, runs.left, runs.length
    pixels = _sums(parts, length, count)
    shared = shared_sides(runs.touching, parts, count + 1, resolution)
    between = (shared.pairs > 0).all(axis=1)
    middle = np.stack([_sums(parts, row * length, count), _sums(parts, (left + (length - 1) / 2) * length, count)], 1)
    by_part = np.argsort(parts, kind="stable")
    first = np.searchsorted(parts[by_part], np.arange(1, count + 1))
    return RegionTable(
        tissue=runs.value[by_part[first]].astype(np.int64),
        pixels=pixels.astype(np.int64),
        area_mm2=pixels * (resolution.pixel_area_um2 / 1e6),
        perimeter_mm=shared.around(count + 1)[1:],
        centroid=middle / pixels[:, None],
        box=_boxes(row[by_part], left[by_part], (left + length)[by_part], first),
        confidence=None if confidence is None else _sums(parts, _run_sums(runs, confidence), count) / pixels / full,
        contacts=shared.pairs[between] - 1,
        contact_mm=shared.mm[between],
    )


def _sums(parts: Ints, values: NDArray[Any], count: int) -> Floats:
    return np.bincount(parts, weights=values, minlength=count + 1)[1:].astype(np.float64)


def _run_sums(runs: Runs, values: NDArray[np.number[Any]]) -> Floats:
    """(n,) sum of the values (H, W) under each run."""
    return np.asarray(np.add.reduceat(values.ravel(), runs.start, dtype=np.float64))


def _boxes(row: Ints, left: Ints, right: Ints, first: Ints) -> Ints:
    """(R, 4) from runs sorted by their part, of which each begins at ``first``."""
    if not first.size:
        return np.zeros((0, 4), dtype=np.int64)
    top, bottom = np.minimum.reduceat(row, first), np.maximum.reduceat(row, first) + 1
    start, stop = np.minimum.reduceat(left, first), np.maximum.reduceat(right, first)
    return np.stack([top, start, bottom - top, stop - start], axis=1)


@dataclass(frozen=True, eq=False)
class Shared:
    """Length of the pixel sides between pairs of parts, the smaller number first."""

    pairs: Ints
    mm: Floats

    def around(self, size: int) -> Floats:
        """(size,) length around each part."""
        total = np.zeros(size)
        for end in (0, 1):
            total += np.bincount(self.pairs[:, end], weights=self.mm, minlength=size)
        return total


def shared_sides(touching: Touching, parts: Ints, size: int, resolution: Resolution) -> Shared:
    """Length that each two parts share, given the part of each run (below ``size``)."""
    one, other = (parts[np.concatenate(ends)] for ends in _ends(touching))
    mm = np.concatenate([np.full(len(touching.left), resolution.y), touching.shared * resolution.x]) / 1e3
    border = one != other
    code = np.minimum(one, other)[border] * size + np.maximum(one, other)[border]
    unique, place = np.unique(code, return_inverse=True)
    together = np.bincount(place, weights=mm[border], minlength=len(unique))
    return Shared(np.stack([unique // size, unique % size], axis=1), together.astype(np.float64))


def _ends(touching: Touching) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    return (touching.left, touching.above), (touching.right, touching.below)
