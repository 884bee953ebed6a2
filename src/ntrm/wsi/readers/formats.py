"""Open a slide by what it contains, never by its name's ending, and judge which further files it may bring along.

A VMS file is a text that names others by path, an MRXS slide has an index of that kind, and a DICOM slide is whatever
lies in its folder. What such a file names comes back as pixels, and a pipe holds its reader for ever. So a slide may
bring along regular files of its own folder, and nothing at all where it has to be one file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ntrm.core.errors import DataError
from ntrm.wsi.readers.openslide_reader import OpenSlideReader, openslide_vendor
from ntrm.wsi.readers.reader import SlideInfo, SlideLevel, SlideReader, damaged, opening

MIRAX = "mirax"
VENDORS = frozenset(
    {"aperio", "generic-tiff", "hamamatsu", "leica", "philips", "sakura", "trestle", "ventana", "zeiss"}
)
"""OpenSlide's formats that are one file; of Hamamatsu's only NDPI, which is a TIFF."""
SEVERAL = frozenset({"dicom", MIRAX})

INDEX = "Slidedat.ini"
MAX_INDEX_BYTES = 2**20
"""As OpenSlide has it; of a VMS file it reads less."""
_NAMING = re.compile(
    rb"^[^\S\n]*(?:ImageFile|MapFile|MacroImage|OptimisationFile|FILE_|INDEXFILE)[^=\n]*=[^\S\n]*([^\n]*)", re.M
)
"""Keys of VMS, VMU and MRXS that name a file, in whatever group they stand."""


def is_mirax(path: Path) -> bool:
    """Whether OpenSlide would look into the folder beside a file to tell what the file is."""
    return path.suffix.lower() == ".mrxs"


def check_companions(path: Path, vendor: str, *, tiff: bool, alone: bool) -> None:
    """Refuse a slide of ``vendor`` that brings files along which it may not.

    Args:
        path: the slide's main file.
        vendor: as OpenSlide calls it.
        tiff: whether the main file is a TIFF.
        alone: whether the slide has to be one file.

    Raises:
        DataError: without the name of any file.

    """
    several = vendor in SEVERAL or (vendor == "hamamatsu" and not tiff)
    if vendor not in VENDORS | SEVERAL:
        raise damaged("a scanner's format that is not known to be safe")
    with opening(path):
        if alone and (several or any(os.path.lexists(other) for other in _companions(path, vendor, tiff))):
            raise DataError(
                "a slide of several files",
                got=f"the main file of a {vendor} slide",
                expected="a slide that is one file",
                hint="convert it in QuPath to OME-TIFF; a slide of several files can only be named by its path",
            )
        own = {path.parent.resolve(), path.resolve().parent}
        for other in _companions(path, vendor, tiff):
            _check_inside(other, own)


def _companions(path: Path, vendor: str, tiff: bool) -> Iterator[Path]:
    if vendor == MIRAX:
        folder = path.with_suffix("")
        yield folder / INDEX
        # The index has been judged by now.
        yield from _named_in(folder / INDEX, folder)
    elif vendor == "dicom":
        yield from (Path(entry.path) for entry in os.scandir(path.parent) if not entry.is_dir())
    elif vendor == "trestle":
        # OpenSlide cuts the path, not the name, at its last point.
        macro = Path(re.sub(r"\.[^.]*$", "", str(path)) + ".Full")
        yield from [macro] if os.path.lexists(macro) else []
    elif vendor == "hamamatsu" and not tiff:
        yield from _named_in(path, path.parent)


def _named_in(index: Path, folder: Path) -> Iterator[Path]:
    """Files that a text of keys and values names."""
    if not index.exists():
        return
    with index.open("rb") as stream:
        text = stream.read(MAX_INDEX_BYTES + 1)
    if len(text) > MAX_INDEX_BYTES:
        raise damaged("an index of other files that is too large")
    for match in _NAMING.finditer(text):
        name = match[1].removesuffix(b"\r")
        if b"\0" in name or b"\\" in name:
            raise damaged("an index that names other files in a way no scanner does")
        if name:
            # As OpenSlide puts them together: a path from the root on lies in the folder, too.
            yield folder / os.fsdecode(name.lstrip(b"/"))


def _check_inside(other: Path, own: set[Path]) -> None:
    target = other.resolve()
    if not any(target.is_relative_to(folder) for folder in own):
        raise damaged("a slide that names a file outside its own folder", "put all files of the slide into one folder")
    if target.exists() and not target.is_file():
        raise damaged("a slide that names a folder or a device as one of its files")


# Open a slide by what it contains, never by its name's ending. | content | reader | |---|---| | a scanner's format that
# OpenSlide knows (SVS, NDPI, MRXS, SCN, DICOM …), tiled TIFF | OpenSlide (see ``direct``) | | OME-TIFF, TIFF in strips,
# TIFF that OpenSlide does not know | tifffile | | PNG, JPEG | Pillow |


__all__ = ["SlideInfo", "SlideLevel", "SlideReader", "open_slide"]

_TIFF = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")
_IMAGE = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
_GENERIC = "generic-tiff"


def open_slide(path: Path, *, alone: bool = False) -> SlideReader:
    """Open a slide or a section image in this process; ``isolated.open_isolated`` does so in a child process.

    Args:
        path: the slide's main file.
        alone: whether no other file may be read with it, as for files from strangers; otherwise those of its folder.

    Raises:
        DataError: the file cannot be read; the message names no file and quotes nothing from it.

    """
    path = Path(path).absolute()
    start = _first_bytes(path)
    tiff = start.startswith(_TIFF)
    if is_mirax(path):
        check_companions(path, MIRAX, tiff=tiff, alone=alone)
    # MRXS comes first: its main file is an ordinary JPEG.
    vendor = openslide_vendor(path)
    if vendor is not None:
        check_companions(path, vendor, tiff=tiff, alone=alone)
    if tiff:
        return _open_tiff(path, vendor)
    if vendor is not None:
        return OpenSlideReader(path)
    if start.startswith(_IMAGE):
        from ntrm.wsi.readers.image import ImageReader

        return ImageReader(path)
    raise damaged("an empty file" if not start else "a file of no known kind")


def _first_bytes(path: Path) -> bytes:
    with opening(path):
        if path.exists() and not path.is_file():
            # Opening a pipe would wait for ever.
            raise damaged("a folder or a device", "name the slide's main file")
        with path.open("rb") as stream:
            return stream.read(8)


def _open_tiff(path: Path, vendor: str | None) -> SlideReader:
    from ntrm.wsi.readers.openslide_reader import open_directly
    from ntrm.wsi.readers.tiff import TiffReader, is_ome

    if vendor is None or (vendor == _GENERIC and is_ome(path)):
        # OpenSlide would take an OME-TIFF for a plain one and miss the levels of its pyramid.
        return TiffReader(path)
    try:
        return open_directly(path)
    except DataError:
        if vendor != _GENERIC:
            raise
        # Compressions that OpenSlide does not know may still be tifffile's.
        return TiffReader(path)
