"""Maps of a slide that stay on disk: indexed like arrays, read where they are indexed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Bytes
from ntrm.core.errors import DataError, UsageError

Index = int | slice | tuple[int | slice, ...]


class DiskArray:
    """(H, W) bytes of a file without header, less ``less`` (below 0 wraps to 255), read where they are indexed.

    Used like an array, but unlike a memory map it takes no memory of its own: pages of a mapped file count as the
    process's, and a pass over a large slide would count in full.
    """

    ndim: ClassVar = 2
    dtype: ClassVar = np.dtype(np.uint8)
    # numpy must not take it for a scalar: what is not indexing is refused.
    __array_ufunc__ = None

    def __init__(
        self, path: Path, height: int, width: int, *, less: int = 0, wait: Callable[[int], None] | None = None
    ) -> None:
        """``wait``, for a file that still grows, returns once rows up to its argument are there."""
        self.shape = height, width
        self._less, self._wait = np.uint8(less), wait
        self._file = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        if wait is None and os.fstat(self._file).st_size < height * width:
            self.close()
            raise DataError("a map on disk is too short", expected=f"{height} × {width} bytes", hint="run again")

    @property
    def size(self) -> int:
        """Number of pixels."""
        return self.shape[0] * self.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Index) -> Any:
        """A copy of rows, or of a rectangle: slices and whole numbers, as for an array."""
        axes = index if isinstance(index, tuple) else (index,)
        if len(axes) > 2 or not all(isinstance(axis, slice | int | np.integer) for axis in axes):
            raise UsageError("only rows and rectangles can be read from a map on disk", got=index)
        rows, columns = (_range_and_rest(*one) for one in zip((*axes, slice(None))[:2], self.shape, strict=True))
        return self._read(rows[0], columns[0])[rows[1], columns[1]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        values = self._read(*(range(size) for size in self.shape))
        return values if dtype is None else values.astype(dtype)

    def __eq__(self, other: object) -> bool:
        raise UsageError("a map on disk cannot be compared as a whole", hint="read its rows, and compare those")

    __hash__ = None  # type: ignore[assignment]

    def _read(self, rows: range, columns: range) -> Bytes:
        out: Bytes = np.empty((len(rows), len(columns)), dtype=np.uint8)
        if out.size == 0:
            return out
        if self._wait is not None:
            self._wait(rows.stop)
        # Rows over the full width are contiguous in the file.
        contiguous = len(columns) == self.shape[1]
        for target, row in [(out, rows.start)] if contiguous else zip(out, rows, strict=True):
            self._fill(target, row * self.shape[1] + columns.start)
        if self._less:
            out -= self._less
        return out

    def _fill(self, target: Bytes, offset: int) -> None:
        left = target.reshape(-1).data
        while left:
            got = os.preadv(self._file, [left], offset)
            if got <= 0:
                raise DataError("a map on disk has become shorter", hint="run again; nothing else may write there")
            left, offset = left[got:], offset + got

    def close(self) -> None:
        """Twice does no harm."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _range_and_rest(index: int | slice, size: int) -> tuple[range, int | slice]:
    """The contiguous range to read of an axis, and the index of what is wanted in it."""
    if not isinstance(index, slice):
        position = range(size)[index]
        return range(position, position + 1), 0
    wanted = range(size)[index]
    if len(wanted) == 0:
        return range(0), slice(None)
    first, last = sorted((wanted[0], wanted[-1]))
    return range(first, last + 1), slice(None, None, index.step)
