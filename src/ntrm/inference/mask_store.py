"""Finished rows of a slide on disk, each with its checksum in a journal, read back as arrays where asked for.

Used like an array, but unlike a memory map it takes no memory of its own: pages of a mapped file count as the
process's, and a pass over a large slide would count in full.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.core.io import remove_partials
from ntrm.inference.window_checkpoint import Checkpoints

Bytes = NDArray[np.uint8]
Index = int | slice | tuple[int | slice, ...]


class DiskArray:
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
            raise DataError("a map on disk is too short", expected=f"{height} × {width} bytes", hint="run again")

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
        raise UsageError("a map on disk cannot be compared as a whole", hint="read its rows, and compare those")

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
                raise DataError("a map on disk has become shorter", hint="run again; nothing else may write there")
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


# Finished rows of a slide on disk, each with its checksums in a journal: what a killed run did is not done again.
#
# Rows go to flat files, one for labels, one for confidences, perhaps more, a byte a pixel; 0 is nothing, which takes no
# room where a whole band is nothing. Only after all are safely on the disk does the journal name them, in a line of its
# own with checksums. Whatever was under way when the process died is past the end of the journal and is overwritten; a
# torn last line or rows that no longer match their checksums end the journal there.


FORMAT = "ntrm-bands/2"
JOURNAL = "journal.jsonl"
LABELS, CONFIDENCE, COARSE = "labels", "confidence", "coarse"
TIDY = "tidy"
"""Labels without specks: made of the finished rows, and so not named in the journal."""
MAPS = (LABELS, CONFIDENCE)
OFFSETS = {LABELS: 1, COARSE: 1, TIDY: 1}
"""Class 0 is a tissue, and 0 is nothing: labels are stored one higher."""

Band = NDArray[np.uint8]


def fingerprint(document: Any) -> str:
    """SHA-256 of a JSON document, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


class BandStore:
    """Rows of one slide from the top down. ``done`` rows are safe; ``append`` adds the next ones."""

    def __init__(self, folder: Path, height: int, width: int, plan: Any, names: Sequence[str] = MAPS) -> None:
        self.folder = folder
        self.height, self.width = height, width
        self.names = tuple(names)
        self.done = 0
        self.checkpoints = Checkpoints(folder, fingerprint([plan, height, width, list(names)]))
        self._head = {"format": FORMAT, "height": height, "width": width, "maps": [*names], "plan": fingerprint(plan)}
        self._streams: dict[str, BinaryIO] = {}
        self._maps: list[DiskArray] = []

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
            store._close()

    @property
    def complete(self) -> bool:
        """Whether every row is there."""
        return self.done == self.height

    def append(self, top: int, bands: Mapping[str, Band]) -> None:
        """Add the rows that follow, of every map; those at the front which are done already are left out."""
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
            _write(self._streams["journal"], np.frombuffer((json.dumps(line) + "\n").encode(), dtype=np.uint8))
        self.done += rows

    def map(self, name: str) -> DiskArray:
        """One map of the whole slide; labels are class indices, 255 for nothing. It closes with the store."""
        if not self.complete:
            raise DataError("the slide is not finished", got=f"{self.done} rows", expected=f"{self.height}")
        self._maps.append(DiskArray(self.path(name), self.height, self.width, less=OFFSETS.get(name, 0)))
        return self._maps[-1]

    def path(self, name: str) -> Path:
        """Where a map lies."""
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
        # Nothing of a torn line may stay before the next one, nor rows that the journal does not name.
        ends = {"journal": end, **dict.fromkeys(self.names, self.done * self.width)}
        for name, length in ends.items():
            self._streams[name].truncate(length)
            self._streams[name].seek(length)
        if not lines:
            head = (json.dumps(self._head) + "\n").encode()
            _write(self._streams["journal"], np.frombuffer(head, dtype=np.uint8))

    def _verified(self, lines: list[tuple[dict[str, Any], int]]) -> int:
        """Count the rows that are as the journal says; returns where its part about them ends."""
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

    def _close(self) -> None:
        for stream in self._streams.values():
            stream.close()
        for each in self._maps:
            each.close()


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
    """The lines up to the first that is not whole, each with the byte at which it ends."""
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


def _write(stream: BinaryIO, content: Band) -> None:
    """All of it, and on the disk, not in the system's memory."""
    if content.any():
        left = content.data.cast("B")
        while left:
            left = left[stream.write(left) :]
    else:
        # Nothing at all becomes a hole in the file, where the system knows such.
        stream.truncate(stream.seek(content.size, os.SEEK_CUR))
    os.fsync(stream.fileno())
