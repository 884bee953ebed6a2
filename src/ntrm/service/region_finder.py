"""Which region lies at a point: boxes first, then the polygons of those few that may."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.service.outlines import Ring, holds, rings_of

Row = dict[str, Any]


class RegionFinder:
    """The regions of one slide; polygons stay on disk until one is asked for."""

    def __init__(self, rows: list[Row], polygons: Path) -> None:
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
        found = np.flatnonzero(self._numbers == number)
        return self._rings(int(found[0])) if len(found) else None

    def _rings(self, index: int) -> list[Ring] | None:
        """Of the feature in that place of the file; each stands on a line of its own."""
        try:
            with self._open() as stream:
                if self._lines is None:
                    self._lines = _line_starts(stream)
                stream.seek(int(self._lines[index + 1]))
                return rings_of(stream.readline())
        except (OSError, EOFError, ValueError, LookupError):
            return None

    def _open(self) -> Any:
        packed = self._polygons.with_name(self._polygons.name + ".gz")
        return self._polygons.open("rb") if self._polygons.is_file() else gzip.open(packed, "rb")


def _line_starts(stream: Any) -> NDArray[np.int64]:
    stream.seek(0)
    lengths = np.fromiter((len(line) for line in stream), dtype=np.int64)
    return np.concatenate([[0], np.cumsum(lengths)])
