"""Finished rows of a slide on disk, and checkpoints of what is still held in memory: a killed run continues from there.

Rows go to flat files, one for labels, one for confidences, perhaps more, a byte a pixel; 0 is nothing, which takes no
room where a whole band is nothing. Only after all are safely on the disk are they entered in the journal, a line with
checksums. Whatever was being written when the process died is past the end of the journal and is overwritten; a torn
last line or rows that no longer match their checksums end the journal there.

Checkpoints alternate between two files, each written under a temporary name and renamed, with a checksum at its end:
one that is damaged does not count, and the other is used. A checkpoint is never ahead of the journal.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.io import remove_partials, whole_file

Bytes = NDArray[np.uint8]
Index = int | slice | tuple[int | slice, ...]

FORMAT = "ntrm-bands/2"
JOURNAL = "journal.jsonl"
LABELS, CONFIDENCE, COARSE = "labels", "confidence", "coarse"
TIDY = "tidy"
"""Labels without small regions: made of the finished rows, and so not in the journal."""
MAPS = (LABELS, CONFIDENCE)
OFFSETS = {LABELS: 1, COARSE: 1, TIDY: 1}
"""Class 0 is a tissue, and 0 is nothing: labels are stored one higher."""

FULL = 255
"""Confidence or probability of 1 in a byte."""

CHECKPOINT_FORMAT = "ntrm-checkpoint/3"
CHECKPOINT_FILES = ("checkpoint-0.bin", "checkpoint-1.bin")
CHECKPOINT_PAUSE = 20
"""A checkpoint is due once this many times as long has passed as the last one took: it never holds up the network."""
MAX_HEAD = 1 << 24
CRC_RESIDUE = 0x2144DF1C
"""CRC-32 of anything that is followed by its own CRC-32."""


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


def fingerprint(document: Any) -> str:
    """SHA-256 of a JSON document, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


class BandStore:
    """Rows of one slide from the top down. ``done`` rows are on disk; ``append`` adds the next ones."""

    def __init__(self, folder: Path, height: int, width: int, plan: Any, names: Sequence[str] = MAPS) -> None:
        self.folder = folder
        self.height, self.width = height, width
        self.names = tuple(names)
        self.done = 0
        self.checkpoints = Checkpoints(folder, fingerprint([plan, height, width, list(names)]))
        self._head = {"format": FORMAT, "height": height, "width": width, "maps": [*names], "plan": fingerprint(plan)}
        self._streams: dict[str, BinaryIO] = {}
        self._maps: list[DiskArray] = []
        self._growth = threading.Condition()
        self._ended = False

    @classmethod
    @contextmanager
    def opened(
        cls, folder: Path, height: int, width: int, plan: Any, names: Sequence[str] = MAPS
    ) -> Iterator[BandStore]:
        """Open the store of ``folder``, or begin one; refuses one of another ``plan`` (model, options, slide)."""
        store = cls(folder, height, width, plan, names)
        try:
            with _own_errors():
                store._open()
            yield store
        finally:
            files: list[BinaryIO | DiskArray] = [*store._streams.values(), *store._maps]
            for file in files:
                file.close()

    @property
    def complete(self) -> bool:
        """Whether every row is there."""
        return self.done == self.height

    def append(self, top: int, bands: Mapping[str, Bytes]) -> None:
        """Add the rows that follow, of every map; rows that are done already are left out."""
        skip = self.done - top
        shapes = {band.shape for band in bands.values()}
        if skip < 0 or {*bands} != {*self.names} or len(shapes) != 1 or next(iter(shapes))[1] != self.width:
            raise DataError("rows that do not follow", got=f"{shapes} from row {top}", expected=f"from {self.done} on")
        rows = next(iter(shapes))[0] - skip
        if rows <= 0:
            return
        line: dict[str, int] = {"top": self.done, "rows": rows}
        with _own_errors():
            for name in self.names:
                content = np.ascontiguousarray(bands[name][skip:], dtype=np.uint8)
                line[name] = zlib.crc32(content.data)
                _write(self._streams[name], content)
            self._write_journal(line)
        with self._growth:
            self.done += rows
            self._growth.notify_all()

    def map(self, name: str, *, growing: bool = False) -> DiskArray:
        """One map of the slide; labels are class indices, 255 for nothing. It closes with the store.

        Of a map that is ``growing``, rows that are not there yet are waited for.
        """
        if not growing and not self.complete:
            raise DataError("the slide is not finished", got=f"{self.done} rows", expected=f"{self.height}")
        wait = self._wait_for if growing else None
        new = DiskArray(self.path(name), self.height, self.width, less=OFFSETS.get(name, 0), wait=wait)
        self._maps.append(new)
        return new

    def end(self) -> None:
        """No more rows will come: whoever waits for some gets an error."""
        with self._growth:
            self._ended = True
            self._growth.notify_all()

    def _wait_for(self, rows: int) -> None:
        with self._growth:
            self._growth.wait_for(lambda: self.done >= rows or self._ended)
        if self.done < rows:
            raise DataError("the slide was not finished", got=f"{self.done} rows", expected=rows, hint="run again")

    def path(self, name: str) -> Path:
        """The file of a map."""
        return self.folder / f"{name}.u8"

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_partials(self.folder)
        journal = self.folder / JOURNAL
        lines = _lines(journal)
        if lines and lines[0][0] != self._head:
            raise RefusedError(
                "unfinished work of another model, other options or another file lies there",
                got=self.folder.parent.name,
                hint="give the same command as before, or choose another --out",
            )
        for name in self.names:
            self._streams[name] = _for_update(self.path(name))
        self._streams["journal"] = _for_update(journal)
        end = self._verified(lines)
        # Nothing of a torn line may stay before the next one, nor rows that are not in the journal.
        ends = {"journal": end, **dict.fromkeys(self.names, self.done * self.width)}
        for name, length in ends.items():
            self._streams[name].truncate(length)
            self._streams[name].seek(length)
        if not lines:
            self._write_journal(self._head)

    def _write_journal(self, line: Mapping[str, Any]) -> None:
        _write(self._streams["journal"], np.frombuffer((json.dumps(line) + "\n").encode(), dtype=np.uint8))

    def _verified(self, lines: list[tuple[dict[str, Any], int]]) -> int:
        """Count the rows that are as the journal says; returns where its lines about them end."""
        end = lines[0][1] if lines else 0
        for line, line_end in lines[1:]:
            rows = line.get("rows")
            if line.get("top") != self.done or not isinstance(rows, int) or not 1 <= rows <= self.height - self.done:
                break
            size = rows * self.width
            contents = {name: self._streams[name].read(size) for name in self.names}
            if any(len(content) < size or zlib.crc32(content) != line.get(name) for name, content in contents.items()):
                break
            self.done += rows
            end = line_end
        return end


def drop(folder: Path) -> None:
    """Delete a store that is no longer needed."""
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        hint = "check free space and permissions; the same command goes on"
        raise DataError("cannot keep finished rows", got=error, hint=hint) from error


def _lines(journal: Path) -> list[tuple[dict[str, Any], int]]:
    """The lines up to the first that is incomplete, each with the byte at which it ends."""
    lines: list[tuple[dict[str, Any], int]] = []
    end = 0
    if not journal.exists():
        return lines
    for text in journal.read_bytes().splitlines(keepends=True):
        try:
            line = json.loads(text) if text.endswith(b"\n") else None
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict):
            break
        end += len(text)
        lines.append((line, end))
    return lines


def _for_update(path: Path) -> BinaryIO:
    path.touch()
    return path.open("r+b", buffering=0)


def _write(stream: BinaryIO, content: Bytes) -> None:
    """All of it, and to the disk itself, not to the system's memory."""
    if content.any():
        left = content.data.cast("B")
        while left:
            left = left[stream.write(left) :]
    else:
        # Nothing at all becomes a hole in the file, where the file system has such.
        stream.truncate(stream.seek(content.size, os.SEEK_CUR))
    os.fsync(stream.fileno())


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
        self._last = -float("inf")
        self._cost = 0.0

    def due(self) -> bool:
        """Whether it is time for another one; if so, it is taken as begun."""
        now = time.monotonic()
        if now - self._last < CHECKPOINT_PAUSE * self._cost:
            return False
        self._last = now
        return True

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the older of the two."""
        start = time.monotonic()
        with whole_file(self._folder / CHECKPOINT_FILES[self._next]) as partial, partial.open("w+b") as stream:
            _write_checkpoint(stream, checkpoint, self._plan)
        self._next = 1 - self._next
        self._cost = time.monotonic() - start

    def load(self, done: int) -> Checkpoint | None:
        """The latest good one that is not ahead of ``done`` rows; None to begin from the top."""
        tops = {number: self._top(self._folder / name) for number, name in enumerate(CHECKPOINT_FILES)}
        usable = [number for number, top in tops.items() if 0 <= top <= done]
        for number in sorted(usable, key=lambda number: -tops[number]):
            checkpoint = _read_checkpoint(self._folder / CHECKPOINT_FILES[number])
            if checkpoint is not None:
                self._next = 1 - number
                return checkpoint
        return None

    def _top(self, path: Path) -> int:
        """``top`` of the checkpoint in a file; -1 where there is none of this plan."""
        with suppress(OSError, ValueError, RecursionError), path.open("rb") as stream:
            head = _read_head(stream)
            if head.get("plan") == self._plan:
                return int(head["top"])
        return -1


def _write_checkpoint(stream: BinaryIO, checkpoint: Checkpoint, plan: str) -> None:
    """A line of JSON, the arrays as ``np.save`` writes them, and the CRC-32 of it all."""
    head = {"top": checkpoint.top, "first": checkpoint.first, "arrays": [*checkpoint.arrays]}
    stream.write(json.dumps({"format": CHECKPOINT_FORMAT, "plan": plan, **head}).encode() + b"\n")
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
    if not isinstance(head, dict) or head.get("format") != CHECKPOINT_FORMAT:
        raise ValueError("no checkpoint")
    if not all(isinstance(head.get(key), kind) for key, kind in types.items()):
        raise ValueError("no checkpoint")
    return head


def _read_checkpoint(path: Path) -> Checkpoint | None:
    """The checkpoint, if every byte is as it was written."""
    with suppress(OSError, EOFError, ValueError, TypeError, MemoryError, RecursionError), path.open("rb") as stream:
        if _crc(stream) == CRC_RESIDUE:
            stream.seek(0)
            head = _read_head(stream)
            arrays = {str(name): np.load(stream, allow_pickle=False) for name in head["arrays"]}
            return Checkpoint(head["top"], head["first"], arrays)
    return None
