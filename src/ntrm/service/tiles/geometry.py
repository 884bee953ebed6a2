"""Deep-zoom geometry: levels that halve, from the full resolution down to one pixel, in tiles without overlap."""

from __future__ import annotations

from dataclasses import dataclass

from ntrm.service.core.problems import missing

TILE = 256


@dataclass(frozen=True)
class TileBox:
    """A tile's pixels on its level."""

    left: int
    top: int
    width: int
    height: int


@dataclass(frozen=True)
class DeepZoom:
    """The scanned part of a slide as tiles.

    >>> zoom = DeepZoom(1000, 300)
    >>> zoom.top, zoom.size(zoom.top - 1), zoom.grid(zoom.top), zoom.tile(zoom.top, 3, 1)
    (10, (500, 150), (4, 2), TileBox(left=768, top=256, width=232, height=44))
    """

    width: int
    height: int

    @property
    def top(self) -> int:
        """Number of the level of full resolution; level 0 is one pixel."""
        return (max(self.width, self.height) - 1).bit_length()

    def scale(self, level: int) -> int:
        """Pixels of the full resolution along one pixel of ``level``."""
        if not 0 <= level <= self.top:
            raise missing("no such level", f"the full resolution is level {self.top}")
        return 1 << (self.top - level)

    def size(self, level: int) -> tuple[int, int]:
        """Width and height of ``level``."""
        scale = self.scale(level)
        return -(-self.width // scale), -(-self.height // scale)

    def grid(self, level: int) -> tuple[int, int]:
        """Columns and rows of tiles."""
        width, height = self.size(level)
        return -(-width // TILE), -(-height // TILE)

    def tile(self, level: int, column: int, row: int) -> TileBox:
        """Where a tile lies; refuses one that does not."""
        width, height = self.size(level)
        columns, rows = self.grid(level)
        if not (0 <= column < columns and 0 <= row < rows):
            raise missing("no such tile", f"level {level} has {columns} × {rows} tiles")
        left, top = column * TILE, row * TILE
        return TileBox(left, top, min(TILE, width - left), min(TILE, height - top))
