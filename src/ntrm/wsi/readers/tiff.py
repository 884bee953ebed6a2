"""TIFF of any size, read in pieces: OME-TIFF with its pyramid, plain strips and tiles."""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Container
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import tifffile

from ntrm.core.errors import DataError
from ntrm.data.image_files import open_tiff, over_white
from ntrm.wsi.readers.reader import (
    MAX_SIDE,
    ArrayCache,
    Pixels,
    SlideInfo,
    SlideLevel,
    check_request,
    decoding,
    mpp_from_aperio,
    mpp_from_ome,
    mpp_from_tags,
    opening,
    read_padded,
    unreadable,
)

CACHE_BYTES = 96 * 2**20
"""Decoded pieces that are kept, since neighbouring regions share them."""
MAX_PIECE_BYTES = 2**28
"""Largest strip or tile that is decoded; a file that is one compressed strip has to be decoded whole."""

_JPEG = (6, 7, 34892, 33007)
_PREMULTIPLIED, _STRAIGHT = 1, 2
"""Kinds of a fourth sample that are alpha; every other is no part of the colour."""
_EMPTY = 255
_NO_SLIDE = re.compile(r"\b(label|macro)\b", re.IGNORECASE)
"""In names of images that must reach no output: a label may show the name of a patient."""


class RandomAccess:
    """An open file without a position; closed at the latest when no longer used.

    A memory map would be simpler, but a file that shrinks under it kills the process.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._finalizer = weakref.finalize(self, os.close, self._descriptor)

    def read(self, offset: int, count: int) -> bytes:
        """Exactly ``count`` bytes."""
        if not self._finalizer.alive:  # the number may already be another file's
            raise ValueError("the file is closed")
        chunks, left = [], count
        while left and (data := os.pread(self._descriptor, left, offset + count - left)):
            chunks.append(data)
            left -= len(data)
        if left:
            raise unreadable("a strip or tile beyond the end of the file", "copy the file again; it was cut short")
        return b"".join(chunks)

    def close(self) -> None:
        """Close the file; twice does no harm."""
        self._finalizer()


class Plane:
    """The pixels of a page; only the strips or tiles (pieces) that a rectangle touches are read and decoded."""

    def __init__(self, page: Any, file: RandomAccess, pieces: ArrayCache) -> None:
        key = page.keyframe
        self.width, self.height = int(key.imagewidth), int(key.imagelength)
        self.samples = int(key.samplesperpixel)
        self.extra = _extra_sample(key)
        """Kind of a fourth sample."""
        separate = key.planarconfig == 2
        self._per_piece, self._planes = (1, self.samples) if separate else (self.samples, 1)
        self._compression, self._tiled = int(key.compression), bool(key.is_tiled)
        wide, tall = (key.tilewidth, key.tilelength) if self._tiled else (self.width, key.rowsperstrip)
        self.piece = int(wide), int(tall) if self._tiled else min(int(tall), self.height)
        """Width and height of a strip or tile."""
        self._check(key)
        self._across, self._down = -(-self.width // self.piece[0]), -(-self.height // self.piece[1])
        self._offsets, self._counts = tuple(page.dataoffsets), tuple(page.databytecounts)
        expected, count = self._across * self._down * self._planes, min(len(self._offsets), len(self._counts))
        if count < expected:
            raise unreadable(
                f"{count} of {expected} strips or tiles", "copy the file again; the transfer was cut short"
            )
        self._file, self._pieces = file, pieces
        self._decode = key.decode
        is_jpeg = self._compression in _JPEG
        self._options = {"jpegtables": page.jpegtables, "jpegheader": key.jpegheader} if is_jpeg else {}
        # Whether pixels lie in the file as they are, so that a section of a row can be read by itself.
        self._raw = self._compression == key.predictor == key.fillorder == 1 and not key.is_subsampled

    def _check(self, key: Any) -> None:
        if not (0 < self.width <= MAX_SIDE and 0 < self.height <= MAX_SIDE and min(self.piece) > 0):
            raise unreadable(f"a size of {self.width} × {self.height} in pieces of {self.piece[0]} × {self.piece[1]}")
        if max(self.piece) > MAX_SIDE or key.imagedepth != 1 or key.bitspersample != 8:
            raise unreadable("pieces that no 8-bit image can have")
        if self._compression != 1 and key.compression not in tifffile.TIFF.DECOMPRESSORS:
            raise unreadable(f"an unknown TIFF compression, {self._compression}")

    def holds_all(self, compressions: Container[int]) -> bool:
        """Whether it is RGB in tiles, all of them there, of one of these compressions."""
        count = self._across * self._down
        complete = min(self._offsets[:count], default=0) > 0 and min(self._counts[:count], default=0) > 0
        return self._tiled and self._per_piece == 3 and complete and self._compression in compressions

    def fullest(self) -> tuple[int, int]:
        """Column and row at which the strip or tile of most bytes begins: glass takes few, tissue many."""
        counts = self._counts[: self._across * self._down]
        row, column = divmod(counts.index(max(counts)), self._across)
        return column * self.piece[0], row * self.piece[1]

    def read(self, left: int, top: int, width: int, height: int) -> Pixels:
        """(height, width, samples) of a rectangle inside the page."""
        out = np.empty((height, width, self.samples), dtype=np.uint8)
        wide, tall = self.piece
        for row in range(top // tall, -(-(top + height) // tall)):
            for column in range(left // wide, -(-(left + width) // wide)):
                y0, y1 = max(top, row * tall), min(top + height, (row + 1) * tall)
                x0, x1 = max(left, column * wide), min(left + width, (column + 1) * wide)
                target = out[y0 - top : y1 - top, x0 - left : x1 - left]
                inside = y0 - row * tall, y1 - row * tall, x0 - column * wide, x1 - column * wide
                for plane in range(self._planes):
                    index = (plane * self._down + row) * self._across + column
                    target[..., plane : plane + self._per_piece] = self._read_piece(index, *inside)
        return out

    def _read_piece(self, index: int, y0: int, y1: int, x0: int, x1: int) -> Pixels:
        """Rows y0 … y1 and columns x0 … x1 of a strip or tile."""
        if self._offsets[index] <= 0 or self._counts[index] <= 0:
            return np.full((y1 - y0, x1 - x0, self._per_piece), _EMPTY, dtype=np.uint8)
        if self._raw:
            return self._rows(index, y0, y1, x0, x1)
        piece = self._pieces.get((id(self), index), lambda: self._decoded(index))
        if piece.shape[0] < y1 or piece.shape[1] < x1:
            raise unreadable("a strip or tile that is smaller than it should be")
        return piece[y0:y1, x0:x1]

    def _rows(self, index: int, y0: int, y1: int, x0: int, x1: int) -> Pixels:
        row_bytes = self.piece[0] * self._per_piece
        if y1 * row_bytes > self._counts[index]:
            raise unreadable("a strip or tile that is smaller than it should be")
        length = (x1 - x0) * self._per_piece
        start = self._offsets[index] + x0 * self._per_piece
        if length == row_bytes:
            data = self._bytes(start + y0 * row_bytes, (y1 - y0) * row_bytes)
        else:
            data = b"".join(self._bytes(start + y * row_bytes, length) for y in range(y0, y1))
        return np.frombuffer(data, dtype=np.uint8).reshape(y1 - y0, x1 - x0, self._per_piece)

    def _decoded(self, index: int) -> Pixels:
        wide, tall = self.piece
        if wide * tall * self._per_piece > MAX_PIECE_BYTES:
            raise DataError(
                "image too large to be decoded whole",
                got=f"one compressed piece of {wide} × {tall} pixels",
                expected=f"strips or tiles of at most {MAX_PIECE_BYTES:,} bytes",
                hint="write it again as a tiled TIFF, which is read in pieces",
            )
        try:
            piece = self._decode(self._bytes(self._offsets[index], self._counts[index]), index, **self._options)[0]
        except (ValueError, ImportError) as error:
            if "imagecodecs" not in str(error):
                raise
            raise DataError(
                "a compression that needs a further library", got="imagecodecs is missing", hint="install imagecodecs"
            ) from error
        if piece is None or piece.ndim != 4 or piece.dtype != np.uint8 or piece.shape[3] != self._per_piece:
            raise unreadable("a strip or tile of another kind than its header says")
        return np.array(piece[0])

    def _bytes(self, offset: int, count: int) -> bytes:
        if count > 4 * MAX_PIECE_BYTES:
            raise unreadable(f"a strip or tile of {count} bytes")
        return self._file.read(offset, count)


def openslide_errs(path: Path) -> bool:
    """Whether OpenSlide would read a plain TIFF wrongly, and without an error.

    It misses the pyramid of an OME-TIFF and images that are larger than the first, takes the first of a stack, turns
    every tile by itself if there is a tag for the orientation, and takes any fourth sample for alpha.
    """
    with opening(path), open_tiff(path) as tif:
        if not len(tif.pages) or not len(tif.series):
            return False
        page: Any = tif.pages.first
        strange = page.samplesperpixel > 3 and _extra_sample(page) not in {_PREMULTIPLIED, _STRAIGHT}
        turned = page.tags.valueof("Orientation", 1) != 1
        slide = _slide(tif)
        other = slide.keyframe.offset != page.offset or _images_like(slide, tif) > 1
        return bool(tif.is_ome) or turned or strange or other


class TiffReader:
    """A TIFF file; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pieces = ArrayCache(CACHE_BYTES)
        with opening(path), open_tiff(path) as tif:
            self._file = RandomAccess(path)
            if not len(tif.pages) or not len(tif.series):
                # The directory is often written last, so that a cut file has lost it.
                raise unreadable("no image directory where the header points to")
            series = _slide(tif)
            _check_one_image(series, tif)
            self._levels = _pyramid([_planes(level, self._file, self._pieces) for level in series.levels])
            first: Any = series.keyframe
            stated = (
                mpp_from_ome(tif.ome_metadata or "", first.imagewidth, first.imagelength)
                or mpp_from_aperio(first.description)
                or mpp_from_tags(first.tags)
            )
            vendor = "ome-tiff" if tif.is_ome else "aperio" if tif.is_svs else "tiff"
        full = self._levels[0][0]
        levels = tuple(_level(planes[0], full) for planes in self._levels)
        self.info = SlideInfo("tifffile", vendor, levels, stated)

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """Pixels of a region; pieces that were never written are white, as OpenSlide has them."""
        check_request(self.info, width, height, level)
        this = self.info.levels[level]
        left, top = round(x / this.downsample), round(y / this.downsample)

        def inside(column: int, row: int, wide: int, tall: int) -> Pixels:
            with decoding(self._path):
                planes = [plane.read(column, row, wide, tall) for plane in self._levels[level]]
                pixels = planes[0] if len(planes) == 1 else np.concatenate(planes, axis=-1)
            return _coloured(pixels, self._levels[level][0].extra) if pixels.shape[2] == 4 else pixels

        return read_padded(this, left, top, width, height, inside)

    def plane(self, level: int) -> Plane | None:
        """The plane of a level; None where each colour has one of its own."""
        planes = self._levels[level]
        return planes[0] if len(planes) == 1 else None

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._pieces.clear()


