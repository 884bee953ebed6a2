"""Finished rows of a slide on disk, each with its checksums in a journal: what a killed run did is not done again.

Rows go to two flat files, labels and confidences, a byte a pixel. Only after both are safely on the disk does the
journal name them, in a line of its own with checksums. Whatever was under way when the process died is past the end of
the journal and is overwritten; a torn last line or rows that no longer match their checksums end the journal there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ntrm.errors import DataError, RefusedError

FORMAT = "ntrm-bands/1"
JOURNAL = "journal.jsonl"
MAPS = {"labels": "labels.u8", "confidence": "confidence.u8"}

Band = NDArray[np.uint8]


def fingerprint(document: Any) -> str:
    """SHA-256 of a JSON document, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


class BandStore:
    """Rows of one slide from the top down. ``done`` rows are safe; ``append`` adds the next ones."""

    def __init__(self, folder: Path, height: int, width: int, plan: Any) -> None:
        self.folder = folder
        self.height, self.width = height, width
        self.done = 0
        self._head = {"format": FORMAT, "height": height, "width": width, "plan": fingerprint(plan)}
        self._streams: dict[str, BinaryIO] = {}

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, height: int, width: int, plan: Any) -> Iterator[BandStore]:
        """Open the store of ``folder``, or begin one; refuses one of another ``plan`` (model, options, slide)."""
        store = cls(folder, height, width, plan)
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

    def append(self, top: int, labels: Band, confidence: Band) -> None:
        """Add the rows that follow; those at the front which are done already are left out."""
        skip = self.done - top
        if skip < 0 or labels.shape != confidence.shape or labels.shape[1] != self.width:
            raise DataError(
                "rows that do not follow", got=f"{labels.shape} from row {top}", expected=f"rows from {self.done} on"
            )
        bands = {"labels": labels[skip:], "confidence": confidence[skip:]}
        rows = len(bands["labels"])
        if rows == 0:
            return
        line: dict[str, int] = {"top": self.done, "rows": rows}
        with _own_errors():
            for name, band in bands.items():
                content = np.ascontiguousarray(band, dtype=np.uint8).tobytes()
                line[name] = zlib.crc32(content)
                _write(self._streams[name], content)
            _write(self._streams["journal"], (json.dumps(line) + "\n").encode())
        self.done += rows

    def maps(self) -> tuple[Band, Band]:
        """Labels and confidences of the whole slide as read-only memory maps."""
        if not self.complete:
            raise DataError("the slide is not finished", got=f"{self.done} rows", expected=f"{self.height}")
        labels, confidence = (
            np.memmap(self.folder / file, dtype=np.uint8, mode="r", shape=(self.height, self.width))
            for file in MAPS.values()
        )
        return labels, confidence

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        journal = self.folder / JOURNAL
        lines = _lines(journal)
        if lines and lines[0][0] != self._head:
            raise RefusedError(
                "unfinished work of another model, other options or another file lies there",
                got=self.folder.parent.name,
                mend="give the same command as before, or choose another --out",
            )
        for name, file in MAPS.items():
            self._streams[name] = _for_update(self.folder / file)
        self._streams["journal"] = _for_update(journal)
        end = self._verified(lines)
        # Nothing of a torn line may stay before the next one, nor rows that the journal does not name.
        ends = {"journal": end, **dict.fromkeys(MAPS, self.done * self.width)}
        for name, length in ends.items():
            self._streams[name].truncate(length)
            self._streams[name].seek(length)
        if not lines:
            _write(self._streams["journal"], (json.dumps(self._head) + "\n").encode())

    def _verified(self, lines: list[tuple[dict[str, Any], int]]) -> int:
        """Count the rows that are as the journal says; returns where its part about them ends."""
        end = lines[0][1] if lines else 0
        for line, line_end in lines[1:]:
            if line.get("top") != self.done or not isinstance(line.get("rows"), int) or line["rows"] < 1:
                break
            size = line["rows"] * self.width
            contents = {name: self._streams[name].read(size) for name in MAPS}
            if any(len(content) < size or zlib.crc32(content) != line.get(name) for name, content in contents.items()):
                break
            self.done += line["rows"]
            end = line_end
        return end

    def _close(self) -> None:
        for stream in self._streams.values():
            stream.close()


def drop(folder: Path) -> None:
    """Delete a store that is no longer needed."""
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        mend = "check free space and permissions; the same command goes on"
        raise DataError("cannot keep finished rows", got=error, mend=mend) from error


def _lines(journal: Path) -> list[tuple[dict[str, Any], int]]:
    """The lines up to the first that is not whole, each with the byte at which it ends."""
    lines: list[tuple[dict[str, Any], int]] = []
    end = 0
    if not journal.exists():
        return lines
    for text in journal.read_bytes().splitlines(keepends=True):
        try:
            line = json.loads(text) if text.endswith(b"\n") else None
        except ValueError:
            line = None
        if not isinstance(line, dict):
            break
        end += len(text)
        lines.append((line, end))
    return lines


def _for_update(path: Path) -> BinaryIO:
    path.touch()
    return path.open("r+b", buffering=0)


def _write(stream: BinaryIO, content: bytes) -> None:
    """All of it, and on the disk, not in the system's memory."""
    left = memoryview(content)
    while left:
        left = left[stream.write(left) :]
    os.fsync(stream.fileno())
