"""Slides that OpenSlide describes and tifffile decodes: the same pixels for a fraction of the time.

OpenSlide draws every region on a canvas with transparency, which costs several times what decoding does. For plain
tiled TIFF and Aperio's JPEG files the tiles are the canvas, provided that

- the level lies at a whole factor, and the region at a whole pixel of it: elsewhere OpenSlide interpolates,
- no tile is missing: OpenSlide fills gaps in its own way,
- the compression is one whose decoders agree to the last bit (JPEG 2000 is as slow either way, and is left alone),
- and a few windows, read both ways when the slide is opened, are the same.

All else is left to OpenSlide, and µm/px, levels and bounds are those that it tells; but for plain TIFF with a pyramid
that OpenSlide does not see (in SubIFDs), which is tifffile's alone: a large slide without its levels takes minutes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from ntrm.core.errors import NtrmError
from ntrm.wsi.readers.openslide_reader import OpenSlideReader
from ntrm.wsi.readers.reader import Pixels, SlideLevel, SlideReader, check_request
from ntrm.wsi.readers.tiff import TiffReader

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
