"""What an image file says about itself before any pixel is decoded, and whether all of it is there.

Files are told apart by their first bytes, never by their extension. The libraries underneath are lenient in
places (a PNG without its end, a JPEG strip cut short inside a TIFF, strips that were never written); here
everything that is missing is an error.
"""

from __future__ import annotations

import logging
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import tifffile
from PIL.JpegImagePlugin import JpegImageFile

from ntrm.data.faults import FaultError

PNG, JPEG, TIFF = "PNG", "JPEG", "TIFF"
RGB8, GREY8, PALETTE = "8-bit RGB", "8-bit grey", "palette"

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", PNG),
    (b"\xff\xd8\xff", JPEG),
    (b"II*\x00", TIFF),
    (b"MM\x00*", TIFF),
    (b"II+\x00", TIFF),
    (b"MM\x00+", TIFF),
)
_PNG_COLOURS = {0: "grey", 2: "RGB", 3: PALETTE, 4: "grey with alpha", 6: "RGB with alpha"}
_JPEG_MODES = {"L": GREY8, "RGB": RGB8, "CMYK": "8-bit CMYK"}
_FLOAT = 3  # TIFF SampleFormat

BROKEN = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    AttributeError,
    SyntaxError,
    EOFError,
    MemoryError,
    struct.error,
    zlib.error,
)
"""What the decoders are known to raise on damaged files; none of it may reach a user as a traceback."""


@dataclass(frozen=True)
class Header:
    """Container, size and pixel format in words."""

    kind: str
    height: int
    width: int
    pixels: str


@contextmanager
def decoding(path: Path) -> Iterator[None]:
    """Turn whatever a decoder raises into one of our errors; what it would log or warn about is said there too."""
    log = logging.getLogger("tifffile")
    log.addFilter(_mute)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except PermissionError as error:
        raise FaultError(
            "unreadable", path, found="no permission to read it", mend="change the file's permissions"
        ) from error
    except BROKEN as error:
        found = f"{type(error).__name__}: {error}".strip(": ")
        raise FaultError("truncated" if "truncated" in found.lower() else "unreadable", path, found=found) from error
    finally:
        log.removeFilter(_mute)


def _mute(_record: logging.LogRecord) -> bool:
    return False


def read_header(path: Path) -> Header:
    """Header of a PNG, JPEG or TIFF file; cheap, whatever size the file claims to have."""
    with decoding(path):
        with path.open("rb") as stream:
            start = stream.read(33)
        kind = next((kind for magic, kind in _MAGIC if start.startswith(magic)), None)
        if kind is None:
            found = f"bytes {start[:8]!r}" if start else "an empty file"
            raise FaultError("unreadable", path, found=found, expected="a PNG, JPEG or TIFF file")
        header = {PNG: _png_header, JPEG: _jpeg_header, TIFF: _tiff_header}[kind](path, start)
    if header.height < 1 or header.width < 1:
        raise FaultError("unreadable", path, found=f"a size of {header.width} × {header.height}")
    return header


def check_complete(path: Path, header: Header) -> None:
    """Raise unless every part of the file that its header promises is there."""
    with decoding(path):
        {PNG: _check_png, JPEG: _check_jpeg, TIFF: _check_tiff}[header.kind](path)


def _png_header(path: Path, start: bytes) -> Header:
    if len(start) < 33:
        raise FaultError("truncated", path, found=f"{len(start)} bytes")
    chunk, width, height, bits, colour = struct.unpack(">4sIIBB", start[12:26])
    if chunk != b"IHDR" or colour not in _PNG_COLOURS:
        raise FaultError("unreadable", path, found="a PNG file without a valid header")
    name = _PNG_COLOURS[colour]
    return Header(PNG, height, width, name if name == PALETTE else f"{bits}-bit {name}")


def _jpeg_header(path: Path, _start: bytes) -> Header:
    # The plugin is used directly: Image.open would warn or raise by a limit that is global to the process.
    with JpegImageFile(path) as image:
        return Header(JPEG, image.height, image.width, _JPEG_MODES.get(image.mode, image.mode))


def _tiff_header(path: Path, _start: bytes) -> Header:
    with open_tiff_page(path) as page:
        return Header(TIFF, int(page.imagelength), int(page.imagewidth), _tiff_pixels(page))


def open_tiff(path: Path) -> tifffile.TiffFile:
    """A TIFF file without the others that it may name: those of OME-XML, and the stacks and indices beside it."""
    return tifffile.TiffFile(path, _multifile=False, is_mmstack=False, is_ndtiff=False)


@contextmanager
def open_tiff_page(path: Path) -> Iterator[Any]:
    """First page of a TIFF file."""
    with open_tiff(path) as tif:
        if not len(tif.pages):
            # The directory is often written last, so that a cut file has lost it.
            raise FaultError("truncated", path, found="no image directory where the header points to")
        page = tif.pages[0]
        _check_tags(path, tif, page.offset)
        yield page


def _check_tags(path: Path, tif: Any, offset: int) -> None:
    """Every tag's value must lie inside the file: a tag that is lost would silently get its default."""
    form, stream = tif.tiff, tif.filehandle
    if form.is_ndpi:
        return
    stream.seek(offset)
    (number,) = struct.unpack(form.tagnoformat, stream.read(form.tagnosize))
    for _ in range(number):
        _code, kind, count, value = struct.unpack(form.tagheaderformat, stream.read(form.tagsize))
        size = count * struct.calcsize(tifffile.TIFF.DATA_FORMATS.get(kind, "0s"))
        # A value too long for its entry stands elsewhere, and the entry holds its offset.
        start = struct.unpack(form.offsetformat, value)[0] if size > form.tagoffsetthreshold else 0
        if start + size > stream.size:
            raise FaultError("truncated", path, found="an image directory whose values lie beyond the end of the file")


def _tiff_pixels(page: Any) -> str:
    bits, samples, alpha = page.bitspersample, page.samplesperpixel, bool(page.extrasamples)
    number = f"{bits}-bit" + (" float" if page.sampleformat == _FLOAT else "")
    photometric = tifffile.PHOTOMETRIC(page.photometric).name
    jpeg = page.compression in {tifffile.COMPRESSION.JPEG, tifffile.COMPRESSION.OJPEG}
    if page.imagedepth != 1:
        return f"{page.imagedepth} planes deep"
    if samples == 3 and not alpha and (photometric == "RGB" or (photometric == "YCBCR" and jpeg)):
        return f"{number} RGB"
    if samples == 1 and photometric == "MINISBLACK":
        return f"{number} grey"
    if samples == 1 and photometric == "PALETTE" and bits == 8:
        return PALETTE
    name = {"SEPARATED": "CMYK", "MINISWHITE": "inverted grey", "MINISBLACK": "grey"}.get(photometric, photometric)
    return f"{number} {name} with {samples} samples" + (" and alpha" if alpha else "")


def _check_png(path: Path) -> None:
    """Walk the chunks: each whole, its checksum right, the last one the end mark."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        stream.seek(8)
        chunk = b""
        while chunk != b"IEND":
            head = stream.read(8)
            length, chunk = struct.unpack(">I4s", head) if len(head) == 8 else (size, b"")
            if stream.tell() + length + 4 > size:
                raise FaultError("truncated", path, found="a PNG file without its end")
            body, checksum = stream.read(length), stream.read(4)
            if zlib.crc32(body, zlib.crc32(chunk)) != int.from_bytes(checksum, "big"):
                raise FaultError("unreadable", path, found=f"a wrong checksum in a {chunk!r} part of the PNG file")


def _check_jpeg(path: Path) -> None:
    """Look for the end mark near the end (some writers pad); missing scan data is noticed by the decoder."""
    tail = 65536
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - tail))
        if b"\xff\xd9" not in stream.read():
            raise FaultError("truncated", path, found="a JPEG file without its end mark")


def _check_tiff(path: Path) -> None:
    """Every strip or tile must have been written and must lie inside the file."""
    size = path.stat().st_size
    with open_tiff_page(path) as page:
        wanted = prod(page.chunked)
        parts = list(zip(page.dataoffsets, page.databytecounts, strict=True))
    there = sum(offset > 0 and count > 0 and offset + count <= size for offset, count in parts)
    if there < wanted:
        raise FaultError("truncated", path, found=f"{there} of {wanted} strips or tiles")
