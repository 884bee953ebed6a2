"""Tiles of the slide itself, read on demand from the original file in limited child processes."""

from __future__ import annotations

import io
import time
from collections.abc import Hashable

import numpy as np

from ntrm.service.geometry import TILE, Box, DeepZoom
from ntrm.service.problems import busy
from ntrm.service.readers import OpenSlide
from ntrm.slide.grid import best_level
from ntrm.slide.reading.base import Pixels
from ntrm.slide.reading.cache import ArrayCache
from ntrm.slide.resampling import box_weights, resample

QUALITY = 85
MOST_PIXELS = 2**23
"""Read for one tile; where a slide lacks the coarse level, a tile is put together from finer ones instead."""


class SlideTiles:
    """The tiles of one slide; the coarse ones of slides without a pyramid are kept, since they cost the whole slide."""

    def __init__(self, slide: OpenSlide, cache: ArrayCache, key: tuple[Hashable, ...]) -> None:
        self._slide = slide
        self._cache = cache
        self._key = key
        _, _, width, height = slide.info.area
        self.zoom = DeepZoom(width, height)

    def jpeg(self, level: int, column: int, row: int, seconds: float) -> bytes:
        """A tile as a file."""
        return encode_jpeg(self.pixels(level, column, row, time.monotonic() + seconds))

    def pixels(self, level: int, column: int, row: int, deadline: float) -> Pixels:
        """(height, width, 3): each pixel is the mean over those of the full resolution that it stands for."""
        box = self.zoom.tile(level, column, row)
        scale = self.zoom.scale(level)
        info = self._slide.info
        best = best_level(info, scale, scale)
        sx, sy = info.scale(best)
        if (box.width * scale / sx) * (box.height * scale / sy) > MOST_PIXELS and scale > 1:
            return self._cache.get((*self._key, level, column, row), lambda: self._joined(level, column, row, deadline))
        left0, top0, wide0, tall0 = info.area
        this = info.levels[best]
        down = box_weights(box.top, box.top + box.height, scale / sy, top0 / sy, tall0 / sy, this.height)
        across = box_weights(box.left, box.left + box.width, scale / sx, left0 / sx, wide0 / sx, this.width)
        x, y = round(across.start * this.downsample), round(down.start * this.downsample)
        return resample(self._slide.read(x, y, across.length, down.length, best), down, across)

    def _joined(self, level: int, column: int, row: int, deadline: float) -> Pixels:
        """A tile from the up to four tiles of the next finer level."""
        if time.monotonic() > deadline:
            # What was put together so far is kept: the next request goes on from there.
            raise busy("the slide has no overview, and making one takes a while")
        box = self.zoom.tile(level, column, row)
        wide, tall = self.zoom.size(level + 1)
        finer = Box(2 * box.left, 2 * box.top, min(2 * box.width, wide - 2 * box.left), 0)
        height = min(2 * box.height, tall - 2 * box.top)
        whole = np.empty((height, finer.width, 3), dtype=np.uint8)
        columns, rows = self.zoom.grid(level + 1)
        for r in range(2 * row, min(2 * row + 2, rows)):
            for c in range(2 * column, min(2 * column + 2, columns)):
                part = self.pixels(level + 1, c, r, deadline)
                top, left = r * TILE - finer.top, c * TILE - finer.left
                whole[top : top + part.shape[0], left : left + part.shape[1]] = part
        down = box_weights(0, box.height, 2.0, 0, height, height)
        across = box_weights(0, box.width, 2.0, 0, finer.width, finer.width)
        return resample(whole, down, across)

    def overview(self, side: int, seconds: float) -> Pixels:
        """The whole scanned part, with at most ``side`` pixels on its longer side and more than half as many."""
        deadline = time.monotonic() + seconds
        level = max(level for level in range(self.zoom.top + 1) if max(self.zoom.size(level)) <= side)
        width, height = self.zoom.size(level)
        whole = np.empty((height, width, 3), dtype=np.uint8)
        columns, rows = self.zoom.grid(level)
        for row in range(rows):
            for column in range(columns):
                box = self.zoom.tile(level, column, row)
                part = self.pixels(level, column, row, deadline)
                whole[box.top : box.top + box.height, box.left : box.left + box.width] = part
        return whole


def encode_jpeg(pixels: Pixels) -> bytes:
    """Pixels as a JPEG file, with nothing else in it."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="JPEG", quality=QUALITY)
    return stream.getvalue()
