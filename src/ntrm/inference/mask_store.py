"""Finished rows of a slide on disk: a killed run continues from there.

Rows go to flat files, one for labels, one for confidences, perhaps more, a byte a pixel; 0 is nothing, which takes no
room where a whole band is nothing. Only after all are safely on the disk are they entered in the journal, a line with
checksums. Whatever was being written when the process died is past the end of the journal and is overwritten; a torn
last line or rows that no longer match their checksums end the journal there.

A checkpoint (``checkpoints``) is never ahead of the journal.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ntrm.core.arrays import Bytes
from ntrm.core.errors import DataError
from ntrm.core.io import open_for_update, remove_partials
from ntrm.inference.checkpoints import Checkpoints
from ntrm.inference.disk_array import DiskArray
from ntrm.results.folder import SlideFolder

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
        """Open the store of ``folder``, or begin one, also in place of one of another ``plan`` (model, options, slide).

        The caller sees to it that nobody else has it open.
        """
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
            # Of a file that was replaced since, say. Without checkpoints, what is left of a store begins anew: they go
            # first, in case this is killed halfway.
            self.checkpoints.forget()
            drop(self.folder)
            self.folder.mkdir(exist_ok=True)
            lines = []
        for name in self.names:
            self._streams[name] = open_for_update(self.path(name), buffering=0)
        self._streams["journal"] = open_for_update(journal, buffering=0)
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
        hint = "check free space and permissions; then run the same command again"
        raise DataError("cannot keep finished rows", got=error, hint=hint) from error


def _lines(journal: Path) -> list[tuple[dict[str, Any], int]]:
    """The lines up to the first that is incomplete, each with the byte at which it ends."""
    lines: list[tuple[dict[str, Any], int]] = []
    end = 0
    try:
        content = SlideFolder(journal.parent).read(journal.name)
    except FileNotFoundError:
        return lines
    for text in content.splitlines(keepends=True):
        try:
            line = json.loads(text) if text.endswith(b"\n") else None
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict):
            break
        end += len(text)
        lines.append((line, end))
    return lines


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
