"""A map of bytes in a file, read where it is asked for.

Used like an array, but unlike a memory map it takes no memory of its own: pages of a mapped file count as the
process's, and a pass over a large slide would count in full.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ntrm.errors import DataError, UsageError

Bytes = NDArray[np.uint8]
Index = int | slice | tuple[int | slice, ...]


class StoredMap:
    """(H, W) bytes of a file without header; ``less`` is taken off each of them, below 0 turning to 255."""

    ndim: ClassVar = 2
    dtype: ClassVar = np.dtype(np.uint8)
    # numpy must not take it for a scalar: what is not indexing is refused.
    __array_ufunc__ = None

    def __init__(self, path: Path, height: int, width: int, *, less: int = 0) -> None:
        self.shape = height, width
        self._less = np.uint8(less)
        self._file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        if os.fstat(self._file).st_size < height * width:
            self.close()
            raise DataError("a map on disk is too short", expected=f"{height} × {width} bytes", mend="run again")

    @property
    def size(self) -> int:
        """Number of pixels."""
        return self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Index) -> Any:
        """A copy of rows, or of a rectangle: slices and whole numbers, as for an array."""
        both = index if isinstance(index, tuple) else (index,)
        if len(both) > 2 or not all(isinstance(each, slice | int | np.integer) for each in both):
            raise UsageError("only rows and rectangles can be read from a map on disk", got=index)
        rows, columns = (_whole(each, size) for each, size in zip((*both, slice(None))[:2], self.shape, strict=True))
        return self._read(rows[0], columns[0])[rows[1], columns[1]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        whole = self._read(*(range(size) for size in self.shape))
        return whole if dtype is None else whole.astype(dtype)

    def __eq__(self, other: object) -> bool:
        raise UsageError("a map on disk cannot be compared as a whole", mend="read its rows, and compare those")

    __hash__ = None  # type: ignore[assignment]

    def _read(self, rows: range, columns: range) -> Bytes:
        out: Bytes = np.empty((len(rows), len(columns)), dtype=np.uint8)
        if out.size == 0:
            return out
        whole = len(columns) == self.shape[1]
        # Rows over the whole width lie together in the file.
        for place, row in [(out, rows.start)] if whole else zip(out, rows, strict=True):
            self._fill(place, row * self.shape[1] + columns.start)
        if self._less:
            out -= self._less
        return out

    def _fill(self, place: Bytes, offset: int) -> None:
        left = place.reshape(-1).data
        while left:
            got = os.preadv(self._file, [left], offset)
            if got <= 0:
                raise DataError("a map on disk has become shorter", mend="run again; nothing else may write there")
            left, offset = left[got:], offset + got

    def close(self) -> None:
        """Twice does no harm."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _whole(each: int | slice, size: int) -> tuple[range, int | slice]:
    """The stretch to read, and what to take of it."""
    if isinstance(each, slice):
        wanted = range(size)[each]
        if len(wanted) == 0:
            return range(0), slice(None)
        first, last = sorted((wanted[0], wanted[-1]))
        return range(first, last + 1), slice(None, None, each.step)
    place = range(size)[each]
    return range(place, place + 1), 0
