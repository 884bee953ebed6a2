"""A map of bytes and its coarser levels on disk, in bounded memory, for the writers of pyramids to read from.

Labels are stored as class index + 1 and 0 for nothing, because class 0 is a tissue. A coarser label is the one that
most of its four pixels have; of equally frequent ones the first in reading order. Other maps are averaged.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError
from ntrm.core.io import writing
from ntrm.core.labels import IGNORE, LabelSchema
from ntrm.core.threads import most_threads, thread_map
from ntrm.data.area_mean import block_means

SMALLEST = 256
"""Levels are added until one fits into a square of this side."""
BAND = 512
"""Rows worked on together at most, even."""
BAND_PIXELS = 1 << 20
"""Pixels that a thread works on together, about."""
MOST_AHEAD = 1 << 26
"""Pixels of bands that are read ahead at most."""

Labels = NDArray[np.uint8]
Rows = NDArray[np.uint8] | Iterable[NDArray[np.uint8]]
"""A mask (H, W), in memory or mapped, or bands of its rows from top to bottom; class indices, 255 = nothing."""

MEANING = "pixel = class index + 1; 0 = nothing"


@dataclass(frozen=True)
class Level:
    """One level; ``read`` gives rows ``top`` to ``bottom`` of it, or to its end, to any thread."""

    height: int
    width: int
    read: Callable[[int, int], Labels]

    def bands(self, rows: int) -> Iterator[tuple[int, Labels]]:
        """The level from top to bottom, ``rows`` at a time, read ahead."""
        return self.mapped(rows, lambda band: band)

    def mapped(self, rows: int, work: Callable[[Labels], Labels]) -> Iterator[tuple[int, Labels]]:
        """What ``work`` makes of bands of ``rows``, from top to bottom; it works in several threads."""
        threads = max(1, min(most_threads(), MOST_AHEAD // max(rows * self.width, 1)))
        tops = range(0, self.height, rows)
        bands = thread_map(lambda top: work(self.read(top, top + rows)), tops, threads)
        return zip(tops, bands, strict=True)


def label_pyramid(rows: Rows, schema: LabelSchema, folder: Path) -> AbstractContextManager[tuple[Level, ...]]:
    """Levels of a mask from fine to coarse, each half the one before, in nameless files on ``folder``'s disk."""

    def stored(band: Labels) -> Labels:
        # 255 + 1 overflows to 0 in a byte, which stands for nothing.
        shifted: Labels = band + np.uint8(1)
        if shifted.max(initial=0) > len(schema):
            check_classes(band, schema)
        return shifted

    return _pyramid(rows, stored, halve, folder)


def byte_pyramid(rows: Rows, folder: Path) -> AbstractContextManager[tuple[Level, ...]]:
    """Levels of a map of quantities, averaged; otherwise as ``label_pyramid``."""
    return _pyramid(rows, lambda band: band, halve_mean, folder)


