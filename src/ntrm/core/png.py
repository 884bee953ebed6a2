"""PNG files of pictures and of label maps, far quicker than Pillow's and hardly larger; nothing but pixels in them.

A photograph's pixels are stored as differences from those above, and only repetitions of one byte are looked for: its
noise leaves nothing else to be found. Bands of rows are compressed in several threads. Their height does not depend on
the number of threads, and so neither do the bytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import UsageError
from ntrm.core.labels import RGB
from ntrm.core.threads import thread_map

Pixels = NDArray[np.uint8]

SIGNATURE = b"\x89PNG\r\n\x1a\n"
TRUE_COLOUR, PALETTE = 2, 3
"""What a pixel is."""
AS_IT_IS, UP = 0, 2
"""How a row is stored: as it is, or less the row above."""
BAND_BYTES = 1 << 20
"""Compressed by one thread at a time, about."""
ZLIB_HEAD, WINDOW_BITS, MEMORY = b"\x78\x01", 15, 9


class Packing(NamedTuple):
    """How pixels are stored and compressed."""

    filtered: int
    level: int
    strategy: int


PHOTO = Packing(UP, 1, zlib.Z_RLE)
LABELS = Packing(AS_IT_IS, 4, zlib.Z_DEFAULT_STRATEGY)


def photo_png(picture: Pixels, *, threads: int | None = None) -> bytes:
    """A picture (H, W, 3)."""
    _check(picture, "uint8 (height, width, 3)", picture.ndim == 3 and picture.shape[-1] == 3)
    rows = np.ascontiguousarray(picture).reshape(len(picture), -1)
    return png_file(picture.shape, TRUE_COLOUR, _compressed(rows, PHOTO, threads))


def palette_pngs(labels: Pixels, palettes: Sequence[Sequence[RGB]], alpha: bytes) -> list[bytes]:
    """The same labels (H, W) in the colours of each palette; ``alpha`` says how opaque each label is."""
    _check(labels, "uint8 (height, width)", labels.ndim == 2)
    pixels = _compressed(labels, LABELS, None)
    colours = [bytes(channel for colour in palette for channel in colour) for palette in palettes]
    return [png_file(labels.shape, PALETTE, pixels, PLTE=every, tRNS=alpha) for every in colours]


def _check(pixels: Pixels, expected: str, fits: bool) -> None:
    if not fits or pixels.dtype != np.uint8 or not pixels.size:
        raise UsageError("no pixels for a PNG file", got=f"{pixels.dtype} {pixels.shape}", expected=expected)


def png_file(shape: Sequence[int], kind: int, content: bytes, **more: bytes) -> bytes:
    """The file of compressed pixels, which are (height, width, …)."""
    height, width = shape[:2]
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    chunks = {"IHDR": head, **more, "IDAT": content, "IEND": b""}
    return SIGNATURE + b"".join(_chunk(name.encode(), text) for name, text in chunks.items())


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(content, zlib.crc32(name)))


def _compressed(rows: Pixels, packing: Packing, threads: int | None) -> bytes:
    """(H, bytes of a row) as one stream of zlib, made of bands that know nothing of each other."""
    step = max(1, BAND_BYTES // (rows.shape[1] + 1))

    def pack(top: int) -> tuple[Pixels, bytes]:
        stored = _stored(rows, top, min(top + step, len(rows)), packing.filtered)
        squeeze = zlib.compressobj(packing.level, zlib.DEFLATED, -WINDOW_BITS, MEMORY, packing.strategy)
        end = zlib.Z_FINISH if top + step >= len(rows) else zlib.Z_FULL_FLUSH
        return stored, squeeze.compress(stored.data) + squeeze.flush(end)

    parts, checksum = [ZLIB_HEAD], zlib.adler32(b"")
    for stored, content in thread_map(pack, range(0, len(rows), step), threads):
        checksum = zlib.adler32(stored.data, checksum)
        parts.append(content)
    return b"".join([*parts, struct.pack(">I", checksum)])


def _stored(rows: Pixels, top: int, bottom: int, filtered: int) -> Pixels:
    """Rows with the kind of their filter before each."""
    stored = np.empty((bottom - top, rows.shape[1] + 1), dtype=np.uint8)
    stored[:, 0], stored[:, 1:] = filtered, rows[top:bottom]
    if filtered == UP:
        # Above the first row of a picture there is 0.
        stored[top == 0 :, 1:] -= rows[max(top - 1, 0) : bottom - 1]
    return stored
