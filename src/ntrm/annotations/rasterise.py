"""Polygons to pixels (a pixel belongs to an area if its centre lies inside), and the pixels of the slide under them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.annotations.qupath import Annotation, Ring
from ntrm.core.labels import IGNORE, Mask
from ntrm.core.links import ranges
from ntrm.wsi.readers.reader import Pixels, SlideReader

CROSSINGS = 1 << 21
"""Edge crossings worked on at once; bounds the memory that a ragged outline of many long edges needs."""
BLOCK = 1024
"""Side of the largest block of the slide held in memory, in full-resolution pixels."""
FRAME = "region*"
"""QuPath's class for a frame around what is annotated, in lower case; the annotations in it are meant to be seen."""


@dataclass(frozen=True)
class AnnotationGrid:
    """A pixel grid on the slide: it starts at ``left``, ``top``; a pixel is ``step_x`` by ``step_y``."""

    left: float
    top: float
    step_x: float
    step_y: float
    width: int
    height: int

    def to_pixels(self, ring: Ring) -> Ring:
        """Slide coordinates in pixels of this grid.

        >>> AnnotationGrid(10, 20, 2, 2, 5, 5).to_pixels(np.array([[14.0, 26.0]])).tolist()
        [[2.0, 3.0]]
        """
        return (ring - (self.left, self.top)) / (self.step_x, self.step_y)


def fill(rings: Iterable[Ring], width: int, height: int, left: int = 0, top: int = 0) -> NDArray[np.bool_]:
    """Pixels whose centres lie inside the rings by the even-odd rule, in the window that starts at ``left``, ``top``.

    Centres exactly on an edge belong to the area on its right or, for horizontal edges, below, so areas
    that share an edge neither overlap nor leave a gap.

    >>> fill([np.array([[0.5, 0], [2.5, 0], [2.5, 1], [0.5, 1]])], 4, 2).astype(int).tolist()
    [[1, 1, 0, 0], [0, 0, 0, 0]]
    """
    # A crossing at x flips every pixel to its right: mark the first of them, then run along the row.
    flips = np.zeros((height, width + 1), dtype=np.uint8)
    for row, x in _crossings(rings, top, top + height):
        column = np.clip(np.ceil(x - 0.5) - left, 0, width).astype(np.intp)
        np.bitwise_xor.at(flips, (row - top, column), np.uint8(1))
    return np.bitwise_xor.accumulate(flips, axis=1)[:, :width].astype(bool)


def _crossings(rings: Iterable[Ring], top: int, bottom: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float64]]]:
    """Rows, and the x at which an edge crosses the middle of the row, in chunks of bounded size."""
    # (n, 4): x, y of upper and lower end
    edges = np.concatenate([_edges(ring) for ring in rings] or [np.empty((0, 4))])
    first = np.clip(np.ceil(edges[:, 1] - 0.5), top, bottom).astype(np.intp)
    stop = np.clip(np.ceil(edges[:, 3] - 0.5), top, bottom).astype(np.intp)
    edges, first, stop = edges[first < stop], first[first < stop], stop[first < stop]
    chunk = np.cumsum(stop - first) // CROSSINGS
    for chunk_edges in np.split(np.arange(len(edges)), np.flatnonzero(np.diff(chunk)) + 1):
        rows = stop[chunk_edges] - first[chunk_edges]
        which = np.repeat(chunk_edges, rows)
        row = ranges(first[chunk_edges], rows)
        x0, y0, x1, y1 = edges[which].T
        yield row, x0 + (row + 0.5 - y0) / (y1 - y0) * (x1 - x0)


def _edges(ring: Ring) -> NDArray[np.float64]:
    """Edges of a ring, upper end first: an edge that two areas share then gives the same crossing for both."""
    start, end = ring, np.roll(ring, -1, axis=0)
    down = (start[:, 1] <= end[:, 1])[:, None]
    return np.hstack([np.where(down, start, end), np.where(down, end, start)])


class Painted(NamedTuple):
    """A mask made of areas."""

    mask: Mask
    overlaps: dict[tuple[int, int], int]
    """Pixels by (value below, value on top) where areas of different values lie on each other."""
    pixels: tuple[int, ...]
    """Of each area, those beneath others included."""


