"""Open a slide by its content, never by the ending of its name, and check the further files that it may bring along.

| content | reader |
|---|---|
| a scanner's format that OpenSlide knows (SVS, NDPI, MRXS, SCN, DICOM …) | OpenSlide |
| any other TIFF, OME-TIFF among them | tifffile |
| PNG, JPEG | Pillow |

An MRXS slide has an index that names files by path, and a DICOM slide is whatever lies in its folder. The pixels of a
named file are shown, and a named pipe blocks its reader for ever. So a slide may bring along regular files of its own
folder, and none at all where it has to be a single file. Hamamatsu's VMS, a text that can name any file, is not read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL.Image import Image
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile

from ntrm.core.errors import DataError
from ntrm.data import image_files
from ntrm.data.image_files import JPEG, MAGIC, PNG, TIFF, over_white, read_header
from ntrm.slides.readers.reader import (
    Pixels,
    SlideInfo,
    SlideLevel,
    SlideReader,
    anonymous,
    check_request,
    decoding,
    mpp_from_dpi,
    opening,
    read_padded,
    unreadable,
)
from ntrm.slides.readers.tiff import NOT_RGB, TiffReader

GENERIC, MIRAX = "generic-tiff", "mirax"
SINGLE_FILE_VENDORS = ("aperio", GENERIC, "hamamatsu", "leica", "philips", "sakura", "trestle", "ventana", "zeiss")
"""OpenSlide's formats that are one file; of Hamamatsu's only NDPI, which is a TIFF."""

MAX_INDEX_BYTES = 2**20  # OpenSlide's own limit
MAX_PIXELS = 200_000_000  # Largest PNG or JPEG, which can only be decoded whole: Pillow holds 4 bytes a pixel


def open_slide(path: Path, *, alone: bool = False) -> SlideReader:
    """Open a slide by its main file in this process; ``isolated.open_isolated`` does so in a child process.

    Where it is ``alone``, as a file from strangers is, no other file may be read with it; otherwise those of its folder
    may. The ``DataError`` for a file that cannot be read names no file and quotes nothing from it.
    """
    from ntrm.slides.readers.openslide_reader import OpenSlideReader, openslide_vendor

    path = Path(path).absolute()
    with opening(path):
        if path.exists() and not path.is_file():
            # Opening a pipe would wait for ever.
            raise unreadable("a folder or a device", "name the slide's main file")
        with path.open("rb") as stream:
            start = stream.read(8)
    tiff = start.startswith(MAGIC[TIFF])
    if path.suffix.lower() == ".mrxs":
        # Before OpenSlide looks into the folder of that name to tell what the file is.
        check_companions(path, MIRAX, alone=alone)
    # MRXS comes first: its main file is an ordinary JPEG.
    vendor = openslide_vendor(path)
    if vendor is not None:
        if vendor == "hamamatsu" and not tiff:
            raise unreadable(
                "a VMS or VMU file, which is not read", "convert the slide with another program to OME-TIFF"
            )
        check_companions(path, vendor, alone=alone)
    if vendor not in (None, GENERIC):
        return OpenSlideReader(path)
    if tiff:
        try:
            return TiffReader(path)
        except DataError as error:
            if vendor is None or error.what != NOT_RGB:
                raise
            # Grey, say: OpenSlide makes colours of it.
            return OpenSlideReader(path)
    if start.startswith(MAGIC[PNG] + MAGIC[JPEG]):
        return ImageReader(path)
    raise unreadable("an empty file" if not start else "a file of no known kind")


def check_companions(path: Path, vendor: str, *, alone: bool) -> None:
    """Refuse a slide of a ``vendor`` (OpenSlide's name) that brings along files which it may not.

    ``alone`` as in ``open_slide``. The ``DataError`` names no file.
    """
    if vendor in SINGLE_FILE_VENDORS:
        return
    if vendor not in ("dicom", MIRAX):
        raise unreadable("a scanner's format that is not known to be safe")
    if alone:
        raise DataError(
            "a slide of several files",
            got=f"the main file of a {vendor} slide",
            expected="a slide that is one file",
            hint="convert it in QuPath to OME-TIFF; a slide of several files can only be named by its path",
        )
    folders = {path.parent.resolve(), path.resolve().parent}
    with opening(path):
        for target in (other.resolve() for other in _companions(path, vendor)):
            if not any(target.is_relative_to(folder) for folder in folders):
                hint = "put all files of the slide into one folder"
                raise unreadable("a slide that names a file outside its own folder", hint)
            if target.exists() and not target.is_file():
                raise unreadable("a slide that names a folder or a device as one of its files")


def _companions(path: Path, vendor: str) -> Iterator[Path]:
    if vendor == "dicom":
        yield from (Path(entry.path) for entry in os.scandir(path.parent) if not entry.is_dir())
        return
    folder = path.with_suffix("")
    yield (index := folder / "Slidedat.ini")
    # The caller has checked the index by now.
    if not index.exists():
        return
    with index.open("rb") as stream:
        text = stream.read(MAX_INDEX_BYTES + 1)
    if len(text) > MAX_INDEX_BYTES:
        raise unreadable("an index of other files that is too large")
    # Keys that name a file, in whatever group they stand.
    for match in re.finditer(rb"^[^\S\n]*(?:FILE_|INDEXFILE)[^=\n]*=[^\S\n]*([^\n]*)", text, re.M):
        name = match[1].removesuffix(b"\r")
        if b"\0" in name or b"\\" in name:
            raise unreadable("an index that names other files in a way no scanner does")
        if name:
            # Joined as OpenSlide does: an absolute path lies in the folder, too.
            yield folder / os.fsdecode(name.lstrip(b"/"))


class ImageReader:
    """A PNG or JPEG image, decoded whole and held in memory; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            header = read_header(path)
            image_files.check_complete(path, header)
        except DataError as error:
            cause = error.__cause__
            raise unreadable(anonymous(cause, path) if isinstance(cause, Exception) else str(error.got)) from error
        if header.width * header.height > MAX_PIXELS:
            got = f"{header.kind} of {header.width} × {header.height} pixels, which can only be decoded whole"
            raise unreadable(got, "convert it to a tiled TIFF, which is read in pieces")
        if header.pixels not in {image_files.RGB8, image_files.RGBA8, image_files.PALETTE}:
            got = f"{header.kind}, {header.pixels}"
            raise DataError(NOT_RGB, got=got, expected="8-bit RGB", hint="convert it to RGB")
        # The plugin is used directly: Image.open would warn or raise by a limit that is global to the process.
        with opening(path), (PngImageFile if header.kind == PNG else JpegImageFile)(path) as image:
            # Only JFIF's own units are a resolution; Pillow reads further ones from cameras' tags.
            has_unit = header.kind == PNG or image.info.get("jfif_unit") in {1, 2}
            stated = mpp_from_dpi(image.info.get("dpi")) if has_unit else None
            image.load()
            # Transparency may lie in a chunk of its own and for one colour only.
            transparent = image.mode == "P" or "transparency" in image.info
            # Leaving the block closes the file; the pixels stay.
            self._image: Image = image.convert("RGBA") if transparent else image
        self.info = SlideInfo("pillow", header.kind.lower(), (SlideLevel(*self._image.size, 1.0),), stated)

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """Pixels of the image, transparent ones on white."""
        check_request(self.info, width, height, level)

        def crop(left: int, top: int, wide: int, tall: int) -> Pixels:
            with decoding(self._path):
                pixels = np.asarray(self._image.crop((left, top, left + wide, top + tall)))
            return over_white(pixels) if pixels.shape[2] == 4 else pixels

        return read_padded(self.info.levels[0], x, y, width, height, crop)

    def close(self) -> None:
        """Free the memory."""
        self._image.close()