def _slide(tif: Any) -> Any:
    """Of several images the largest, with its levels; the others are previews, labels and pictures of the glass."""
    named = [series for series in tif.series if not _NO_SLIDE.search(series.name)]
    return max(named or tif.series, key=lambda series: series.keyframe.imagewidth * series.keyframe.imagelength)


def _images_in(series: Any) -> int:
    """How many images in colour lie on each other: planes of focus, times, or pages of no stated meaning."""
    others = [length for axis, length in zip(series.axes, series.shape, strict=True) if axis not in "YXS"]
    return prod(others) if series.keyframe.samplesperpixel in {3, 4} else 1


def _images_like(slide: Any, tif: Any) -> int:
    """How many images of the slide's size there are; pages that differ in compression, say, are series of their own."""
    if tif.is_svs:  # the thumbnail of a tiny Aperio slide may be as large as the slide
        return _images_in(slide)
    return sum(_images_in(series) for series in tif.series if _size(series) == _size(slide))


def _size(series: Any) -> tuple[int, int, int]:
    page = series.keyframe
    return page.imagewidth, page.imagelength, page.samplesperpixel


def _check_one_image(series: Any, tif: Any) -> None:
    """To take the first image of a stack would lose the others."""
    images, page = _images_like(series, tif), series.keyframe
    if images > 1:
        raise DataError(
            "a stack of several images",
            got=f"{images} images of {page.imagewidth} × {page.imagelength} pixels in one file",
            expected="one image, with or without smaller levels",
            hint="save the image that is meant as a file of its own, for example with QuPath as OME-TIFF",
        )


