"""Which region lies at a point: boxes first, then the polygons of those few that may, read from GeoJSON lines."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.results.folder import SlideFolder

Row = dict[str, Any]
Ring = NDArray[np.float64]
"""(N, 2) x and y; the last point is the first one again."""

_BETWEEN = re.compile(rb"\]\]+,\[\[+")
MOST_BYTES, MOST_LINE = 2**31, 2**26
"""Of polygons as text: of all in a file, and of one."""
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
        np.loadtxt(io.BytesIO(ring.replace(b"],[", b"\n")), delimiter=",", ndmin=2) for ring in _BETWEEN.split(plain)
    ]


def holds(rings: Sequence[Ring], x: float, y: float) -> bool:
    """Whether the point lies inside: an odd number of edges is to its right (even-odd rule, so that holes count)."""
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
    fraction = (most - (LEAST + 1) * len(largest)) / sum(map(len, largest))
    return [_thin(ring, LEAST + int(fraction * len(ring))) for ring in largest]


def _thin(ring: Ring, points: int) -> Ring:
    if points >= len(ring) - 1:
        return ring
    kept = ring[np.linspace(0, len(ring) - 1, points, endpoint=False).astype(np.int64)]
    return np.concatenate([kept, kept[:1]])


def _area(ring: Ring) -> float:
    x, y = (ring - ring[0]).T
    return abs(float(x[:-1] @ y[1:] - x[1:] @ y[:-1])) / 2


class RegionFinder:
    """The regions of one slide; polygons stay on disk until one is asked for."""

    def __init__(self, rows: Sequence[Row], polygons: Path) -> None:
        self._rows = {int(row["region"]): row for row in rows}
        self._numbers = np.array([row["region"] for row in rows], dtype=np.int64)
        self._tissues = np.array([row["tissue"] for row in rows], dtype=object)
        keys = ("left_px", "top_px", "width_px", "height_px")
        self._boxes = np.array([[row[key] for key in keys] for row in rows], dtype=np.float64).reshape(-1, 4)
        self._areas = np.array([row["area_mm2"] for row in rows], dtype=np.float64)
        self._polygons = polygons
        self._lines: NDArray[np.int64] | None = None

    def row(self, number: int) -> Row | None:
        """A region by its number."""
        return self._rows.get(number)

    def find(self, tissue: str | None, x: float, y: float) -> Row | None:
        """The region of that tissue that holds a point of the full resolution."""
        left, top, width, height = self._boxes.T
        inside = (left <= x) & (x < left + width) & (top <= y) & (y < top + height) & (self._tissues == tissue)
        candidates = np.flatnonzero(inside)
        if len(candidates) == 1:
            # A connected region of this tissue lies here, and no other can.
            return self._rows[int(self._numbers[candidates[0]])]
        for index in candidates[np.argsort(self._areas[candidates])]:
            rings = self._rings(int(index))
            if rings is not None and holds(rings, x, y):
                return self._rows[int(self._numbers[index])]
        return None

    def outline(self, number: int) -> list[Ring] | None:
        """All rings of a region; None where its polygon cannot be read."""
        indices = np.flatnonzero(self._numbers == number)
        return self._rings(int(indices[0])) if len(indices) else None

    def _rings(self, index: int) -> list[Ring] | None:
        """Of a feature by its position in the file; each has a line of its own."""
        try:
            with self._open() as stream:
                if self._lines is None:
                    self._lines = _line_starts(stream, len(self._numbers) + 1)
                stream.seek(int(self._lines[index + 1]))
                return rings_of(stream.readline(MOST_LINE))
        except (OSError, EOFError, ValueError, LookupError, zlib.error):
            return None

    @contextmanager
    def _open(self) -> Iterator[io.BufferedIOBase]:
        folder, name = SlideFolder(self._polygons.parent), self._polygons.name
        with folder.open(name if folder.has(name) else f"{name}.gz") as stream:
            yield stream if folder.has(name) else gzip.GzipFile(fileobj=stream)


def _line_starts(stream: io.BufferedIOBase, lines: int) -> NDArray[np.int64]:
    """Where each of the first lines begins; a line may be longer than what may be kept of a file."""
    starts, position = [0], 0
    while len(starts) < lines and position < MOST_BYTES and (content := stream.read(2**20)):
        ends = np.flatnonzero(np.frombuffer(content, dtype=np.uint8) == ord("\n"))
        starts += (ends + position + 1).tolist()
        position += len(content)
    return np.array(starts)
