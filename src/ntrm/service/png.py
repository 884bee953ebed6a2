"""PNG files of indexed pixels whose colours change without compressing the pixels again."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LEVEL = 6
"""Of compression: labels shrink to almost nothing at any."""


def packed(pixels: NDArray[np.uint8]) -> bytes:
    """(H, W) as the content of an IDAT chunk."""
    height, width = pixels.shape
    rows = np.zeros((height, width + 1), dtype=np.uint8)  # the first byte of a row: no filter
    rows[:, 1:] = pixels
    return zlib.compress(rows.tobytes(), _LEVEL)


def indexed_png(width: int, height: int, content: bytes, colours: NDArray[np.uint8], alpha: NDArray[np.uint8]) -> bytes:
    """A whole file: packed pixels with a palette (N, 3) and its opacities (N,)."""
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"PLTE", colours.tobytes()), (b"tRNS", alpha.tobytes()))
    return b"".join((SIGNATURE, *(_chunk(*each) for each in chunks), _chunk(b"IDAT", content), _chunk(b"IEND", b"")))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