def _extra_sample(page: Any) -> int:
    return int(page.extrasamples[0]) if page.extrasamples else 0


def _coloured(pixels: Pixels, extra: int) -> Pixels:
    """(H, W, 4) → (H, W, 3), on white where the fourth sample is alpha."""
    if extra == _STRAIGHT:
        return over_white(pixels)
    if extra == _PREMULTIPLIED:
        return np.minimum(pixels[..., :3] + (np.uint16(255) - pixels[..., 3:]), 255).astype(np.uint8)
    return np.ascontiguousarray(pixels[..., :3])


def _planes(level: Any, file: RandomAccess, pieces: ArrayCache) -> list[Plane]:
    """One plane with three or four samples a pixel, or three planes with one."""
    pages = [page for page in level.pages if page is not None]
    sizes = [(axis, length) for axis, length in zip(level.axes, level.shape, strict=True) if length > 1 or axis in "YX"]
    axes, shape = "".join(axis for axis, _ in sizes), tuple(length for _, length in sizes)
    colours = {"YXS": shape[-1], "SYX": shape[0], "CYX": shape[0]}.get(axes, 0)
    separate = axes == "CYX" and len(pages) == 3
    first: Any = pages[0].keyframe if pages else None
    is_rgb = first is not None and colours in {3, 4} and first.dtype == np.uint8
    is_rgb = is_rgb and len(pages) == (3 if separate else 1)
    if not is_rgb or not (separate or _decodes_to_rgb(first)):
        raise _not_rgb(axes, shape, first)
    return [Plane(page, file, pieces) for page in pages]


