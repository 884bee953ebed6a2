"""Bytes from anywhere in a file, for several threads at a time."""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from ntrm.slide.reading.base import damaged


class RandomAccess:
    """An open file without a position; given back when closed or no longer used.

    A memory map would be simpler, but a file that shrinks under it kills the process.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._finalizer = weakref.finalize(self, os.close, self._descriptor)

    def read(self, offset: int, count: int) -> bytes:
        """Exactly ``count`` bytes."""
        if not self._finalizer.alive:  # the number may already be another file's
            raise ValueError("the file is closed")
        parts, left = [], count
        while left and (data := os.pread(self._descriptor, left, offset + count - left)):
            parts.append(data)
            left -= len(data)
        if left:
            raise damaged("a strip or tile beyond the end of the file", "copy the file again; it was cut short")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Give the file back; twice does no harm."""
        self._finalizer()
