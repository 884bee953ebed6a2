"""Polygons to pixels (a pixel belongs to an area if its centre lies inside), and the pixels of the slide under them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntrm.annotations.qupath import Annotation, Ring
from ntrm.core.labels import IGNORE, Mask
from ntrm.core.links import ranges
from ntrm.data.area_mean import Boxes, area_boxes, box_means
from ntrm.wsi.readers.reader import Pixels, SlideReader

CROSSINGS = 1 << 21
"""Edge crossings worked on at once; bounds the memory that a ragged outline of many long edges needs."""
BLOCK = 1024
"""Side of the largest block of the slide held in memory, in full-resolution pixels."""


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


def paint(areas: Sequence[tuple[Annotation, int]], grid: AnnotationGrid) -> tuple[Mask, dict[tuple[int, int], int]]:
    """Mask of annotations and their values, larger ones below smaller ones, and where different classes overlapped.

    Of two areas of one size the later lies on top. What no area covers is ``IGNORE``. The second result
    counts pixels by (value below, value on top).
    """
    mask = np.full((grid.height, grid.width), IGNORE, dtype=np.uint8)
    overlaps: dict[tuple[int, int], int] = {}
    for annotation, value in sorted(areas, key=lambda area: -area[0].area):
        rings = [grid.to_pixels(ring) for ring in annotation.rings]
        # Only the pixels that the rings can touch.
        points, size = np.concatenate(rings), (grid.width, grid.height)
        left, top = np.clip(np.floor(points.min(axis=0)), 0, size).astype(int)
        right, bottom = np.clip(np.ceil(points.max(axis=0)), 0, size).astype(int)
        window = mask[top:bottom, left:right]
        inside = fill(rings, window.shape[1], window.shape[0], left, top)
        for below, pixels in enumerate(np.bincount(window[inside], minlength=IGNORE)[:IGNORE].tolist()):
            if pixels and value not in (below, IGNORE):
                overlaps[below, value] = overlaps.get((below, value), 0) + pixels
        window[inside] = value
    return mask, overlaps


def read_grid(reader: SlideReader, grid: AnnotationGrid) -> Pixels:
    """The slide on a coarser grid: every pixel is the mean of the slide over its area, read block by block.

    QuPath shows only the scanned area where a file states one, and counts pixels from its top left; so does the grid.
    """
    image = np.empty((grid.height, grid.width, 3), dtype=np.uint8)
    x, y, width, height = reader.info.area
    columns = _blocks(grid.left, grid.step_x, grid.width, width)
    for rows, down in _blocks(grid.top, grid.step_y, grid.height, height):
        for place, across in columns:
            pixels = reader.read(across.start + x, down.start + y, across.length, down.length, 0)
            image[rows, place] = box_means(pixels, down, across)
    return image


def _blocks(origin: float, step: float, count: int, length: int) -> list[tuple[slice, Boxes]]:
    """Pixels of the grid along an axis, as many as are read together, and what they cover of the slide."""
    most = max(1, int(BLOCK / step))
    parts = [range(first, min(first + most, count)) for first in range(0, count, most)]
    return [(slice(part.start, part.stop), area_boxes(part, step, length, origin)) for part in parts]
