"""Scanner files through OpenSlide (SVS, NDPI, MRXS, SCN, DICOM, tiled TIFF); tifffile where it gives the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ntrm.core.errors import NtrmError
from ntrm.core.labels import WHITE
from ntrm.wsi.readers.reader import (
    Pixels,
    SlideInfo,
    SlideLevel,
    SlideReader,
    believed,
    check_request,
    damaged,
    guarded,
    in_short,
    numbers,
    on_glass,
    opening,
)
from ntrm.wsi.readers.tiff import TiffReader

MAX_TILE_PIXELS = 2**26
"""Largest tile that OpenSlide is asked for: it ends the process if the memory does not suffice."""


def openslide_vendor(path: Path) -> str | None:
    """What OpenSlide takes the file for; None where it does not know it or is not installed."""
    try:
        import openslide
    except (ImportError, OSError):  # the Python part may be there without the library
        return None
    with opening(path):
        try:
            found = openslide.OpenSlide.detect_format(path)
        except openslide.OpenSlideError as error:
            raise damaged(in_short(error, path)) from error
    return None if found is None else str(found)


class OpenSlideReader:
    """A slide that OpenSlide reads; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        import openslide

        # In full, so that it is recognised in messages.
        path = self._path = path.absolute()
        self._closed = False
        self._errors = openslide.OpenSlideError
        with opening(path):
            try:
                self._slide = openslide.OpenSlide(path)
                self.info = _info(self._slide)
                self._background = _background(self._slide.properties)
            except openslide.OpenSlideError as error:
                raise damaged(in_short(error, path)) from error

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """Pixels as OpenSlide gives them; what was never scanned has the slide's own background colour."""
        check_request(self.info, width, height, level)
        this = self.info.levels[level]
        # OpenSlide counts places in level-0 pixels; its own downsample leads there and back.
        left, top = round(x / this.downsample), round(y / this.downsample)

        def inside(column: int, row: int, wide: int, tall: int) -> Pixels:
            corner = (x, y) if (column, row) == (left, top) else self._corner(column, row, level)
            return self._read(corner, level, (wide, tall))

        return on_glass((this.width, this.height), left, top, width, height, inside)

    def _corner(self, column: int, row: int, level: int) -> tuple[int, int]:
        downsample = self.info.levels[level].downsample
        return round(column * downsample), round(row * downsample)

    def _read(self, corner: tuple[int, int], level: int, size: tuple[int, int]) -> Pixels:
        path = self._path
        with guarded(path):
            if self._closed:
                raise ValueError("the slide is closed")
            try:
                region = np.asarray(self._slide.read_region(corner, level, size))
            except self._errors as error:
                # OpenSlide refuses everything after its first error; a new handle would meet the same damage.
                raise damaged(in_short(error, path)) from error
        return _over(region, self._background)

    def close(self) -> None:
        """Give the file back; twice does no harm."""
        if not self._closed:
            self._closed = True
            self._slide.close()


