"""Scanner files through OpenSlide (SVS, NDPI, MRXS, SCN, DICOM, tiled TIFF); tifffile where it gives the same."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ntrm.core.errors import NtrmError
from ntrm.core.labels import WHITE
from ntrm.core.threads import cores_given
from ntrm.wsi.readers.reader import (
    Pixels,
    SlideInfo,
    SlideLevel,
    SlideReader,
    check_request,
    decoding,
    opening,
    positive_pair,
    read_padded,
    unreadable,
)
from ntrm.wsi.readers.tiff import TiffReader

GENERIC = "generic-tiff"
DIRECT_VENDORS = (GENERIC, "aperio")
COMPRESSIONS = frozenset({1, 5, 7, 8, 32946})
"""None, LZW, JPEG, deflate under both of its numbers."""
TRIAL_PX = 32
MAX_TILE_PIXELS = 2**26
"""Largest tile that OpenSlide is asked for: it ends the process where memory does not suffice."""
MOST_THREADS = 8
"""Threads that decode; each takes some memory of its own."""


def openslide_vendor(path: Path) -> str | None:
    """What OpenSlide takes the file for; None where it does not know it or is not installed."""
    try:
        import openslide
    except (ImportError, OSError):  # the Python part may be there without the library
        return None
    with opening(path, openslide.OpenSlideError):
        vendor = openslide.OpenSlide.detect_format(path)
    return None if vendor is None else str(vendor)


class OpenSlideReader:
    """A slide that OpenSlide reads; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        import openslide

        # In full, so that it is recognised in messages.
        path = self._path = path.absolute()
        self._closed = False
        self._error = openslide.OpenSlideError
        with opening(path, self._error):
            self._slide = openslide.OpenSlide(path)
            self.info = _info(self._slide)
            self._background = _background(self._slide.properties)
        self._threads = min(cores_given(), MOST_THREADS)
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="ntrm-decoding")

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
            return self._read(corner, level, (wide, tall))

        return read_padded(this, left, top, width, height, inside)

    def _read(self, corner: tuple[int, int], level: int, size: tuple[int, int]) -> Pixels:
        strips = [*self._strips(corner, self.info.levels[level], size)]
        # OpenSlide refuses everything after its first error; a new handle would meet the same damage.
        with decoding(self._path, self._error):
            if len(strips) == 1:
                return self._read_strip(corner, level, size)
            # It decodes without Python's lock, so that threads share the work.
            try:
                futures = [self._pool.submit(self._read_strip, place, level, (size[0], tall)) for place, tall in strips]
            except RuntimeError:
                # The memory that this process may take does not suffice for another thread.
                self._threads = 1
                return self._read_strip(corner, level, size)
            wait(futures)
            return np.concatenate([future.result() for future in futures])

    def _strips(
        self, corner: tuple[int, int], level: SlideLevel, size: tuple[int, int]
    ) -> Iterator[tuple[tuple[int, int], int]]:
        """Corner and height of strips, cut between tiles; one where pixels would be interpolated differently."""
        (x, y), (_, height), factor = corner, size, level.downsample
        exact = factor.is_integer() and x % factor == y % factor == 0
        tile = level.tile[1] if level.tile else 0
        if self._threads == 1 or not exact or not tile:
            yield corner, height
            return
        first = y // int(factor)
        rows = -(-height // tile // self._threads) * tile if height > tile else tile
        while height > 0:
            tall = min(height, (first // tile) * tile + rows - first)
            yield (x, first * int(factor)), tall
            first, height = first + tall, height - tall

    def _read_strip(self, corner: tuple[int, int], level: int, size: tuple[int, int]) -> Pixels:
        if self._closed:
            raise ValueError("the slide is closed")
        region = np.asarray(self._slide.read_region(corner, level, size))
        alpha = region[..., 3:].astype(np.uint16)
        pixels = np.ascontiguousarray(region[..., :3])
        if alpha.min() < 255:
            mixed = pixels * alpha + np.array(self._background, dtype=np.uint16) * (255 - alpha)
            pixels = ((mixed + 127) // 255).astype(np.uint8)
        return pixels

    def close(self) -> None:
        """Close the file; twice does no harm."""
        if not self._closed:
            self._closed = True
            self._pool.shutdown()
            self._slide.close()


def _background(properties: Any) -> tuple[int, int, int]:
    text = properties.get("openslide.background-color", "")
    try:
        red, green, blue = bytes.fromhex(text) if len(text) == 6 else WHITE
    except ValueError:
        return WHITE
    return red, green, blue


def _info(slide: Any) -> SlideInfo:
    properties = slide.properties
    sizes = zip(slide.level_dimensions, slide.level_downsamples, strict=True)
    levels = tuple(
        SlideLevel(int(width), int(height), float(downsample), _tile(properties, number))
        for number, ((width, height), downsample) in enumerate(sizes)
    )
    return SlideInfo(
        "openslide",
        vendor=str(properties.get("openslide.vendor", "unknown")),
        levels=levels,
        stated_mpp=positive_pair(properties.get("openslide.mpp-x"), properties.get("openslide.mpp-y")),
        bounds=_bounds(properties, levels[0]),
    )


def _tile(properties: Any, number: int) -> tuple[int, int] | None:
    sides = [properties.get(f"openslide.level[{number}].tile-{side}") for side in ("width", "height")]
    if not all(sides):
        return None
    wide, tall = int(sides[0]), int(sides[1])
    if wide * tall > MAX_TILE_PIXELS:
        raise unreadable(f"tiles of {wide} × {tall} pixels")
    return wide, tall


def _bounds(properties: Any, full: SlideLevel) -> tuple[int, int, int, int] | None:
    """The scanned area, cut to the slide where it reaches beyond it by rounding."""
    stated = [properties.get(f"openslide.bounds-{key}") for key in ("x", "y", "width", "height")]
    if any(value is None for value in stated):
        return None
    x, y, width, height = (int(value) for value in stated)
    return x, y, min(width, full.width - x), min(height, full.height - y)


class DirectReader:
    """Reads some levels from their tiles and the others through OpenSlide; safe to use from several threads.

    OpenSlide draws every region on a canvas with transparency, which costs several times what decoding does. For plain
    tiled TIFF and Aperio's JPEG files the tiles are the canvas, provided that

    - the level lies at an integer factor, and the region at an integer pixel of it: elsewhere OpenSlide interpolates,
    - no tile is missing: OpenSlide fills gaps in its own way,
    - the compression is one whose decoders agree to the last bit (JPEG 2000 is as slow either way, and is left alone),
    - and a few windows, read both ways when the slide is opened, are the same.

    All else is left to OpenSlide, and so are µm/px, levels and bounds.
    """

    def __init__(self, slide: OpenSlideReader, tiff: TiffReader, levels: frozenset[int]) -> None:
        self.info = replace(slide.info, reader="openslide+tifffile")
        self._slide, self._tiff, self._levels = slide, tiff, levels

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """As ``SlideReader.read``."""
        check_request(self.info, width, height, level)
        factor = self.info.levels[level].downsample
        on_grid = level in self._levels and x % factor == 0 and y % factor == 0
        reader: SlideReader = self._tiff if on_grid else self._slide
        return reader.read(x, y, width, height, level)

    def close(self) -> None:
        """Close the file; twice does no harm."""
        self._slide.close()
        self._tiff.close()


def open_directly(path: Path) -> SlideReader:
    """A slide that OpenSlide knows, read from its tiles as far as that gives the same pixels.

    A plain TIFF with a pyramid that OpenSlide does not see (in SubIFDs) is read by tifffile alone: a large slide
    without its levels takes minutes.
    """
    slide = OpenSlideReader(path)
    if slide.info.vendor not in DIRECT_VENDORS:
        return slide
    try:
        tiff = TiffReader(path)
    except NtrmError:
        return slide
    ours, theirs = tiff.info, slide.info
    same_size = (ours.width, ours.height) == (theirs.width, theirs.height)
    if theirs.vendor == GENERIC and same_size and len(ours.levels) > len(theirs.levels):
        slide.close()
        return tiff
    try:
        levels = frozenset(number for number in range(len(slide.info.levels)) if _is_same(slide, tiff, number))
    except NtrmError:
        # OpenSlide answers nothing any more after an error; whoever reads there meets it again.
        slide.close()
        slide, levels = OpenSlideReader(path), frozenset()
    if levels:
        return DirectReader(slide, tiff, levels)
    tiff.close()
    return slide


def _is_same(slide: OpenSlideReader, tiff: TiffReader, number: int) -> bool:
    if number >= len(tiff.info.levels):
        return False
    theirs, ours = slide.info.levels[number], tiff.info.levels[number]
    same_size = (theirs.width, theirs.height, theirs.downsample) == (ours.width, ours.height, ours.downsample)
    plane = tiff.plane(number)
    if not same_size or not theirs.downsample.is_integer() or plane is None or not plane.holds_all(COMPRESSIONS):
        return False
    trials = _trials(theirs, plane.fullest())
    return all(np.array_equal(slide.read(*region, number), tiff.read(*region, number)) for region in trials)


def _trials(level: SlideLevel, fullest: tuple[int, int]) -> list[tuple[int, int, int, int]]:
    """Windows in the first corner, in the middle, in the last corner and where a level has most to show."""
    width, height = min(TRIAL_PX, level.width), min(TRIAL_PX, level.height)
    corners = [((level.width - width) * k // 2, (level.height - height) * k // 2) for k in range(3)]
    return [(int(x * level.downsample), int(y * level.downsample), width, height) for x, y in (*corners, fullest)]
