"""A full disk: recognised, reported, and emptied with the help of a reserve."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from ntrm.core.errors import NtrmError
from ntrm.core.io import APPEND
from ntrm.service.core.problems import ProblemError

T = TypeVar("T")
_log = logging.getLogger(__name__)
STEP_BYTES = 2**20
STEPS = 4
"""The reserve is freed in steps: other programs write, too, and may take the space first."""
RESERVE_BYTES = STEPS * STEP_BYTES
_FULL = (errno.ENOSPC, errno.EDQUOT)
_DATABASE_FULL = (
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP, sqlite3.SQLITE_CANTOPEN,
)  # fmt: skip
"""SQLite reports a full disk, or that its log or its shared memory could not be written."""
DiskState = Literal["ok", "disk_low", "disk_full", "disk_missing"]


def is_full(error: BaseException | None) -> bool:
    """Whether an error means that the disk is full; our own errors are judged by their cause."""
    if isinstance(error, NtrmError):
        return is_full(error.__cause__)
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) in _DATABASE_FULL
    return isinstance(error, OSError) and error.errno in _FULL


def disk_full() -> ProblemError:
    """507."""
    return ProblemError(
        507, "disk_full", "the disk has no room for it", hint="delete slides, or ask whoever runs the service"
    )


def disk_state(folder: Path, wanted_bytes: int) -> DiskState:
    """State of the disk that holds ``folder``; ``disk_low``: uploads are no longer accepted."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return "disk_missing"
    if free < RESERVE_BYTES:
        return "disk_full"
    return "disk_low" if free < wanted_bytes else "ok"


class Reserve:
    """A file that only takes up space: freeing it makes room to delete slides on a full disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def fill(self) -> None:
        """Restore its full size where the disk has room for it and as much again."""
        with self._lock:
            lacking = RESERVE_BYTES - self._size()
            try:
                if lacking <= 0 or shutil.disk_usage(self._path.parent).free < lacking + RESERVE_BYTES:
                    return
                # Random bytes: a file system that compresses would reserve nothing.
                block = os.urandom(STEP_BYTES)
                with os.fdopen(os.open(self._path, APPEND, 0o600), "ab") as stream:
                    for start in range(0, lacking, STEP_BYTES):
                        stream.write(block[: lacking - start])
            except OSError:
                _log.warning("the reserve to delete with could not be written")

    def spend(self, work: Callable[[], T]) -> T:
        """Do what must be possible on a full disk, with as much of the reserve as that takes."""
        while True:
            try:
                return work()
            except (OSError, sqlite3.Error, NtrmError) as error:
                if not is_full(error) or not self._release():
                    raise

    def _release(self) -> bool:
        """Free one step; False where nothing is left."""
        with self._lock:
            size = self._size()
            if size > 0:
                os.truncate(self._path, max(0, size - STEP_BYTES))
        return size > 0

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0


def write_all(descriptor: int, content: bytes) -> int:
    """Write every byte; returns how many."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    return len(content)
