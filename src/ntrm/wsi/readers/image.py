"""PNG and JPEG images, which can only be decoded whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL.Image import Image
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from ntrm.core.errors import DataError
from ntrm.data.image_files import JPEG, PNG, Header, check_complete, over_white, read_header
from ntrm.wsi.readers.reader import (
    Pixels,
    SlideInfo,
    SlideLevel,
    believed,
    check_request,
    damaged,
    from_dots,
    guarded,
    in_short,
    on_glass,
    opening,
)

MAX_PIXELS = 200_000_000
"""Largest image that is decoded whole: Pillow holds 4 bytes a pixel."""


class ImageReader:
    """A PNG or JPEG image in memory; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        header = _checked(path)
        plugin = PngImageFile if header.kind == PNG else JpegImageFile
        # The plugin is used directly: Image.open would warn or raise by a limit that is global to the process.
        with opening(path), plugin(path) as image:
            # Only JFIF's own units are a resolution; Pillow reads further ones from cameras' tags.
            real = header.kind == PNG or image.info.get("jfif_unit") in {1, 2}
            stated = from_dots(image.info.get("dpi"), real)
            image.load()
            # Transparency may lie in a chunk of its own and for one colour only.
            clear = image.mode == "P" or "transparency" in image.info
            # Leaving the block closes the file; the pixels stay.
            self._image: Image = image.convert("RGBA") if clear else image
        if self._image.mode not in {"RGB", "RGBA"}:
            raise _not_rgb(header)
        if self._image.size != (header.width, header.height):
            raise damaged("an image of another size than its header says")
        self.info = SlideInfo(
            reader="pillow",
            width=header.width,
            height=header.height,
            resolution=believed(stated),
            levels=(SlideLevel(header.width, header.height, 1.0),),
            bounds=None,
            vendor=header.kind.lower(),
            stated_mpp=stated,
        )

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """Pixels of the image; where it is transparent, white shines through."""
        check_request(self.info, width, height, level)
        return on_glass((self.info.width, self.info.height), x, y, width, height, self._part)

    def _part(self, left: int, top: int, width: int, height: int) -> Pixels:
        with guarded(self._path):
            pixels = np.asarray(self._image.crop((left, top, left + width, top + height)))
        return over_white(pixels) if pixels.shape[2] == 4 else pixels

    def close(self) -> None:
        """Give the memory back."""
        self._image.close()


def _checked(path: Path) -> Header:
    """The header of a complete file that is not too large; errors without the file's name."""
    try:
        header = read_header(path)
        check_complete(path, header)
    except DataError as error:
        cause = error.__cause__
        raise damaged(in_short(cause, path) if isinstance(cause, Exception) else str(error.got)) from error
    if header.kind not in {PNG, JPEG}:
        raise damaged(f"a {header.kind} file where PNG or JPEG was expected")
    if header.width * header.height > MAX_PIXELS:
        raise DataError(
            "image too large to be decoded whole",
            got=f"{header.kind} of {header.width} × {header.height} pixels",
            expected=f"at most {MAX_PIXELS:,} pixels",
            hint="convert it to a tiled TIFF, which is read in pieces",
        )
    if header.pixels not in {"8-bit RGB", "8-bit RGB with alpha", "palette"}:
        raise _not_rgb(header)
    return header


def _not_rgb(header: Header) -> DataError:
    return DataError(
        "image is not 8-bit RGB", got=f"{header.kind}, {header.pixels}", expected="8-bit RGB", hint="convert it to RGB"
    )
