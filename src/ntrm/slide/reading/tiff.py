"""TIFF of any size, read in pieces: OME-TIFF with its pyramid, plain strips and tiles.

tifffile finds the pages and decodes the pieces; bytes are read here, only those of the pieces that a region touches.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from ntrm.data.headers import open_tiff
from ntrm.errors import DataError
from ntrm.slide.reading.base import (
    Pixels,
    SlideInfo,
    SlideLevel,
    check_request,
    damaged,
    guarded,
    on_glass,
    opening,
    over_white,
)
from ntrm.slide.reading.cache import ArrayCache
from ntrm.slide.reading.mpp import Stated, believed, from_aperio, from_ome, from_tags
from ntrm.slide.reading.random_access import RandomAccess
from ntrm.slide.reading.tiff_plane import Plane

CACHE_BYTES = 96 * 2**20
"""Decoded pieces that are kept, since neighbouring regions share them."""


def is_ome(path: Path) -> bool:
    """Whether a TIFF file carries OME-XML."""
    with opening(path), open_tiff(path) as tif:
        return bool(len(tif.pages)) and bool(tif.is_ome)


class TiffReader:
    """A TIFF file; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pieces = ArrayCache(CACHE_BYTES)
        with opening(path), open_tiff(path) as tif:
            self._file = RandomAccess(path)
            series = _first_image(tif)
            self._levels = _pyramid([_planes(level, self._file, self._pieces) for level in series.levels])
            stated = _stated(tif)
            vendor = "ome-tiff" if tif.is_ome else "aperio" if tif.is_svs else "tiff"
        full = self._levels[0][0]
        self.info = SlideInfo(
            reader="tifffile",
            width=full.width,
            height=full.height,
            resolution=believed(stated),
            levels=tuple(_level(planes[0], full) for planes in self._levels),
            bounds=None,
            vendor=vendor,
            stated_mpp=stated,
        )

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """Pixels of a region; pieces that were never written are white, as OpenSlide has them."""
        check_request(self.info, width, height, level)
        this = self.info.levels[level]
        left, top = round(x / this.downsample), round(y / this.downsample)

        def inside(column: int, row: int, wide: int, tall: int) -> Pixels:
            with guarded(self._path):
                parts = [plane.read(column, row, wide, tall) for plane in self._levels[level]]
                pixels = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
            return over_white(pixels) if pixels.shape[2] == 4 else pixels

        return on_glass((this.width, this.height), left, top, width, height, inside)

    def holds_all(self, level: int, compressions: Container[int]) -> bool:
        """Whether a level is one plane of RGB in tiles, all of them there, of one of these compressions."""
        planes = self._levels[level]
        return len(planes) == 1 and planes[0].holds_all(compressions)

    def fullest(self, level: int) -> tuple[int, int]:
        """Column and row at which the strip or tile of most bytes begins: glass takes few, tissue many."""
        return self._levels[level][0].fullest()

    def close(self) -> None:
        """Give the file back."""
        self._file.close()
        self._pieces.clear()


def _first_image(tif: Any) -> Any:
    if not len(tif.pages) or not len(tif.series):
        # The directory is often written last, so that a cut file has lost it.
        raise damaged("no image directory where the header points to")
    return tif.series[0]


def _stated(tif: Any) -> Stated:
    first = tif.pages.first
    return from_ome(tif.ome_metadata or "") or from_aperio(first.description) or from_tags(first.tags)


def _planes(level: Any, file: RandomAccess, pieces: ArrayCache) -> list[Plane]:
    """One plane with three or four samples a pixel, or three planes with one."""
    pages = [page for page in level.pages if page is not None]
    axes = "".join(axis for axis, length in zip(level.axes, level.shape, strict=True) if length > 1 or axis in "YX")
    shape = tuple(length for axis, length in zip(level.axes, level.shape, strict=True) if length > 1 or axis in "YX")
    colours = {"YXS": shape[-1], "SYX": shape[0], "CYX": shape[0]}.get(axes, 0)
    wanted_pages = 3 if axes == "CYX" and len(pages) == 3 else 1
    first = pages[0].keyframe if pages else None
    if first is None or colours not in {3, 4} or first.dtype != np.uint8 or len(pages) != wanted_pages:
        raise _not_rgb(axes, shape, first)
    if wanted_pages == 1 and first.photometric not in {tifffile.PHOTOMETRIC.RGB, tifffile.PHOTOMETRIC.YCBCR}:
        raise _not_rgb(axes, shape, first)
    return [Plane(page, file, pieces) for page in pages]


def _not_rgb(axes: str, shape: tuple[int, ...], page: Any) -> DataError:
    kind = "no pixels" if page is None else f"{page.dtype}, {tifffile.PHOTOMETRIC(page.photometric).name}"
    return DataError(
        "image is not 8-bit RGB",
        got=f"axes {axes} of {' × '.join(str(length) for length in shape)}, {kind}",
        expected="one plane of 8-bit RGB",
        mend="export one brightfield plane as 8-bit RGB, for example from QuPath as OME-TIFF",
    )


def _pyramid(levels: list[list[Plane]]) -> list[list[Plane]]:
    """The levels that are smaller than the one before; anything else is no pyramid."""
    kept = levels[:1]
    for planes in levels[1:]:
        smaller = planes[0].width < kept[-1][0].width and planes[0].height < kept[-1][0].height
        if smaller and _has_shape_of(planes[0], kept[0][0]):
            kept.append(planes)
    return kept


def _has_shape_of(level: Plane, full: Plane) -> bool:
    """Whether the sides have the same ratio, as far as whole pixels can: a preview or a label may have another."""
    return abs(level.width * full.height - level.height * full.width) <= 2 * max(full.width, full.height)


def _level(plane: Plane, full: Plane) -> SlideLevel:
    downsample = (full.width / plane.width + full.height / plane.height) / 2
    return SlideLevel(plane.width, plane.height, downsample, plane.piece)
