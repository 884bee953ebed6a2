"""TIFF of any size, read in pieces: OME-TIFF with its pyramid, plain strips and tiles."""

from __future__ import annotations

import re
import weakref
from itertools import product
from math import prod
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import numpy as np
import tifffile

from ntrm.core.errors import DataError
from ntrm.core.threads import cores_given, thread_map
from ntrm.data.image_files import open_tiff, over_white
from ntrm.slides.readers.reader import (
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

CACHE_BYTES = 96 * 2**20  # Decoded pieces that are kept, since neighbouring regions share them
DECODERS = 4  # Strips or tiles of a region that are decoded at the same time
MAX_PIECE_BYTES = 2**28
"""Largest strip or tile that is decoded; a file that is one compressed strip has to be decoded whole."""
NOT_RGB = "image is not 8-bit RGB"

_JPEG = (6, 7, 34892, 33007)
_PREMULTIPLIED, _STRAIGHT = 1, 2  # Kinds of a fourth sample that are alpha; every other is no part of the colour
_NO_SLIDE = re.compile(r"\b(label|macro)\b", re.IGNORECASE)
"""In names of images that must reach no output: a label may show the name of a patient."""


class Plane:
    """The pixels of a page; only the strips or tiles (pieces) that a rectangle touches are read and decoded.

    They are read from an open file, never from a memory map: a file that shrinks under that kills the process.
    """

    def __init__(self, page: Any, file: BinaryIO, lock: Lock, pieces: ArrayCache) -> None:
        key = page.keyframe
        self.width, self.height = int(key.imagewidth), int(key.imagelength)
        self.samples = int(key.samplesperpixel)
        self.extra = int(key.extrasamples[0]) if key.extrasamples else 0
        """Kind of a fourth sample."""
        self._per_piece, self._planes = (1, self.samples) if key.planarconfig == 2 else (self.samples, 1)
        wide, tall = (key.tilewidth, key.tilelength) if key.is_tiled else (self.width, key.rowsperstrip)
        self.piece = int(wide), int(tall) if key.is_tiled else min(int(tall), self.height)
        """Width and height of a strip or tile."""
        sides = self.width, self.height, *self.piece
        if not 0 < min(sides) <= max(sides) <= MAX_SIDE or key.imagedepth != 1 or key.bitspersample != 8:
            raise unreadable(f"{self.width} × {self.height} pixels in pieces of {self.piece[0]} × {self.piece[1]}")
        if key.compression != 1 and key.compression not in tifffile.TIFF.DECOMPRESSORS:
            raise unreadable(f"an unknown TIFF compression, {int(key.compression)}")
        self._across, self._down = -(-self.width // self.piece[0]), -(-self.height // self.piece[1])
        self._offsets, self._counts = tuple(page.dataoffsets), tuple(page.databytecounts)
        expected, count = self._across * self._down * self._planes, min(len(self._offsets), len(self._counts))
        if count < expected:
            hint = "copy the file again; the transfer was cut short"
            raise unreadable(f"{count} of {expected} strips or tiles", hint)
        self._file, self._lock, self._pieces, self._decode = file, lock, pieces, key.decode
        is_jpeg = key.compression in _JPEG
        self._options = {"jpegtables": page.jpegtables, "jpegheader": key.jpegheader} if is_jpeg else {}
        # Whether pixels lie in the file as they are, so that some rows can be read by themselves.
        self._raw = key.compression == key.predictor == key.fillorder == 1 and not key.is_subsampled

    def read(self, left: int, top: int, width: int, height: int) -> Pixels:
        """(height, width, samples) of a rectangle inside the page."""
        out = np.empty((height, width, self.samples), dtype=np.uint8)
        wide, tall = self.piece

        def fill(place: tuple[int, int]) -> None:
            row, column = place
            y0, y1 = max(top, row * tall), min(top + height, (row + 1) * tall)
            x0, x1 = max(left, column * wide), min(left + width, (column + 1) * wide)
            target = out[y0 - top : y1 - top, x0 - left : x1 - left]
            inside = y0 - row * tall, y1 - row * tall, x0 - column * wide, x1 - column * wide
            for plane in range(self._planes):
                index = (plane * self._down + row) * self._across + column
                target[..., plane : plane + self._per_piece] = self._read_piece(index, *inside)

        rows = range(top // tall, -(-(top + height) // tall))
        places = [*product(rows, range(left // wide, -(-(left + width) // wide)))]
        for _ in thread_map(fill, places, 1 if self._raw else min(DECODERS, len(places), cores_given())):
            pass
        return out

    def _read_piece(self, index: int, y0: int, y1: int, x0: int, x1: int) -> Pixels:
        """Rows y0 … y1 and columns x0 … x1 of a strip or tile."""
        offset, count = self._offsets[index], self._counts[index]
        if offset <= 0 or count <= 0:
            return np.full((y1 - y0, x1 - x0, self._per_piece), 255, dtype=np.uint8)
        if self._raw:
            row_bytes = self.piece[0] * self._per_piece
            data = self._bytes(offset + y0 * row_bytes, max(0, min(y1 * row_bytes, count) - y0 * row_bytes))
            piece = np.frombuffer(data[: len(data) // row_bytes * row_bytes], dtype=np.uint8)
            piece = piece.reshape(-1, self.piece[0], self._per_piece)[:, x0:x1]
        else:
            piece = self._pieces.get((id(self), index), lambda: self._decoded(index))[y0:y1, x0:x1]
        if piece.shape[:2] != (y1 - y0, x1 - x0):
            raise unreadable("a strip or tile that is smaller than it should be")
        return piece

    def _decoded(self, index: int) -> Pixels:
        wide, tall = self.piece
        if wide * tall * self._per_piece > MAX_PIECE_BYTES:
            hint = "write it again as a tiled TIFF, which is read in pieces"
            raise unreadable(f"one compressed piece of {wide} × {tall} pixels, which is too large", hint)
        piece = self._decode(self._bytes(self._offsets[index], self._counts[index]), index, **self._options)[0]
        if piece is None or piece.ndim != 4 or piece.dtype != np.uint8 or piece.shape[3] != self._per_piece:
            raise unreadable("a strip or tile of another kind than its header says")
        return np.array(piece[0])

    def _bytes(self, offset: int, count: int) -> bytes:
        if count > 4 * MAX_PIECE_BYTES:
            raise unreadable(f"a strip or tile of {count} bytes")
        with self._lock:
            self._file.seek(offset)
            data = self._file.read(count)
        if len(data) < count:
            raise unreadable("a strip or tile beyond the end of the file", "copy the file again; it was cut short")
        return data


class TiffReader:
    """A TIFF file; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pieces = ArrayCache(CACHE_BYTES)
        with opening(path), open_tiff(path) as tif:
            if not len(tif.pages) or not len(tif.series):
                # The directory is often written last, so that a cut file has lost it.
                raise unreadable("no image directory where the header points to")
            series = _slide(tif)
            file, lock = path.open("rb"), Lock()
            self._close = weakref.finalize(self, file.close)
            planes = [[Plane(page, file, lock, self._pieces) for page in _pages(each)] for each in series.levels]
            self._levels = _pyramid(planes)
            first: Any = series.keyframe
            stated = (
                mpp_from_ome(tif.ome_metadata or "", first.imagewidth, first.imagelength)
                or mpp_from_aperio(first.description)
                or mpp_from_tags(first.tags)
            )
            vendor = "ome-tiff" if tif.is_ome else "aperio" if tif.is_svs else "tiff"
            full = self._levels[0][0]
        levels = tuple(
            SlideLevel(one.width, one.height, (full.width / one.width + full.height / one.height) / 2, one.piece)
            for one, *_ in self._levels
        )
        self.info = SlideInfo("tifffile", vendor, levels, stated)

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """Pixels of a region; pieces that were never written are white, as OpenSlide has them."""
        check_request(self.info, width, height, level)
        this = self.info.levels[level]
        planes = self._levels[level]

        def inside(*rectangle: int) -> Pixels:
            with decoding(self._path):
                pixels = np.concatenate([plane.read(*rectangle) for plane in planes], axis=-1)
            if pixels.shape[2] == 4 and planes[0].extra == _STRAIGHT:
                return over_white(pixels)
            if pixels.shape[2] == 4 and planes[0].extra == _PREMULTIPLIED:
                return np.minimum(pixels[..., :3] + (np.uint16(255) - pixels[..., 3:]), 255).astype(np.uint8)
            return np.ascontiguousarray(pixels[..., :3])

        return read_padded(this, round(x / this.downsample), round(y / this.downsample), width, height, inside)

    def close(self) -> None:
        """Close the file."""
        self._close()


def _slide(tif: Any) -> Any:
    """Of several images the largest, with its levels; the others are previews, labels and pictures of the glass.

    A stack is refused: to take its first image would lose the others.
    """

    def size(series: Any) -> tuple[int, int, int]:
        return series.keyframe.imagewidth, series.keyframe.imagelength, series.keyframe.samplesperpixel

    named = [series for series in tif.series if not _NO_SLIDE.search(series.name)]
    slide = max(named or tif.series, key=lambda series: prod(size(series)[:2]))
    # Pages may be series of their own; the thumbnail of a tiny Aperio slide may be as large as the slide.
    like = [slide] if tif.is_svs else [series for series in tif.series if size(series) == size(slide)]
    # Planes of focus, times, or pages of no stated meaning.
    stacked = [prod(n for axis, n in zip(one.axes, one.shape, strict=True) if axis not in "YXS") for one in like]
    images = sum(stacked) if size(slide)[2] in {3, 4} else len(like)
    if images > 1:
        raise DataError(
            "a stack of several images",
            got=f"{images} images of {size(slide)[0]} × {size(slide)[1]} pixels in one file",
            expected="one image, with or without smaller levels",
            hint="save the image that is meant as a file of its own, for example with QuPath as OME-TIFF",
        )
    return slide


def _pages(level: Any) -> list[Any]:
    """One page with three or four samples a pixel, or three pages with one."""
    pages = [page for page in level.pages if page is not None]
    sizes = {axis: n for axis, n in zip(level.axes, level.shape, strict=True) if n > 1 or axis in "YX"}
    axes, shape = "".join(sizes), tuple(sizes.values())
    separate = axes == "CYX" and len(pages) == 3
    first: Any = pages[0].keyframe if pages else None
    colours = {"YXS": shape[-1], "SYX": shape[0], "CYX": shape[0]}.get(axes) in {3, 4}
    is_rgb = colours and first is not None and first.dtype == np.uint8 and len(pages) == (3 if separate else 1)
    if is_rgb and not separate:
        # Decoders of JPEG turn YCbCr into RGB; under other compressions it comes out as it is.
        from_jpeg = first.photometric == tifffile.PHOTOMETRIC.YCBCR and int(first.compression) in _JPEG
        is_rgb = from_jpeg or first.photometric == tifffile.PHOTOMETRIC.RGB
    if not is_rgb:
        kind = "no pixels" if first is None else f"{first.dtype}, {tifffile.PHOTOMETRIC(first.photometric).name}"
        raise DataError(
            NOT_RGB,
            got=f"axes {axes} of {' × '.join(map(str, shape))}, {kind}",
            expected="one plane of 8-bit RGB",
            hint="export one brightfield plane as 8-bit RGB, for example from QuPath as OME-TIFF",
        )
    return pages


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
