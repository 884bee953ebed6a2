"""Which region lies at a point: boxes first, then the polygons of those few that may, read from GeoJSON lines."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ntrm.results.folder import SlideFolder

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

Row = dict[str, Any]
Ring = NDArray[np.float64]  # (N, 2) x and y; the last point is the first one again
MOST_BYTES, MOST_LINE = 2**31, 2**26  # Of polygons as text: of all in a file, and of one
MOST_OBJECTS = 1000  # In a line
LEAST = 4  # Points of a ring that is still an area


def thinned(rings: Sequence[Ring], most: int) -> list[Ring]:
    """The same rings with at most ``most`` points together: one of so many, and without the smallest holes."""
    total = sum(map(len, rings))
    if total <= most:
        return list(rings)
    # Each has up to two points more than its share.
    step = -(-2 * total // most)
    kept = [ring for ring in rings if len(ring) > LEAST * step] or [max(rings, key=len)]
    return [np.concatenate([ring[:-1:step], ring[:1]]) if len(ring) > LEAST * step else ring for ring in kept]


class RegionFinder:
    """The regions of one slide; polygons stay on disk until one is asked for."""

    def __init__(self, rows: Sequence[Row], polygons: Path) -> None:
        self.rows = {int(row["region"]): row for row in rows}
        self._numbers = [*self.rows]
        self._tissues = np.array([row["tissue"] for row in rows], dtype=object)
        keys = ("left_px", "top_px", "width_px", "height_px", "area_mm2")
        self._boxes = np.array([[row[key] for key in keys] for row in rows], dtype=np.float64).reshape(-1, 5)
        self._polygons = polygons
        self._lines: list[int] = []

    def find(self, tissue: str | None, x: float, y: float) -> Row | None:
        """The region of that tissue that holds a point of the full resolution."""
        from shapely import contains_xy

        left, top, width, height, areas = self._boxes.T
        inside = (left <= x) & (x < left + width) & (top <= y) & (y < top + height) & (self._tissues == tissue)
        candidates = np.flatnonzero(inside)
        for index in candidates[np.argsort(areas[candidates])].tolist():
            # A connected region of this tissue lies here: where it is the only one that may, it need not be looked at.
            if len(candidates) == 1 or contains_xy(self._polygon(index), x, y):
                return self.rows[self._numbers[index]]
        return None

    def outline(self, number: int) -> list[Ring] | None:
        """All rings of a region, outer ones and holes; None where its polygon cannot be read."""
        from shapely import get_coordinates, get_parts, get_rings

        polygon = self._polygon(self._numbers.index(number)) if number in self.rows else None
        return None if polygon is None else [get_coordinates(ring) for ring in get_rings(get_parts(polygon))]

    def _polygon(self, index: int) -> BaseGeometry | None:
        """Of a feature by its position in the file; each has a line of its own."""
        from shapely import GEOSException, from_geojson

        folder, name = SlideFolder(self._polygons.parent), self._polygons.name
        is_plain = folder.has(name)
        try:
            with folder.open(name if is_plain else f"{name}.gz") as file:
                stream = file if is_plain else gzip.GzipFile(fileobj=file)
                if not self._lines:
                    starts = [0]
                    while len(starts) <= len(self.rows) and starts[-1] < MOST_BYTES and stream.readline(MOST_LINE):
                        starts.append(stream.tell())
                    self._lines = starts
                stream.seek(self._lines[index + 1])
                line = stream.readline(MOST_LINE).rstrip(b",\r\n ")
            # Collections of collections: the library would go down them until its stack overflows.
            return None if line.count(b"{") > MOST_OBJECTS else from_geojson(line)
        except (OSError, EOFError, ValueError, LookupError, zlib.error, GEOSException):
            return None
