"""Open a slide by what it contains, never by its name's ending.

| content | reader |
|---|---|
| a scanner's format that OpenSlide knows (SVS, NDPI, MRXS, SCN, DICOM …), tiled TIFF | OpenSlide (see ``direct``) |
| OME-TIFF, TIFF in strips, TIFF that OpenSlide does not know | tifffile |
| PNG, JPEG | Pillow |
"""

from __future__ import annotations

from pathlib import Path

from ntrm.core.errors import DataError
from ntrm.wsi.readers.companions import MIRAX, check_companions, is_mirax
from ntrm.wsi.readers.openslide_reader import OpenSlideReader, openslide_vendor
from ntrm.wsi.readers.reader import SlideInfo, SlideLevel, SlideReader, damaged, opening

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
    from ntrm.wsi.readers.direct import open_directly
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