@contextmanager
def _pyramid(
    rows: Rows, stored: Callable[[Labels], Labels], halved: Callable[[Labels], Labels], folder: Path
) -> Iterator[tuple[Level, ...]]:
    with ExitStack() as stack:

        def scratch() -> IO[bytes]:
            # No name in any folder: a killed run leaves nothing behind.
            return stack.enter_context(tempfile.TemporaryFile(dir=folder))

        with writing(f"below {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            levels = [_mapped(rows, stored) if hasattr(rows, "shape") else _copied(rows, stored, scratch())]
            while max(levels[-1].height, levels[-1].width) > SMALLEST:
                levels.append(_coarser(levels[-1], halved, scratch()))
            yield tuple(levels)


def _mapped(rows: Any, stored: Callable[[Labels], Labels]) -> Level:
    """Level 0 of a map that can be read again and again: it needs no copy."""
    _check_band(rows)
    height, width = rows.shape
    _check_size(height, width)
    return Level(height, width, lambda top, bottom: stored(np.asarray(rows[top:bottom])))


def _copied(rows: Rows, stored: Callable[[Labels], Labels], stream: IO[bytes]) -> Level:
    """Level 0 of bands that come once."""
    height, width = 0, 0
    for band in rows:
        _check_band(band, width if height else None)
        stream.write(stored(band).tobytes())
        height, width = height + band.shape[0], band.shape[1]
    stream.flush()
    _check_size(height, width)
    return Level(height, width, _reader(stream, height, width))


def _coarser(finer: Level, halved: Callable[[Labels], Labels], stream: IO[bytes]) -> Level:
    rows = max(2, min(BAND, BAND_PIXELS // finer.width) // 2 * 2)
    for _, band in finer.mapped(rows, halved):
        stream.write(band.data)
    stream.flush()
    height, width = -(-finer.height // 2), -(-finer.width // 2)
    return Level(height, width, _reader(stream, height, width))


def _reader(stream: IO[bytes], height: int, width: int) -> Callable[[int, int], Labels]:
    def read(top: int, bottom: int) -> Labels:
        band = np.empty((min(bottom, height) - top, width), dtype=np.uint8)
        left, offset = band.reshape(-1).data, top * width
        while left:
            # At a place of its own: several threads read at the same time.
            got = os.preadv(stream.fileno(), [left], offset)
            if got <= 0:
                raise OSError("a temporary file has become shorter")
            left, offset = left[got:], offset + got
        return band

    return read


def _check_band(band: Any, width: int | None = None) -> None:
    if len(band.shape) != 2 or band.dtype != np.uint8 or width not in (None, band.shape[1]):
        expected = f"uint8 (rows, {'W' if width is None else width})"
        raise DataError("unusable rows of labels", got=f"{band.dtype} {band.shape}", expected=expected)


def _check_size(height: int, width: int) -> None:
    if height * width == 0:
        raise DataError("an empty mask cannot be written", got=f"{height} × {width} pixels", expected="at least one")


def check_classes(indices: NDArray[np.integer], schema: LabelSchema) -> None:
    """Refuse indices that are no class of the schema."""
    unknown = indices[(indices >= len(schema)) & (indices != IGNORE)]
    if unknown.size:
        raise DataError(
            "the mask holds a class that the schema does not know",
            got=f"index {int(unknown[0])}",
            expected=f"0 to {len(schema) - 1}, or {IGNORE} for nothing",
            hint="give the schema of the model that made the mask",
        )


def halve(labels: Labels) -> Labels:
    """Every 2 × 2 pixels as the value that most of them have; an odd last row or column counts twice.

    >>> halve(np.array([[1, 2, 5], [2, 0, 5]], dtype=np.uint8)).tolist()
    [[2, 5]]
    """
    # Two neighbours at a time, the left one in the lower byte.
    pairs = np.ascontiguousarray(_even(labels)).view("<u2")
    upper, lower = pairs[::2], pairs[1::2]
    halved: Labels = upper.astype(np.uint8)
    # Nearly everywhere all four are equal; only the others need a vote.
    differ = (upper != lower) | (upper != halved * np.uint16(257))
    halved[differ] = _voted(upper[differ], lower[differ])
    return halved


def _even(labels: Labels) -> Labels:
    """With an odd last row or column twice."""
    height, width = labels.shape
    odd = height % 2 or width % 2
    return np.pad(labels, ((0, height % 2), (0, width % 2)), mode="edge") if odd else labels


def _voted(upper: NDArray[np.uint16], lower: NDArray[np.uint16]) -> Labels:
    """What most of two pairs have."""
    a, b, c, d = ((pair >> shift).astype(np.uint8) for pair in (upper, lower) for shift in (0, 8))
    # b wins with a second vote that a lacks, c with d only if neither a nor b has one.
    later = np.where((b == c) | (b == d), b, np.where(c == d, c, a))
    return np.where((a == b) | (a == c) | (a == d), a, later)


def halve_mean(values: Labels) -> Labels:
    """Every 2 × 2 pixels as their mean, rounded half up; an odd last row or column counts twice.

    >>> halve_mean(np.array([[1, 2, 5], [2, 1, 5]], dtype=np.uint8)).tolist()
    [[2, 5]]
    """
    return block_means(values[..., None], 2, 2)[..., 0]
