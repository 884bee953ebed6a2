"""Scanner files through OpenSlide: SVS, NDPI, MRXS, SCN, DICOM and tiled TIFF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ntrm.core.labels import WHITE
from ntrm.wsi.readers.file_mpp import believed, numbers
from ntrm.wsi.readers.reader import (
    Pixels,
    SlideInfo,
    SlideLevel,
    check_request,
    damaged,
    guarded,
    in_short,
    on_glass,
    opening,
)

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
