"""Outlines of regions from a line of ``regions.geojson``: read without building nested lists, thinned for a browser."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ring = NDArray[np.float64]
"""(N, 2) x and y; the last point is the first one again."""

_BETWEEN = re.compile(rb"\]\]+,\[\[+")
LEAST = 4
"""Points of a ring that is still an area."""


def rings_of(feature: bytes) -> list[Ring]:
    """All rings of a feature's polygons, outer ones and holes; raises ``ValueError`` for what has none.

    >>> [ring.tolist() for ring in rings_of(b'{"geometry":{"coordinates":[[[0,0],[2,0],[0,2],[0,0]]]}}')]
    [[[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 0.0]]]
    """
    start = feature.index(b'"coordinates":') + len(b'"coordinates":')
    plain = feature[start : feature.index(b"}", start)].translate(None, b" \r\n\t").strip(b"[],")
    return [
        np.loadtxt(io.BytesIO(part.replace(b"],[", b"\n")), delimiter=",", ndmin=2) for part in _BETWEEN.split(plain)
    ]


def holds(rings: Sequence[Ring], x: float, y: float) -> bool:
    """Whether an odd number of edges lies to the right of the point: holes count themselves out."""
    crossings = 0
    for points in rings:
        (x0, y0), (x1, y1) = points[:-1].T, points[1:].T
        spans = (y0 > y) != (y1 > y)
        where = x0[spans] + (y - y0[spans]) / (y1[spans] - y0[spans]) * (x1[spans] - x0[spans])
        crossings += int((where > x).sum())
    return crossings % 2 == 1


def thinned(rings: Sequence[Ring], most: int) -> list[Ring]:
    """The same rings with at most ``most`` points together: evenly fewer of each, and without the smallest holes."""
    if sum(map(len, rings)) <= most:
        return list(rings)
    largest = sorted(rings, key=_area, reverse=True)[: max(1, most // (2 * (LEAST + 1)))]
    share = (most - (LEAST + 1) * len(largest)) / sum(map(len, largest))
    return [_thin(ring, LEAST + int(share * len(ring))) for ring in largest]


def _thin(ring: Ring, points: int) -> Ring:
    if points >= len(ring) - 1:
        return ring
    kept = ring[np.linspace(0, len(ring) - 1, points, endpoint=False).astype(np.int64)]
    return np.concatenate([kept, kept[:1]])


def _area(ring: Ring) -> float:
    x, y = (ring - ring[0]).T
    return abs(float(x[:-1] @ y[1:] - x[1:] @ y[:-1])) / 2
