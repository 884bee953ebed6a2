"""Where a killed run can go on: what is held in memory between two rows of windows, now and then put on disk.

Two files take turns, each written beside its name and renamed, with a checksum at its end: one that is damaged does not
count, and the other is used. Finished rows have a journal of their own; a checkpoint is never ahead of it.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ntrm.core.io import whole_file

FORMAT = "ntrm-checkpoint/1"
FILES = ("checkpoint-0.bin", "checkpoint-1.bin")
SHARE = 20
"""A checkpoint is due once this many times as long has passed as the last one took: it never holds up the network."""
KINDS = ("float32", "float64", "uint8")
MOST_HEAD = 1 << 24
CRC_BYTES = 4


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that is needed to go on."""

    top: int
    """Rows above this one are finished."""
    first: int
    """Window at which to begin predicting."""
    arrays: Mapping[str, NDArray[Any]] = field(repr=False)


class Checkpoints:
    """The checkpoints of one slide; ``plan`` is the fingerprint of all that has a say in its results."""

    def __init__(self, folder: Path, plan: str) -> None:
        self._folder, self._plan = folder, plan
        self._next = 0
        self._last = -float("inf")
        self._cost = 0.0

    def due(self) -> bool:
        """Whether it is time for another one; if so, it is taken as begun."""
        now = time.monotonic()
        if now - self._last < SHARE * self._cost:
            return False
        self._last = now
        return True

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the older of the two."""
        start = time.monotonic()
        with whole_file(self._folder / FILES[self._next]) as partial, partial.open("wb") as stream:
            _write(stream, checkpoint, self._plan)
        self._next = 1 - self._next
        self._cost = time.monotonic() - start

    def load(self, done: int) -> Checkpoint | None:
        """The latest good one of which all finished rows are among the ``done`` first; None to begin from the top."""
        tops: list[int] = []
        for name in FILES:
            head = self._head(self._folder / name)
            tops.append(-1 if head is None or not 0 <= head["top"] <= done else head["top"])
        for number in sorted(range(len(FILES)), key=lambda number: -tops[number]):
            found = None if tops[number] < 0 else _read(self._folder / FILES[number])
            if found is not None:
                self._next = 1 - number
                return found
        return None

    def _head(self, path: Path) -> dict[str, Any] | None:
        with suppress(OSError, ValueError, RecursionError), path.open("rb") as stream:
            head = _read_head(stream)
            if head.get("plan") == self._plan:
                return head
        return None


def _write(stream: BinaryIO, checkpoint: Checkpoint, plan: str) -> None:
    arrays = {name: np.ascontiguousarray(array) for name, array in checkpoint.arrays.items()}
    described = [[name, str(array.dtype), list(array.shape)] for name, array in arrays.items()]
    head = {"format": FORMAT, "plan": plan, "top": checkpoint.top, "first": checkpoint.first, "arrays": described}
    line = json.dumps(head).encode() + b"\n"
    crc = 0
    parts: list[bytes | memoryview] = [line, *(array.data.cast("B") for array in arrays.values() if array.size)]
    for part in parts:
        stream.write(part)
        crc = zlib.crc32(part, crc)
    stream.write(crc.to_bytes(CRC_BYTES, "little"))


def _read_head(stream: BinaryIO) -> dict[str, Any]:
    """The first line; a ``ValueError`` if it is none of ours."""
    head = json.loads(stream.readline(MOST_HEAD))
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ValueError("no checkpoint")
    if not all(isinstance(head.get(key), int) for key in ("top", "first")) or not isinstance(head.get("arrays"), list):
        raise ValueError("no checkpoint")
    return head


def _read(path: Path) -> Checkpoint | None:
    """The checkpoint, if every byte is as it was written."""
    with suppress(OSError, ValueError, TypeError, MemoryError, RecursionError), path.open("rb") as stream:
        crc = zlib.crc32(stream.readline(MOST_HEAD))
        stream.seek(0)
        head = _read_head(stream)
        # Whatever the head says, no more is asked of the memory than the file can fill.
        left = path.stat().st_size - stream.tell() - CRC_BYTES
        arrays = {}
        for name, array in _empty(head["arrays"], left):
            if stream.readinto(array.data.cast("B")) != array.nbytes:
                return None
            crc = zlib.crc32(array.data.cast("B"), crc)
            arrays[str(name)] = array
        if stream.read() == crc.to_bytes(CRC_BYTES, "little"):
            return Checkpoint(head["top"], head["first"], arrays)
    return None


def _empty(described: list[Any], left: int) -> Iterator[tuple[str, NDArray[Any]]]:
    for name, kind, shape in described:
        if kind not in KINDS or not all(isinstance(size, int) and size > 0 for size in shape):
            raise ValueError("unknown array")
        left -= int(np.prod(shape, dtype=object)) * np.dtype(kind).itemsize
        if left < 0:
            raise ValueError("more than the file holds")
        yield name, np.empty(shape, dtype=kind)