def paint(areas: Sequence[tuple[Annotation, int]], grid: AnnotationGrid) -> Painted:
    """Mask of annotations and their values, larger ones below smaller ones, and what QuPath ignores on top of all.

    Of two areas of one size the later lies on top. What no area covers is ``IGNORE``.
    """
    mask = np.full((grid.height, grid.width), IGNORE, dtype=np.uint8)
    overlaps: dict[tuple[int, int], int] = {}
    covered = [0] * len(areas)
    for number, (annotation, value) in sorted(enumerate(areas), key=lambda each: _place(*each[1])):
        rings = [grid.to_pixels(ring) for ring in annotation.rings]
        # Only the pixels that the rings can touch.
        points, size = np.concatenate(rings), (grid.width, grid.height)
        left, top = np.clip(np.floor(points.min(axis=0)), 0, size).astype(int)
        right, bottom = np.clip(np.ceil(points.max(axis=0)), 0, size).astype(int)
        window = mask[top:bottom, left:right]
        inside = fill(rings, window.shape[1], window.shape[0], left, top)
        for below, pixels in enumerate(np.bincount(window[inside], minlength=IGNORE)[:IGNORE].tolist()):
            if pixels and value != below:
                overlaps[below, value] = overlaps.get((below, value), 0) + pixels
        window[inside] = value
        covered[number] = int(inside.sum())
    return Painted(mask, overlaps, tuple(covered))


def _place(annotation: Annotation, value: int) -> tuple[bool, float]:
    """What an annotation is sorted by, from the lowest to the top: a fold or ink hides also what is smaller.

    Of a class that was renamed to nothing it is not known whether it covers a fold or outlines what is annotated.
    """
    covers = value == IGNORE and annotation.name.endswith("*") and annotation.name.lower() != FRAME
    return covers, -annotation.area


def read_grid(reader: SlideReader, grid: AnnotationGrid) -> Pixels:
    """The slide on a coarser grid: every pixel is the mean of the slide over its area, read block by block.

    QuPath shows only the scanned area where a file states one, and counts pixels from its top left; so does the grid.
    """
    image = np.empty((grid.height, grid.width, 3), dtype=np.uint8)
    tall, wide = (max(1, int(BLOCK / step)) for step in (grid.step_y, grid.step_x))
    for row in range(0, grid.height, tall):
        for column in range(0, grid.width, wide):
            block = image[row : row + tall, column : column + wide]
            down = grid.top + grid.step_y * np.arange(row, row + block.shape[0] + 1)
            across = grid.left + grid.step_x * np.arange(column, column + block.shape[1] + 1)
            block[:] = _read_block(reader, down, across)
    return image


def _read_block(reader: SlideReader, down: NDArray[np.float64], across: NDArray[np.float64]) -> Pixels:
    """Means over the cells between the row and column borders."""
    x, y, width, height = reader.info.area
    left, top = int(np.floor(across[0])), int(np.floor(down[0]))
    # A last border may exceed the slide by rounding alone.
    right, bottom = min(int(np.ceil(across[-1] - 1e-6)), width), min(int(np.ceil(down[-1] - 1e-6)), height)
    pixels = reader.read(left + x, top + y, right - left, bottom - top, 0)
    if all(np.array_equal(b, np.arange(len(b))) for b in (down - top, across - left)):
        return pixels  # the grid is the slide's own
    means = area_mean(area_mean(pixels, down - top).swapaxes(0, 1), across - left).swapaxes(0, 1)
    return np.floor(means + 0.5).astype(np.uint8)


def area_mean(values: NDArray[Any], borders: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean along the first axis between successive borders; cells that a border cuts count by their fraction.

    >>> area_mean(np.array([10.0, 20.0, 40.0]), np.array([0, 1.5, 3])).round(3).tolist()
    [13.333, 33.333]
    """
    total = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0, dtype=np.float64)])
    column = (-1, *[1] * (values.ndim - 1))
    index = np.clip(np.floor(borders).astype(int), 0, len(values) - 1)
    fraction = np.clip(borders - index, 0, 1).reshape(column)
    at_border: NDArray[np.float64] = total[index] + fraction * values[index]
    return np.diff(at_border, axis=0) / np.diff(borders).reshape(column)
