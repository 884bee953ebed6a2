"""Scanner files through OpenSlide: SVS, NDPI, MRXS, SCN, DICOM and more."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from openslide import OpenSlide, OpenSlideError

from ntrm.core.threads import cores_given
from ntrm.data.image_files import over_white
from ntrm.slides.readers.reader import (
    Pixels,
    SlideInfo,
    SlideLevel,
    check_request,
    decoding,
    opening,
    positive_pair,
    read_padded,
    unreadable,
)

MAX_TILE_PIXELS = 2**26  # Largest tile that OpenSlide is asked for: it ends the process where memory does not suffice


def openslide_vendor(path: Path) -> str | None:
    """What OpenSlide takes the file for; None where it does not know it."""
    with opening(path, OpenSlideError):
        vendor = OpenSlide.detect_format(path)
    return None if vendor is None else str(vendor)


class OpenSlideReader:
    """A slide that OpenSlide reads; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        # In full, so that it is recognised in messages.
        path = self._path = path.absolute()
        with opening(path, OpenSlideError):
            self._slide = OpenSlide(path)
            self.info = _info(self._slide)
            background = bytes.fromhex(self._slide.properties.get("openslide.background-color", "ffffff"))
        self._background = np.frombuffer(background, dtype=np.uint8)
        self._threads = min(cores_given(), 8)  # each takes some memory of its own
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="ntrm-decoding")
        self._close = weakref.finalize(self, self._slide.close)

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """Pixels as OpenSlide gives them; what was never scanned has the slide's own background colour."""
        check_request(self.info, width, height, level)
        this = self.info.levels[level]
        # OpenSlide counts positions in level-0 pixels; its own downsample leads there and back.
        left, top = round(x / this.downsample), round(y / this.downsample)

        def inside(column: int, row: int, wide: int, tall: int) -> Pixels:
            corner = x, y
            if (column, row) != (left, top):
                corner = round(column * this.downsample), round(row * this.downsample)
            strips = self._strips(corner, this, tall)
            # It decodes without Python's lock, so that threads share the work. It refuses everything after its first
            # error; a new handle would meet the same damage.
            with decoding(self._path, OpenSlideError):
                parts = [self._pool.submit(self._read, place, level, (wide, rows)) for place, rows in strips]
                return np.concatenate([part.result() for part in parts])

        return read_padded(this, left, top, width, height, inside)

    def _strips(self, corner: tuple[int, int], level: SlideLevel, height: int) -> Iterator[tuple[tuple[int, int], int]]:
        """Corner and height of strips, cut between tiles; one where pixels would be interpolated differently."""
        (x, y), factor = corner, level.downsample
        tile = level.tile[1] if level.tile else 0
        if self._threads == 1 or not tile or not factor.is_integer() or x % factor or y % factor:
            yield corner, height
            return
        first = y // int(factor)
        rows = -(-height // tile // self._threads) * tile if height > tile else tile
        while height > 0:
            tall = min(height, (first // tile) * tile + rows - first)
            yield (x, first * int(factor)), tall
            first, height = first + tall, height - tall

    def _read(self, corner: tuple[int, int], level: int, size: tuple[int, int]) -> Pixels:
        return over_white(np.asarray(self._slide.read_region(corner, level, size)), self._background)

    def close(self) -> None:
        """Close the file; twice does no harm."""
        self._pool.shutdown()
        self._close()


def _info(slide: Any) -> SlideInfo:
    levels, properties = [], slide.properties
    for number, (size, downsample) in enumerate(zip(slide.level_dimensions, slide.level_downsamples, strict=True)):
        wide, tall = (int(properties.get(f"openslide.level[{number}].tile-{side}", 0)) for side in ("width", "height"))
        if wide * tall > MAX_TILE_PIXELS:
            raise unreadable(f"tiles of {wide} × {tall} pixels")
        levels.append(SlideLevel(size[0], size[1], float(downsample), (wide, tall) if wide and tall else None))
    stated, bounds = [properties.get(f"openslide.bounds-{key}") for key in ("x", "y", "width", "height")], None
    if None not in stated:
        x, y, width, height = map(int, stated)
        # Cut to the slide where it reaches beyond it by rounding.
        bounds = x, y, min(width, levels[0].width - x), min(height, levels[0].height - y)
    return SlideInfo(
        "openslide",
        vendor=str(properties.get("openslide.vendor", "unknown")),
        levels=tuple(levels),
        stated_mpp=positive_pair(properties.get("openslide.mpp-x"), properties.get("openslide.mpp-y")),
        bounds=bounds,
    )
