"""Log of what was done to slides, and when: only ever appended to. No names of files, no tokens, no addresses."""

from __future__ import annotations

import json
import logging
import os
import threading
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from ntrm.core.io import APPEND
from ntrm.core.locks import holding
from ntrm.service.core.disk import write_all

_log = logging.getLogger(__name__)
MOST_BYTES = 8 * 2**20
KEPT = 9
"""Older files."""
MOST_WAITING = 10_000
"""Lines kept in memory while the disk is full; beyond that, the oldest are dropped."""


class Audit:
    """A file of JSON lines; safe for several threads and processes.

    A full one becomes ``audit.1.jsonl``, which becomes ``audit.2.jsonl``, and so on; the oldest is dropped.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES, kept: int = KEPT) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path, self._most_bytes, self._kept = path, most_bytes, kept
        self._waiting: list[bytes] = []
        self._refusals = 0
        self._lock = threading.Lock()

    def note(self, action: str, slide: str = "", outcome: str = "ok") -> None:
        """Add a line, on disk before this returns; if the disk is full, it is written later."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time, "action": action, "slide": slide, "outcome": outcome}) + "\n"
        with self._lock:
            self._waiting = [*self._waiting[1 - MOST_WAITING :], line.encode()]
            try:
                self._write(b"".join(self._waiting))
            except OSError as error:
                _log.warning("%s lines of the audit log wait: %s", len(self._waiting), error.strerror)
            else:
                self._waiting = []

    def count_refusal(self) -> None:
        """Count a refused sign-in: anybody can cause one, and must not fill the disk that way."""
        with self._lock:
            self._refusals += 1

    def note_refusals(self) -> None:
        """Write one line for all sign-ins refused since the last such line."""
        with self._lock:
            count, self._refusals = self._refusals, 0
        if count:
            self.note("open", outcome="refused" if count == 1 else f"refused {count} times")

    def _write(self, content: bytes) -> None:
        with holding(self._path.with_suffix(".lock"), wait=True):
            if self._path.exists() and self._path.stat().st_size + len(content) > self._most_bytes:
                self._rotate()
            descriptor = os.open(self._path, APPEND, 0o600)
            try:
                _append(descriptor, content)
            finally:
                os.close(descriptor)

    def _rotate(self) -> None:
        names = [self._path, *(self._path.with_suffix(f".{number}.jsonl") for number in range(1, self._kept + 1))]
        for newer, older in reversed([*pairwise(names)]):
            if newer.exists():
                newer.replace(older)


def _append(descriptor: int, content: bytes) -> None:
    """Write all or nothing: half a line would spoil the next one."""
    size = os.fstat(descriptor).st_size
    try:
        write_all(descriptor, content)
        os.fdatasync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise
