"""Checkpoints of what a slide's work still holds in memory: a killed run continues from the last good one.

They alternate between two files, each written under a temporary name and renamed, with a checksum at its end: one that
is damaged does not count, and the other is used.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ntrm.core.io import whole_file
from ntrm.results.folder import SlideFolder

FORMAT = "ntrm-checkpoint/4"
FILES = ("checkpoint-0.bin", "checkpoint-1.bin")
LEAST_S = 2.0
"""Between two checkpoints, and before the first: what takes no longer is soon done again."""
PAUSE = 20
"""A checkpoint is due once this many times as long has passed as the last one took: it never holds up the network."""
MAX_HEAD = 1 << 24
CRC_RESIDUE = 0x2144DF1C
"""CRC-32 of anything that is followed by its own CRC-32."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """All that is needed to continue."""

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
        self._last = time.monotonic()
        self._cost = 0.0

    def due(self) -> bool:
        """Whether it is time for another one; if so, the time to the next starts now."""
        now = time.monotonic()
        if now - self._last < max(LEAST_S, PAUSE * self._cost):
            return False
        self._last = now
        return True

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the older of the two."""
        start = time.monotonic()
        with whole_file(self._folder / FILES[self._next]) as partial, partial.open("w+b") as stream:
            _write_checkpoint(stream, checkpoint, self._plan)
        self._next = 1 - self._next
        self._cost = time.monotonic() - start

    def load(self, done: int) -> Checkpoint | None:
        """The latest good one that is not ahead of ``done`` rows; None to begin from the top."""
        tops = {number: self._top(self._folder / name) for number, name in enumerate(FILES)}
        usable = [number for number, top in tops.items() if 0 <= top <= done]
        for number in sorted(usable, key=lambda number: -tops[number]):
            checkpoint = _read_checkpoint(self._folder / FILES[number])
            if checkpoint is not None:
                self._next = 1 - number
                return checkpoint
        return None

    def forget(self) -> None:
        """Delete them, of whatever plan."""
        for name in FILES:
            (self._folder / name).unlink(missing_ok=True)

    def _top(self, path: Path) -> int:
        """``top`` of the checkpoint in a file; -1 where there is none of this plan."""
        with suppress(OSError, ValueError, RecursionError), _opened(path) as stream:
            head = _read_head(stream)
            if head.get("plan") == self._plan:
                return int(head["top"])
        return -1


def _opened(path: Path) -> BinaryIO:
    return SlideFolder(path.parent).open(path.name)


def _write_checkpoint(stream: BinaryIO, checkpoint: Checkpoint, plan: str) -> None:
    """A line of JSON, the arrays as ``np.save`` writes them, and the CRC-32 of it all."""
    head = {"top": checkpoint.top, "first": checkpoint.first, "arrays": [*checkpoint.arrays]}
    stream.write(json.dumps({"format": FORMAT, "plan": plan, **head}).encode() + b"\n")
    for array in checkpoint.arrays.values():
        np.save(stream, array, allow_pickle=False)
    stream.write(_crc(stream).to_bytes(4, "little"))


def _crc(stream: BinaryIO) -> int:
    crc = 0
    stream.seek(0)
    while chunk := stream.read(1 << 20):
        crc = zlib.crc32(chunk, crc)
    return crc


def _read_head(stream: BinaryIO) -> dict[str, Any]:
    """The first line; a ``ValueError`` if it is none of ours."""
    head = json.loads(stream.readline(MAX_HEAD))
    types = {"top": int, "first": int, "arrays": list}
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise ValueError("no checkpoint")
    if not all(isinstance(head.get(key), kind) for key, kind in types.items()):
        raise ValueError("no checkpoint")
    return head


def _read_checkpoint(path: Path) -> Checkpoint | None:
    """The checkpoint, if every byte is as it was written."""
    with (
        suppress(OSError, EOFError, ValueError, TypeError, MemoryError, RecursionError),
        SlideFolder(path.parent).open(path.name) as stream,
    ):
        if _crc(stream) == CRC_RESIDUE:
            stream.seek(0)
            head = _read_head(stream)
            arrays = {str(name): np.load(stream, allow_pickle=False) for name in head["arrays"]}
            return Checkpoint(head["top"], head["first"], arrays)
    return None