def _over(region: Pixels, background: tuple[int, int, int]) -> Pixels:
    alpha = region[..., 3]
    pixels = np.ascontiguousarray(region[..., :3])
    if alpha.min() < 255:
        share = alpha[..., None].astype(np.uint16)
        mixed = pixels * share + np.array(background, dtype=np.uint16) * (255 - share)
        pixels = ((mixed + 127) // 255).astype(np.uint8)
    return pixels


def _background(properties: Any) -> tuple[int, int, int]:
    text = properties.get("openslide.background-color", "")
    try:
        value = int(text, 16) if len(text) == 6 else 0xFFFFFF
    except ValueError:
        return WHITE
    return value >> 16 & 255, value >> 8 & 255, value & 255


def _info(slide: Any) -> SlideInfo:
    properties = slide.properties
    levels = tuple(
        SlideLevel(int(width), int(height), float(downsample), _tile(properties, number))
        for number, ((width, height), downsample) in enumerate(
            zip(slide.level_dimensions, slide.level_downsamples, strict=True)
        )
    )
    stated = numbers(properties.get("openslide.mpp-x"), properties.get("openslide.mpp-y"))
    return SlideInfo(
        reader="openslide",
        width=levels[0].width,
        height=levels[0].height,
        resolution=believed(stated),
        levels=levels,
        bounds=_bounds(properties, levels[0]),
        vendor=str(properties.get("openslide.vendor", "unknown")),
        stated_mpp=stated,
    )


def _tile(properties: Any, number: int) -> tuple[int, int] | None:
    sides = [properties.get(f"openslide.level[{number}].tile-{side}") for side in ("width", "height")]
    if not all(sides):
        return None
    wide, tall = int(sides[0]), int(sides[1])
    if wide * tall > MAX_TILE_PIXELS:
        raise damaged(f"tiles of {wide} × {tall} pixels")
    return wide, tall


def _bounds(properties: Any, full: SlideLevel) -> tuple[int, int, int, int] | None:
    """The scanned part; a part that reaches beyond the slide by rounding is cut to it."""
    stated = [properties.get(f"openslide.bounds-{key}") for key in ("x", "y", "width", "height")]
    if any(value is None for value in stated):
        return None
    x, y, width, height = (int(value) for value in stated)
    return x, y, min(width, full.width - x), min(height, full.height - y)


# Slides that OpenSlide describes and tifffile decodes: the same pixels for a fraction of the time.
#
# OpenSlide draws every region on a canvas with transparency, which costs several times what decoding does. For plain
# tiled TIFF and Aperio's JPEG files the tiles are the canvas, provided that
#
# - the level lies at a whole factor, and the region at a whole pixel of it: elsewhere OpenSlide interpolates,
# - no tile is missing: OpenSlide fills gaps in its own way,
# - the compression is one whose decoders agree to the last bit (JPEG 2000 is as slow either way, and is left alone),
# - and a few windows, read both ways when the slide is opened, are the same.
#
# All else is left to OpenSlide, and µm/px, levels and bounds are those that it tells; but for plain TIFF with a pyramid
# that OpenSlide does not see (in SubIFDs), which is tifffile's alone: a large slide without its levels takes minutes.


GENERIC = "generic-tiff"
VENDORS = (GENERIC, "aperio")
COMPRESSIONS = frozenset({1, 5, 7, 8, 32946})
"""None, LZW, JPEG, deflate under both of its numbers."""
TRIAL_PX = 32


class DirectReader:
    """Reads some levels from their tiles and the others through OpenSlide; safe to use from several threads."""

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
        """Give the file back; twice does no harm."""
        self._slide.close()
        self._tiff.close()


def open_directly(path: Path) -> SlideReader:
    """A slide that OpenSlide knows, read from its tiles as far as that gives the same pixels."""
    slide = OpenSlideReader(path)
    if slide.info.vendor not in VENDORS:
        return slide
    try:
        tiff = TiffReader(path)
    except NtrmError:
        return slide
    if slide.info.vendor == GENERIC and _sees_more(tiff, slide):
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


def _sees_more(tiff: TiffReader, slide: OpenSlideReader) -> bool:
    """Whether it is the same picture with more levels."""
    own, theirs = tiff.info, slide.info
    return (own.width, own.height) == (theirs.width, theirs.height) and len(own.levels) > len(theirs.levels)


def _is_same(slide: OpenSlideReader, tiff: TiffReader, number: int) -> bool:
    if number >= len(tiff.info.levels):
        return False
    theirs, ours = slide.info.levels[number], tiff.info.levels[number]
    sizes = [(level.width, level.height, level.downsample) for level in (theirs, ours)]
    if sizes[0] != sizes[1] or not theirs.downsample.is_integer() or not tiff.holds_all(number, COMPRESSIONS):
        return False
    trials = _trials(theirs, tiff.fullest(number))
    return all(np.array_equal(slide.read(*region, number), tiff.read(*region, number)) for region in trials)


def _trials(level: SlideLevel, fullest: tuple[int, int]) -> list[tuple[int, int, int, int]]:
    """Windows in the first corner, in the middle, in the last corner and where a level has most to show."""
    width, height = min(TRIAL_PX, level.width), min(TRIAL_PX, level.height)
    places = [((level.width - width) * k // 2, (level.height - height) * k // 2) for k in range(3)]
    return [(int(x * level.downsample), int(y * level.downsample), width, height) for x, y in (*places, fullest)]
