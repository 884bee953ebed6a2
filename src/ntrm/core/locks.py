"""Lock files: one process at a time, and free again whatever becomes of that process."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ntrm.core.errors import RefusedError, UsageError


@contextmanager
def holding(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file ``path``; where another process has it, wait for it or refuse."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError("the output is not a folder", got=path.parent, hint="choose another --out") from error
        with _lock_file(path) as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError as error:
                hint = "wait until it ends, or choose another --out"
                raise RefusedError(
                    f"another process works in {path.parent}", got=f"{path.name} is held", hint=hint
                ) from error
            # A lock on a file that its last holder deleted keeps nobody out.
            if _is_at(path, stream.fileno()):
                yield
                return


def _lock_file(path: Path) -> BinaryIO:
    """Opened as it is, and made where there is none; a link in its place could lead to any file."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        stream = os.fdopen(os.open(path, flags, 0o666), "r+b", buffering=0)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise RefusedError("a lock file is a link", got=path, hint="remove the link") from error
    return stream


def _is_at(path: Path, handle: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(handle))
    return False


def is_held(path: Path) -> bool:
    """Whether a process holds the lock file ``path``."""
    try:
        with holding(path):
            return False
    except RefusedError:
        return True
