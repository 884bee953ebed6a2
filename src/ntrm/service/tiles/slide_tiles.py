"""Tiles of the slide itself, read on demand in limited child processes."""

from __future__ import annotations

import io
import time
from collections.abc import Hashable

import numpy as np

from ntrm.data.area_mean import box_means
from ntrm.service.core.problems import busy
from ntrm.service.tiles.geometry import DeepZoom
from ntrm.service.tiles.readers import OpenSlide
from ntrm.slides.grid import best_level, box_weights, read_area
from ntrm.slides.readers.reader import ArrayCache, Pixels

QUALITY = 85
MOST_PIXELS = 2**23  # Read for one tile; where a slide lacks the coarse level, a tile is made from finer tiles instead


class SlideTiles:
    """The tiles of one slide; coarse ones of slides without a pyramid are cached: making one reads the whole slide."""

    def __init__(self, slide: OpenSlide, cache: ArrayCache, key: tuple[Hashable, ...]) -> None:
        self._slide, self._cache, self._key = slide, cache, key
        _, _, width, height = slide.info.area
        self.zoom = DeepZoom(width, height)

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
            box_weights(0, length, 2.0, 0, total, total) for length, total in ((box.height, height), (box.width, width))
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
