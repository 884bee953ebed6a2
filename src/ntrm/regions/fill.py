"""Polygons to pixels by the even-odd rule: a pixel belongs to an area if its centre lies inside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import ranges

Ring = NDArray[np.float64]  # (n, 2) corners of a closed line, x and y

CROSSINGS = 1 << 18
"""Edge crossings worked on at once; bounds the memory that a ragged outline of many long edges needs."""


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
    # (n, 4): x, y of upper and lower end. An edge that two areas share then gives the same crossing for both.
    edges = np.concatenate([np.empty((0, 4)), *(np.hstack([ring, np.roll(ring, -1, axis=0)]) for ring in rings)])
    edges = np.where((edges[:, 1] <= edges[:, 3])[:, None], edges, edges[:, [2, 3, 0, 1]])
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