def _decodes_to_rgb(page: Any) -> bool:
    """Decoders of JPEG turn YCbCr into RGB; under other compressions it comes out as it is."""
    if page.photometric == tifffile.PHOTOMETRIC.YCBCR:
        return int(page.compression) in _JPEG
    return bool(page.photometric == tifffile.PHOTOMETRIC.RGB)


def _not_rgb(axes: str, shape: tuple[int, ...], page: Any) -> DataError:
    kind = "no pixels" if page is None else f"{page.dtype}, {tifffile.PHOTOMETRIC(page.photometric).name}"
    return DataError(
        "image is not 8-bit RGB",
        got=f"axes {axes} of {' × '.join(str(length) for length in shape)}, {kind}",
        expected="one plane of 8-bit RGB",
        hint="export one brightfield plane as 8-bit RGB, for example from QuPath as OME-TIFF",
    )


def _pyramid(levels: list[list[Plane]]) -> list[list[Plane]]:
    """Levels smaller than the one before and of the same aspect ratio: a preview or a label is no level."""
    kept = levels[:1]
    full = levels[0][0]
    for planes in levels[1:]:
        level, previous = planes[0], kept[-1][0]
        same_ratio = abs(level.width * full.height - level.height * full.width) <= 2 * max(full.width, full.height)
        if level.width < previous.width and level.height < previous.height and same_ratio:
            kept.append(planes)
    return kept


def _level(plane: Plane, full: Plane) -> SlideLevel:
    downsample = (full.width / plane.width + full.height / plane.height) / 2
    return SlideLevel(plane.width, plane.height, downsample, plane.piece)
