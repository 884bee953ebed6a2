"""A label mask and its coarser levels, on disk: what the writers of pyramids read from, in bounded memory.

Files store class index + 1 and 0 for nothing, because class 0 is a tissue. A coarser pixel takes the value that most of
its four pixels have; of equally frequent ones the first in reading order.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from ntrm.errors import DataError
from ntrm.labels import IGNORE, LabelSchema

SMALLEST = 256
"""Levels are added until one fits into a square of this side."""
BAND = 512
"""Rows worked on together, even."""

Labels = NDArray[np.uint8]
Rows = NDArray[np.uint8] | Iterable[NDArray[np.uint8]]
"""A mask (H, W), in memory or mapped, or bands of its rows from top to bottom; class indices, 255 = nothing."""

MEANING = "pixel = class index + 1; 0 = nothing"


@dataclass(frozen=True)
class Level:
    """One level: its pixels lie in a file without header, row after row."""

    height: int
    width: int
    stream: IO[bytes]

    def read(self, top: int, bottom: int) -> Labels:
        """Rows ``top`` to ``bottom``."""
        self.stream.seek(top * self.width)
        wanted = (min(bottom, self.height) - top) * self.width
        content = self.stream.read(wanted)
        return np.frombuffer(content, dtype=np.uint8).reshape(-1, self.width)

    def bands(self, rows: int) -> Iterator[tuple[int, Labels]]:
        """The level from top to bottom, ``rows`` at a time."""
        return ((top, self.read(top, top + rows)) for top in range(0, self.height, rows))


@contextmanager
def label_pyramid(rows: Rows, schema: LabelSchema, folder: Path) -> Iterator[tuple[Level, ...]]:
    """Levels of a mask from fine to coarse, each half the one before, in nameless files on ``folder``'s disk."""
    levels: list[Level] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        levels.append(_finest(rows, schema, folder))
        while max(levels[-1].height, levels[-1].width) > SMALLEST:
            levels.append(_halved(levels[-1], folder))
        yield tuple(levels)
    except OSError as error:
        raise DataError(f"cannot write below {folder}", got=error, mend="check free space and permissions") from error
    finally:
        for level in levels:
            level.stream.close()


def _scratch(folder: Path) -> IO[bytes]:
    # No name in any folder: a killed run leaves nothing behind.
    return tempfile.TemporaryFile(dir=folder)


def _finest(rows: Rows, schema: LabelSchema, folder: Path) -> Level:
    """Level 0, checked."""
    stream, height, width = _scratch(folder), 0, 0
    try:
        for band in _as_bands(rows):
            if band.ndim != 2 or band.dtype != np.uint8 or (height and band.shape[1] != width):
                expected = f"uint8 (rows, {width})" if height else "uint8 (rows, W)"
                raise DataError("unusable rows of labels", got=f"{band.dtype} {band.shape}", expected=expected)
            _check_classes(band, schema)
            # 255 + 1 overflows to 0 in a byte: just what nothing is stored as.
            stream.write((band + np.uint8(1)).tobytes())
            height, width = height + band.shape[0], band.shape[1]
        if height * width == 0:
            raise DataError(
                "an empty mask cannot be written", got=f"{height} × {width} pixels", expected="at least one"
            )
    except BaseException:
        stream.close()
        raise
    return Level(height, width, stream)


def _as_bands(rows: Rows) -> Iterator[Labels]:
    if isinstance(rows, np.ndarray):
        return (np.asarray(rows[top : top + BAND]) for top in range(0, max(len(rows), 1), BAND))
    return iter(rows)


def _check_classes(band: Labels, schema: LabelSchema) -> None:
    unknown = band[(band >= len(schema)) & (band != IGNORE)]
    if unknown.size:
        raise DataError(
            "the mask holds a class that the schema does not know",
            got=f"index {int(unknown[0])}",
            expected=f"0 to {len(schema) - 1}, or {IGNORE} for nothing",
            mend="give the schema of the model that made the mask",
        )


def _halved(finer: Level, folder: Path) -> Level:
    stream = _scratch(folder)
    try:
        for _, band in finer.bands(BAND):
            stream.write(halve(band).tobytes())
    except BaseException:
        stream.close()
        raise
    return Level(-(-finer.height // 2), -(-finer.width // 2), stream)


def halve(labels: Labels) -> Labels:
    """Every 2 × 2 pixels as the value that most of them have; an odd last row or column counts twice.

    >>> halve(np.array([[1, 2, 5], [2, 0, 5]], dtype=np.uint8)).tolist()
    [[2, 5]]
    """
    height, width = labels.shape
    even = np.pad(labels, ((0, height % 2), (0, width % 2)), mode="edge")
    a, b, c, d = even[::2, ::2], even[::2, 1::2], even[1::2, ::2], even[1::2, 1::2]
    # b wins with a second vote that a lacks, c with d only if neither a nor b has one.
    later = np.where((b == c) | (b == d), b, np.where(c == d, c, a))
    halved: Labels = np.where((a == b) | (a == c) | (a == d), a, later)
    return halved
