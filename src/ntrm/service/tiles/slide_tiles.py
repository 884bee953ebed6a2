"""Deep zoom: levels that halve down to one pixel, in tiles; such tiles of a slide itself, and those used last."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from ntrm.data.area_mean import box_means
from ntrm.service.core.problems import busy, missing
from ntrm.service.core.settings import ServiceLimits
from ntrm.slides.grid import best_level, box_weights, read_area
from ntrm.slides.readers.reader import ArrayCache, Pixels, SlideReader

TILE = 256
MOST_TILES = 4096  # Kept: of some ten kilobytes each
QUALITY = 85
MOST_PIXELS = 2**23  # Read for one tile; where a slide lacks the coarse level, a tile is made from finer tiles instead


class TileBox(NamedTuple):
    """A tile's pixels on its level."""

    left: int
    top: int
    width: int
    height: int


class DeepZoom(NamedTuple):
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
        (width, height), (columns, rows) = self.size(level), self.grid(level)
        if not (0 <= column < columns and 0 <= row < rows):
            raise missing("no such tile", f"level {level} has {columns} × {rows} tiles")
        left, top = column * TILE, row * TILE
        return TileBox(left, top, min(TILE, width - left), min(TILE, height - top))


class SlideTiles:
    """The tiles of one slide; coarse ones of slides without a pyramid are cached: making one reads the whole slide."""

    def __init__(self, slide: SlideReader, cache: ArrayCache, key: tuple[Hashable, ...]) -> None:
        self._slide, self._cache, self._key = slide, cache, key
        self.zoom = DeepZoom(*slide.info.area[2:])

    def jpeg(self, level: int, column: int, row: int, seconds: float) -> bytes:
        """A tile as a file."""
        return encode_jpeg(self.pixels(level, column, row, time.monotonic() + seconds))

    def pixels(self, level: int, column: int, row: int, deadline: float) -> Pixels:
        """(height, width, 3): each pixel is the mean over the pixels of the full resolution that it covers."""
        box, scale, info = self.zoom.tile(level, column, row), self.zoom.scale(level), self._slide.info
        best = best_level(info, scale, scale)
        sx, sy = info.scale(best)
        if (box.width * scale / sx) * (box.height * scale / sy) > MOST_PIXELS and scale > 1:
            return self._cache.get((*self._key, level, column, row), lambda: self._joined(level, column, row, deadline))
        rows, columns = range(box.top, box.top + box.height), range(box.left, box.left + box.width)
        return read_area(self._slide, best, (scale, scale), rows, columns)

    def _joined(self, level: int, column: int, row: int, deadline: float) -> Pixels:
        """A tile from the up to four tiles of the next finer level."""
        if time.monotonic() > deadline:
            # Finer tiles made so far are cached: the next request continues from there.
            raise busy("the slide has no overview, and making one takes a while")
        columns, rows = self.zoom.grid(level + 1)
        finer_columns = range(2 * column, min(2 * column + 2, columns))
        finer_rows = range(2 * row, min(2 * row + 2, rows))
        finer = self._mosaic(level + 1, finer_columns, finer_rows, deadline)
        box, (height, width) = self.zoom.tile(level, column, row), finer.shape[:2]
        down, across = (
            box_weights(0, box.height, 2.0, 0, height, height),
            box_weights(0, box.width, 2.0, 0, width, width),
        )
        return box_means(finer, down, across)

    def overview(self, side: int, seconds: float) -> Pixels:
        """The whole scanned area, with at most ``side`` pixels on its longer side and more than half as many."""
        level = max(level for level in range(self.zoom.top + 1) if max(self.zoom.size(level)) <= side)
        columns, rows = self.zoom.grid(level)
        return self._mosaic(level, range(columns), range(rows), time.monotonic() + seconds)

    def _mosaic(self, level: int, columns: range, rows: range, deadline: float) -> Pixels:
        tiles = [[self.pixels(level, column, row, deadline) for column in columns] for row in rows]
        return np.concatenate([np.concatenate(line, axis=1) for line in tiles])


def encode_jpeg(pixels: Pixels) -> bytes:
    """Pixels as a JPEG file, with nothing else in it."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="JPEG", quality=QUALITY)
    return stream.getvalue()


class TileStore:
    """The tiles used last; several requests for one are answered by one computation. For the event loop alone."""

    def __init__(self, limits: ServiceLimits) -> None:
        self._limits = limits
        self._tiles: dict[Hashable, asyncio.Future[bytes]] = {}  # The one used last stands last
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="tiles")

    async def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """The tile of ``key``, made in a thread if it is not held; 503 where that takes too long."""
        tile = self._tiles.pop(key, None)
        if tile is None or (tile.done() and (tile.cancelled() or tile.exception() is not None)):
            if sum(not each.done() for each in self._tiles.values()) >= self._limits.waiting_tiles:
                raise busy("too many tiles are being made")
            tile = asyncio.get_running_loop().run_in_executor(self._threads, make)
        self._tiles[key] = tile
        if len(self._tiles) > MOST_TILES:
            del self._tiles[next(iter(self._tiles))]
        try:
            # Shielded: others may wait for the same tile, and for the next request it is done.
            async with asyncio.timeout(self._limits.tile_seconds):
                return await asyncio.shield(tile)
        except TimeoutError as error:
            raise busy("the tile takes long to make") from error

    def close(self) -> None:
        """End the threads when their tiles are made."""
        self._threads.shutdown(wait=False, cancel_futures=True)
