"""Image and mask files as arrays: strictly 8-bit, complete, and never larger than a stated limit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile

from ntrm.data.faults import FaultError
from ntrm.data.headers import (
    GREY8,
    JPEG,
    PALETTE,
    PNG,
    RGB8,
    Header,
    check_complete,
    decoding,
    open_tiff_page,
    read_header,
)
from ntrm.labels import IGNORE, RGB, DecodedMask, LabelSchema

MAX_PIXELS = 400_000_000
"""Largest image that is decoded: a small file may claim any size, and decoding costs up to 10 bytes per pixel."""

MAX_STRAY = 0.01
"""Largest share of a mask's pixels that may have a colour outside the palette."""

_BAND_PIXELS = 4_000_000
"""Colours are looked up in bands of rows of about this size, which bounds the memory of the look-up."""

Pixels = NDArray[np.uint8]


def image_size(path: Path) -> tuple[int, int]:
    """(height, width) from the header alone."""
    header = read_header(Path(path))
    return header.height, header.width


def read_image(path: Path, *, max_pixels: int = MAX_PIXELS) -> Pixels:
    """Pixels (H, W, 3) of an 8-bit RGB PNG, JPEG or TIFF file."""
    header = _affordable(path := Path(path), max_pixels)
    if header.pixels != RGB8:
        raise FaultError("not-rgb8", path, found=header.pixels)
    return _decode(path, header)[0]


def read_mask(
    path: Path, schema: LabelSchema, *, max_pixels: int = MAX_PIXELS, max_stray: float = MAX_STRAY
) -> DecodedMask:
    """Class indices of a mask: RGB by the schema's palette, indexed by value; 255 is ignore."""
    header = _affordable(path := Path(path), max_pixels)
    if header.kind == JPEG or header.pixels not in {RGB8, GREY8, PALETTE}:
        raise FaultError("mask-format", path, found=f"{header.kind}, {header.pixels}")
    pixels, palette = _decode(path, header)
    if pixels.ndim == 3:
        return _by_palette(path, pixels, schema, max_stray)
    return _by_value(path, pixels, palette, schema)


def _affordable(path: Path, max_pixels: int) -> Header:
    header = read_header(path)
    if header.height * header.width > max_pixels:
        raise FaultError(
            "too-large",
            path,
            found=f"{header.width} × {header.height} pixels",
            expected=f"at most {max_pixels:,} pixels",
        )
    return header


def _decode(path: Path, header: Header) -> tuple[Pixels, list[RGB]]:
    """Pixels as they are stored, and the palette of an indexed PNG."""
    check_complete(path, header)
    with decoding(path):
        if header.kind == PNG:
            pixels, palette = _with_pillow(PngImageFile, path)
        elif header.kind == JPEG:
            pixels, palette = _with_pillow(JpegImageFile, path)
        else:
            pixels, palette = _read_tiff(path), []
    channels = (3,) if header.pixels == RGB8 else ()
    if pixels.shape != (header.height, header.width, *channels) or pixels.dtype != np.uint8:
        raise FaultError("unreadable", path, found=f"{pixels.dtype} pixels of shape {pixels.shape}")
    return pixels, palette


def _with_pillow(plugin: type[PngImageFile | JpegImageFile | TiffImageFile], path: Path) -> tuple[Pixels, list[RGB]]:
    # The plugin is used directly: Image.open would warn or raise by a limit that is global to the process.
    with plugin(path) as image:
        image.load()
        flat = image.getpalette("RGB") or [] if image.mode == "P" else []
        return np.array(image), [(flat[i], flat[i + 1], flat[i + 2]) for i in range(0, len(flat), 3)]


def _read_tiff(path: Path) -> Pixels:
    with open_tiff_page(path) as page:
        try:
            pixels = page.asarray()
        except ValueError as error:
            # Without imagecodecs tifffile knows few compressions; Pillow brings its own libtiff.
            if "imagecodecs" not in str(error):
                raise
            return _with_pillow(TiffImageFile, path)[0]
        if page.axes == "SYX":
            pixels = np.moveaxis(pixels, 0, -1)
    return cast(Pixels, np.ascontiguousarray(pixels))


def _by_palette(path: Path, pixels: Pixels, schema: LabelSchema, max_stray: float) -> DecodedMask:
    rows = max(1, _BAND_PIXELS // pixels.shape[1])
    bands = [schema.decode(pixels[start : start + rows]) for start in range(0, len(pixels), rows)]
    worst: Counter[Any] = Counter()
    for band in bands:
        worst.update(dict(band.worst))
    decoded = DecodedMask(
        mask=np.concatenate([band.mask for band in bands]),
        strays=sum(band.strays for band in bands),
        ignored=sum(band.ignored for band in bands),
        worst=tuple(worst.most_common(5)),
    )
    if decoded.stray_share > max_stray:
        colours = ", ".join(f"{colour} × {count}" for colour, count in decoded.worst[:3])
        raise FaultError(
            "stray-colours",
            path,
            found=f"{decoded.stray_share:.1%} of the pixels, most often {colours}",
            expected=f"at most {max_stray:.1%} of the pixels outside the palette of {', '.join(schema.names)}",
        )
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
            raise FaultError(
                "palette-order",
                path,
                found=f"index {value} ({schema.names[value]}) has the colour of {named.name}, {colour}",
            )
    return DecodedMask(mask=pixels, strays=0, ignored=0)
