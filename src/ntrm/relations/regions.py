"""Connected regions of one tissue each (8 neighbours): their areas, outlines, places and mutual contacts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    labels: NDArray[np.integer[Any]],
    outside: int,
    resolution: Resolution,
    confidence: NDArray[np.floating[Any]] | None = None,
) -> RegionTable:
    """Regions of everything but ``outside``."""
    from scipy import ndimage
    from skimage import measure

    # Any, as the library is not typed.
    joined: Any = measure.label
    parts, count = joined(labels, connectivity=2, background=outside, return_num=True)
    flat = parts.ravel()
    pixels = np.bincount(flat, minlength=count + 1)[1:].astype(np.int64)
    first = np.zeros(count + 1, dtype=np.int64)
    first[flat[::-1]] = np.arange(flat.size - 1, -1, -1)  # the first pixel of a region is written last
    boxes = [_box(found) for found in ndimage.find_objects(parts)]
    lengths = _shared_sides(parts, count + 1, resolution)
    sums = None if confidence is None else np.bincount(flat, weights=confidence.ravel(), minlength=count + 1)[1:]
    between = (lengths.pairs > 0).all(axis=1)
    return RegionTable(
        tissue=labels.ravel()[first[1:]].astype(np.int64),
        pixels=pixels,
        area_mm2=pixels.astype(np.float64) * (resolution.pixel_area_um2 / 1e6),
        perimeter_mm=lengths.around(count + 1)[1:],
        centroid=_centroids(parts, pixels),
        box=np.array(boxes, dtype=np.int64).reshape(-1, 4),
        confidence=None if sums is None else sums / np.maximum(pixels, 1),
        contacts=lengths.pairs[between] - 1,
        contact_mm=lengths.mm[between],
    )


@dataclass(frozen=True, eq=False)
class _Shared:
    pairs: Ints
    mm: Floats

    def around(self, size: int) -> Floats:
        total = np.zeros(size)
        for end in (0, 1):
            total += np.bincount(self.pairs[:, end], weights=self.mm, minlength=size)
        return total


def _shared_sides(parts: NDArray[np.integer[Any]], size: int, resolution: Resolution) -> _Shared:
    """Length of the pixel sides between each two parts, 0 (outside) among them."""
    codes, weights = [], []
    for one, other, side_um in (
        (parts[:, :-1], parts[:, 1:], resolution.y),
        (parts[:-1], parts[1:], resolution.x),
    ):
        border = one != other
        low, high = np.minimum(one[border], other[border]), np.maximum(one[border], other[border])
        found, count = np.unique(low.astype(np.int64) * size + high, return_counts=True)
        codes.append(found)
        weights.append(count * (side_um / 1e3))
    unique, place = np.unique(np.concatenate(codes), return_inverse=True)
    mm = np.bincount(place, weights=np.concatenate(weights), minlength=len(unique))
    return _Shared(np.stack([unique // size, unique % size], axis=1), mm.astype(np.float64))


def _centroids(parts: NDArray[np.integer[Any]], pixels: Ints) -> Floats:
    rows, columns = np.zeros(len(pixels) + 1), np.zeros(len(pixels) + 1)
    across = np.arange(parts.shape[1])
    for row, line in enumerate(
        parts
    ):  # Line by line: coordinates of all pixels at once would need eight times as much.
        counts = np.bincount(line, minlength=len(rows)) if len(rows) < 4 * len(line) else None
        if counts is not None:
            rows += row * counts
            columns += np.bincount(line, weights=across, minlength=len(rows))
        else:
            np.add.at(rows, line, row)
            np.add.at(columns, line, across)
    return np.asarray(np.stack([rows[1:], columns[1:]], axis=1) / np.maximum(pixels, 1)[:, None])


def _box(found: tuple[slice, slice] | None) -> tuple[int, int, int, int]:
    if found is None:
        return (0, 0, 0, 0)
    rows, columns = found
    return rows.start, columns.start, rows.stop - rows.start, columns.stop - columns.start
