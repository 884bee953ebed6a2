"""Sets of pixels of a mask, as stretches of the flattened mask: small for regions, whatever the size of the slide."""

from __future__ import annotations

import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntrm.core.arrays import Ints
from ntrm.core.errors import DataError
from ntrm.regions.runs import RunLengths, Where, distinct

PACKED, LONG, MOST_TEXT = "deflate ", 2000, 2**27  # What packed texts begin with; characters from which on they are
_STRETCHES = re.compile(r"(\d{1,15}\+\d{1,15}( \d{1,15}\+\d{1,15})*)?")


@dataclass(frozen=True, eq=False)
class PixelSet:
    """Stretches in reading order that neither overlap nor touch; one may go on in the next row."""

    start: Ints  # (n,) flattened index of the first pixel
    stop: Ints  # (n,) index after the last one

    @classmethod
    def empty(cls) -> PixelSet:
        """No pixel."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64))

    @classmethod
    def of_runs(cls, runs: RunLengths, chosen: Where) -> PixelSet:
        """The pixels of the runs that are ``chosen``."""
        return _merged(runs.start[chosen], runs.stop[chosen])

    @classmethod
    def of_window(cls, inside: Where, top: int, left: int, width: int) -> PixelSet:
        """Those of a window (h, w) of a mask that is ``width`` pixels wide."""
        edge = np.diff(np.pad(inside.astype(np.int8), ((0, 0), (1, 1))), axis=1)
        (row, begin), end = np.nonzero(edge == 1), np.nonzero(edge == -1)[1]
        before = (row + top) * width + left
        return _merged(before + begin, before + end)

    @classmethod
    def parse(cls, text: str, size: int) -> PixelSet:
        """Read what ``text`` wrote, for a mask of ``size`` pixels."""
        text = _unpacked(text)
        if not _STRETCHES.fullmatch(text):
            raise DataError("no stretches of pixels", got=text[:40], expected="such as 12+3 40+5")
        numbers = np.array([int(part) for part in re.split("[+ ]", text)] if text else [], dtype=np.int64)
        bounds = np.cumsum(np.minimum(numbers, size + 1))
        if (numbers[1:] == 0).any() or bounds.max(initial=0) > size:
            raise DataError("pixels outside the mask", got=text[:40], expected=f"at most {size}")
        return cls(bounds[::2], bounds[1::2])

    @property
    def text(self) -> str:
        """Pixels to skip and pixels to take, in turn; packed where that is long.

        >>> PixelSet(np.array([2, 7]), np.array([5, 8])).text
        '2+3 2+1'
        """
        gap = self.start - np.append(0, self.stop[:-1])[: len(self.start)]
        text = " ".join(f"{skip}+{take}" for skip, take in zip(gap.tolist(), self.length.tolist(), strict=True))
        packed = PACKED + b64encode(zlib.compress(text.encode())).decode() if len(text) > LONG else text
        return min(text, packed, key=len)

    @property
    def length(self) -> Ints:
        """(n,) pixels of each stretch."""
        return self.stop - self.start

    @property
    def pixels(self) -> int:
        """How many there are."""
        return int(self.length.sum())

    def __bool__(self) -> bool:
        return len(self.start) > 0

    def __or__(self, other: PixelSet) -> PixelSet:
        return _combined(self, other, np.logical_or)

    def __and__(self, other: PixelSet) -> PixelSet:
        return _combined(self, other, np.logical_and)

    def __sub__(self, other: PixelSet) -> PixelSet:
        return _combined(self, other, np.greater)

    def holds(self, pixels: NDArray[np.integer[Any]]) -> Where:
        """For flattened indices of any shape, whether each belongs to the set."""
        return np.asarray(np.searchsorted(self.start, pixels, "right") > np.searchsorted(self.stop, pixels, "right"))

    def rows(self, top: int, height: int, width: int) -> Where:
        """(height, width) where it lies in some rows of a mask that is ``width`` pixels wide."""
        first, last = top * width, (top + height) * width
        near = slice(np.searchsorted(self.stop, first, "right"), np.searchsorted(self.start, last))
        edge = np.zeros(height * width + 1, dtype=np.int8)
        edge[np.maximum(self.start[near], first) - first] = 1
        edge[np.minimum(self.stop[near], last) - first] = -1
        return np.cumsum(edge[:-1], dtype=np.int8).reshape(height, width).astype(bool)


def _unpacked(text: str) -> str:
    """The stretches in a text that may be packed; no more is unpacked than a slide can have."""
    if not text.startswith(PACKED):
        return text
    try:
        packed = zlib.decompressobj()
        found = packed.decompress(b64decode(text[len(PACKED) :], validate=True), MOST_TEXT)
        if not packed.eof:
            raise ValueError("it ends too early or is too long")
        return found.decode("ascii")
    except (ValueError, zlib.error) as error:
        raise DataError("no stretches of pixels", got=error, expected="such as 12+3 40+5, or these packed") from error


def union(sets: Iterable[PixelSet]) -> PixelSet:
    """All of them together."""
    every = list(sets)
    none = np.zeros(0, np.int64)
    start, stop = (np.concatenate([none, *(getattr(each, end) for each in every)]) for end in ("start", "stop"))
    order = np.argsort(start, kind="stable")
    return _merged(start[order], np.maximum.accumulate(stop[order]))


def _combined(one: PixelSet, other: PixelSet, rule: Callable[[Where, Where], Where]) -> PixelSet:
    cut = distinct(np.concatenate([one.start, one.stop, other.start, other.stop]))
    kept = np.asarray(rule(one.holds(cut), other.holds(cut)))[:-1]
    return _merged(cut[:-1][kept], cut[1:][kept])


def _merged(start: Ints, stop: Ints) -> PixelSet:
    """Stretches in the order of their starts, those that overlap or touch made one."""
    begins = np.append(True, start[1:] > stop[:-1])[: len(start)]
    ends = np.append(begins[1:], True)[: len(start)]
    return PixelSet(start[begins].astype(np.int64), stop[ends].astype(np.int64))
