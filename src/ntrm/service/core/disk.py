"""A full disk: recognised and reported."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from pathlib import Path
from typing import Literal

from ntrm.core.errors import NtrmError
from ntrm.service.core.problems import ProblemError

LEAST_FREE = 4 * 2**20
"""Bytes; with less, a disk counts as full."""
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
    if free < LEAST_FREE:
        return "disk_full"
    return "disk_low" if free < wanted_bytes else "ok"


def write_all(descriptor: int, content: bytes) -> int:
    """Write every byte; returns how many."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]
    return len(content)
