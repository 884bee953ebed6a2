"""Image and mask files: headers read before any pixel, strictly 8-bit decoding within a stated limit, writing.

The first bytes of a file decide its format, never its extension. The libraries underneath tolerate some damage (wrong
checksums, a JPEG without its end, strips that were never written); here it is an error.
"""

from __future__ import annotations

import logging
import struct
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from numpy.typing import NDArray
from PIL import Image
from PIL.Jpeg2KImagePlugin import Jpeg2KImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from ntrm.core.errors import BROKEN
from ntrm.core.io import whole_file
from ntrm.core.labels import IGNORE, RGB, DecodedMask, LabelSchema, Mask, rgb_of
from ntrm.core.mpp import Resolution
from ntrm.data.faults import FaultError

PNG, JPEG, TIFF = "PNG", "JPEG", "TIFF"
RGB8, RGBA8, GREY8, PALETTE = "8-bit RGB", "8-bit RGB with alpha", "8-bit grey", "palette"

MAGIC = {PNG: (b"\x89PNG\r\n\x1a\n",), JPEG: (b"\xff\xd8\xff",), TIFF: (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")}
ENDS = {PNG: b"IEND\xaeB`\x82", JPEG: b"\xff\xd9"}
_NAMES = {"L": GREY8, "RGB": RGB8, "RGBA": RGBA8, "LA": "8-bit grey with alpha", "CMYK": "8-bit CMYK"}
_NAMES |= {"RGB;16B": "16-bit RGB", "I;16B": "16-bit grey", "1": "1-bit grey", "L;2": "2-bit grey"}
"""How Pillow calls what a PNG or JPEG stores, in words."""

MAX_PIXELS = 400_000_000
"""Largest image that is decoded: a small file may claim any size, and decoding costs up to 10 bytes per pixel."""

_PICTURES: dict[int, type[JpegImageFile | Jpeg2KImageFile]] = {
    tifffile.COMPRESSION.JPEG: JpegImageFile,
    **{kind: Jpeg2KImageFile for kind in tifffile.COMPRESSION if "2000" in kind.name},
}
"""Readers of tiles that are pictures by themselves."""
MAX_STRAY = 0.01  # Largest fraction of a mask's pixels that may have a colour outside the palette

_BAND_PIXELS = 4_000_000
"""Colours are looked up in bands of rows of about this size, which bounds the memory of the look-up."""

IGNORE_RGB = (255, 255, 255)
"""Colour of unknown pixels in RGB masks: white is no tissue's colour and reads back as ignore."""

Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Header:
    """Container, size and pixel format in words."""

    kind: str
    height: int
    width: int
    pixels: str


@contextmanager
def quiet_decoders() -> Iterator[None]:
    """Silence what decoders log or warn about; warnings for the whole process meanwhile."""
    log = logging.getLogger("tifffile")
    log.addFilter(_mute)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.removeFilter(_mute)


@contextmanager
def decoding(path: Path) -> Iterator[None]:
    """Turn whatever a decoder raises into one of our errors, and silence what it would log or warn about."""
    try:
        with quiet_decoders():
            yield
    except PermissionError as error:
        hint = "change the file's permissions"
        raise FaultError("unreadable", path, found="no permission to read it", hint=hint) from error
    except BROKEN as error:
        found = f"{type(error).__name__}: {error}".strip(": ")
        raise FaultError("truncated" if "truncated" in found.lower() else "unreadable", path, found=found) from error


def _mute(_record: logging.LogRecord) -> bool:
    return False


def read_header(path: Path) -> Header:
    """Header of a PNG, JPEG or TIFF file; cheap, whatever size the file claims to have."""
    with decoding(path):
        with path.open("rb") as stream:
            start = stream.read(8)
        kind = next((kind for kind, magic in MAGIC.items() if start.startswith(magic)), None)
        if kind is None:
            found = f"bytes {start!r}" if start else "an empty file"
            raise FaultError("unreadable", path, found=found, expected="a PNG, JPEG or TIFF file")
        if kind == TIFF:
            with open_tiff_page(path) as page:
                header = Header(TIFF, int(page.imagelength), int(page.imagewidth), _tiff_pixels(page))
        else:
            # The plugin is used directly: Image.open would warn or raise by a limit that is global to the process.
            with (PngImageFile if kind == PNG else JpegImageFile)(path) as image:
                stored = str(image.tile[0].args) if kind == PNG else image.mode
                name = PALETTE if stored.startswith("P") else _NAMES.get(stored, stored)
                header = Header(kind, image.height, image.width, name)
    if header.height < 1 or header.width < 1:
        raise FaultError("unreadable", path, found=f"a size of {header.width} × {header.height}")
    return header


def check_complete(path: Path, header: Header) -> None:
    """Raise unless every part of the file that its header promises is there."""
    with decoding(path):
        if header.kind == TIFF:
            with open_tiff_page(path) as page:
                expected, size = prod(page.chunked), path.stat().st_size
                segments = zip(page.dataoffsets, page.databytecounts, strict=True)
                # What was never written, or lies beyond the end of the file, would read as 0.
                written = sum(offset > 0 and count > 0 and offset + count <= size for offset, count in segments)
            if written < expected:
                raise FaultError("truncated", path, found=f"{written} of {expected} strips or tiles")
            return
        # Near the end: some writers pad. Missing data before it is noticed by the decoder.
        if ENDS[header.kind] not in path.read_bytes()[-65536:]:
            raise FaultError("truncated", path, found=f"a {header.kind} file without its end mark")
        if header.kind == PNG:
            with PngImageFile(path) as image:
                image.verify()  # every checksum


def open_tiff(path: Path) -> tifffile.TiffFile:
    """A TIFF file without the other files that it may name (OME-XML, stacks, indices)."""
    return tifffile.TiffFile(path, _multifile=False, is_mmstack=False, is_ndtiff=False)


@contextmanager
def open_tiff_page(path: Path) -> Iterator[Any]:
    """First page of a TIFF file."""
    with open_tiff(path) as tif:
        if not len(tif.pages):
            # The directory is often written last, so that a cut file has lost it.
            raise FaultError("truncated", path, found="no image directory where the header points to")
        page, form = tif.pages.first, tif.tiff
        tif.filehandle.seek(page.offset)
        # A tag whose value lies beyond the end of the file is passed over, and would silently get its default.
        if struct.unpack(form.tagnoformat, tif.filehandle.read(form.tagnosize))[0] != len(page.tags):
            raise FaultError("truncated", path, found="an image directory whose values lie beyond the end of the file")
        yield page


def _tiff_pixels(page: Any) -> str:
    bits, samples, alpha = page.bitspersample, page.samplesperpixel, bool(page.extrasamples)
    number = f"{bits}-bit" + (" float" if page.sampleformat == tifffile.SAMPLEFORMAT.IEEEFP else "")
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


def image_size(path: Path) -> tuple[int, int]:
    """(height, width) from the header alone."""
    header = read_header(Path(path))
    return header.height, header.width


def read_image(path: Path, *, max_pixels: int = MAX_PIXELS) -> Pixels:
    """Pixels (H, W, 3) of an 8-bit RGB PNG, JPEG or TIFF file; what is transparent in a PNG is white."""
    header = _limited_header(path := Path(path), max_pixels)
    transparent = header.kind == PNG and header.pixels == RGBA8
    if header.pixels != RGB8 and not transparent:
        raise FaultError("not-rgb8", path, found=header.pixels)
    pixels = _decode(path, header, mask=False)[0]
    return over_white(pixels) if transparent else pixels


def over_white(pixels: Pixels, background: Pixels | int = 255) -> Pixels:
    """(H, W, 4) with straight alpha → (H, W, 3) on white, or on another ``background`` (3,)."""
    alpha = pixels[..., 3:].astype(np.uint16)
    if (alpha == 255).all():
        return np.ascontiguousarray(pixels[..., :3])
    mixed = pixels[..., :3] * alpha + np.asarray(background, dtype=np.uint16) * (255 - alpha)
    return ((mixed + 127) // 255).astype(np.uint8)


def read_mask(path: Path, schema: LabelSchema, *, max_pixels: int = MAX_PIXELS) -> DecodedMask:
    """Class indices of a mask: RGB by the schema's palette, indexed by value; 255 is ignore."""
    header = _limited_header(path := Path(path), max_pixels)
    if header.kind == JPEG or header.pixels not in {RGB8, GREY8, PALETTE}:
        raise FaultError("mask-format", path, found=f"{header.kind}, {header.pixels}")
    pixels, palette = _decode(path, header, mask=True)
    if pixels.ndim == 3:
        return _by_palette(path, pixels, schema)
    return _by_value(path, pixels, palette, schema)


def _limited_header(path: Path, max_pixels: int) -> Header:
    header = read_header(path)
    if header.height * header.width > max_pixels:
        found = f"{header.width} × {header.height} pixels"
        raise FaultError("too-large", path, found=found, expected=f"at most {max_pixels:,} pixels")
    return header


def _decode(path: Path, header: Header, *, mask: bool) -> tuple[Pixels, list[RGB]]:
    """Pixels as they are stored, and the palette of an indexed PNG or TIFF."""
    check_complete(path, header)
    with decoding(path):
        if header.kind == TIFF:
            pixels, palette = _read_tiff(path, mask=mask)
        else:
            with (PngImageFile if header.kind == PNG else JpegImageFile)(path) as image:
                image.load()
                flat = image.getpalette("RGB") or [] if image.mode == "P" else []
                pixels, palette = np.array(image), list(zip(flat[::3], flat[1::3], flat[2::3], strict=True))
    channels = {RGB8: (3,), RGBA8: (4,)}.get(header.pixels, ())
    if pixels.shape != (header.height, header.width, *channels) or pixels.dtype != np.uint8:
        raise FaultError("unreadable", path, found=f"{pixels.dtype} pixels of shape {pixels.shape}")
    return pixels, palette


def _read_tiff(path: Path, *, mask: bool) -> tuple[Pixels, list[RGB]]:
    with open_tiff_page(path) as page:
        tif = page.parent
        # A stack (a page for each class, say) must not be taken for its first page; smaller pages may be a pyramid's.
        # Beside an image there may be a page of another kind, and a tiny Aperio slide has a thumbnail of its size.
        pages = [page] if tif.is_svs and not mask else [each.aspage() for each in tif.pages]
        first, *others = [(each.imagelength, each.imagewidth, None if mask else each.samplesperpixel) for each in pages]
        if first in others:
            found = f"{1 + others.count(first)} pages of {first[1]} × {first[0]} pixels"
            raise FaultError("several-pages", path, found)
        _check_tiles(path, page)
        pixels = page.asarray()
        if page.axes == "SYX":
            pixels = np.moveaxis(pixels, 0, -1)
        colours = np.asarray(page.colormap)
        if page.photometric != tifffile.PHOTOMETRIC.PALETTE or colours.shape != (3, 256) or colours.dtype.kind != "u":
            return np.ascontiguousarray(pixels), []
        # 16-bit numbers, in which some programs write 8-bit ones; libtiff tells them apart in this way, too.
        return pixels, [rgb_of(colour) for colour in (colours >> (8 if colours.max() > 255 else 0)).T]


def _check_tiles(path: Path, page: Any) -> None:
    """Tiles that are pictures by themselves may be larger than the file promises, and would be decoded whole."""
    plugin, most = _PICTURES.get(page.compression), prod(page.chunks)
    if plugin is None:
        return
    for offset, count in zip(page.dataoffsets, page.databytecounts, strict=True):
        page.parent.filehandle.seek(offset)
        with plugin(BytesIO(page.parent.filehandle.read(count))) as tile:
            if tile.width * tile.height > most:
                found = f"a tile of {tile.width} × {tile.height} pixels"
                raise FaultError("unreadable", path, found=found, expected=f"at most {most:,} pixels")


def _by_palette(path: Path, pixels: Pixels, schema: LabelSchema) -> DecodedMask:
    rows = max(1, _BAND_PIXELS // pixels.shape[1])
    bands = [schema.decode(pixels[start : start + rows]) for start in range(0, len(pixels), rows)]
    worst = sum((Counter(dict(band.worst)) for band in bands), Counter[RGB]())
    decoded = DecodedMask(
        mask=np.concatenate([band.mask for band in bands]),
        strays=sum(band.strays for band in bands),
        ignored=sum(band.ignored for band in bands),
        worst=tuple(worst.most_common(5)),
    )
    if decoded.stray_share > MAX_STRAY:
        colours = ", ".join(f"{colour} × {count}" for colour, count in decoded.worst[:3])
        found = f"{decoded.stray_share:.1%} of the pixels, most often {colours}"
        expected = f"at most {MAX_STRAY:.1%} of the pixels outside the palette of {', '.join(schema.names)}"
        raise FaultError("stray-colours", path, found=found, expected=expected)
    return decoded


def _by_value(path: Path, pixels: Pixels, palette: list[RGB], schema: LabelSchema) -> DecodedMask:
    counts = np.bincount(pixels.ravel(), minlength=256)
    outside = [value for value in range(len(schema), IGNORE) if counts[value]]
    if outside:
        found = ", ".join(f"{value} in {counts[value]} pixels" for value in outside[:3])
        raise FaultError("index-range", path, found=found, expected=f"0 to {len(schema) - 1}, or {IGNORE} for ignore")
    class_of = {tissue.rgb: tissue for tissue in schema.tissues}
    for value, colour in enumerate(palette[: len(schema)]):
        named = class_of.get(colour)
        if counts[value] and named is not None and named.index != value:
            found = f"index {value} ({schema.names[value]}) has the colour of {named.name}, {colour}"
            raise FaultError("palette-order", path, found=found)
    return DecodedMask(mask=pixels, strays=0, ignored=0)


def write_image(path: Path, image: NDArray[np.uint8], resolution: Resolution) -> None:
    """Write an RGB TIFF, deflated in strips, with its µm/px in its tags; its bytes depend on nothing else."""
    with whole_file(path) as partial:
        tifffile.imwrite(
            partial,
            np.ascontiguousarray(image),
            photometric="rgb",
            compression="zlib",
            predictor=False,
            rowsperstrip=64,
            resolution=(1e4 / resolution.x, 1e4 / resolution.y),
            resolutionunit="CENTIMETER",
            software="ntrm",
            metadata=None,
        )


def write_rgb_mask(path: Path, mask: Mask, schema: LabelSchema) -> None:
    """Write a mask in its palette's colours; ignore becomes white, which reads back as ignore."""
    with whole_file(path) as partial:
        Image.fromarray(schema.colourise(mask, ignore_rgb=IGNORE_RGB)).save(partial, format="PNG", compress_level=6)


def write_indexed_mask(path: Path, mask: Mask, schema: LabelSchema) -> None:
    """Write a mask as indexed PNG: the pixel is the class index, 255 is ignore, the palette is for looking at."""
    palette = np.zeros((256, 3), dtype=np.uint8)
    palette[: len(schema)], palette[IGNORE] = schema.palette, IGNORE_RGB
    picture = Image.fromarray(mask)
    picture.putpalette(palette.tobytes())
    with whole_file(path) as partial:
        picture.save(partial, format="PNG", compress_level=6)
