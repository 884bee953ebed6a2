"""Lock files: one process at a time, and free again whatever becomes of that process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ntrm.core.errors import RefusedError, UsageError
from ntrm.core.io import open_for_update


@contextmanager
def holding(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file ``path``; where another process has it, wait for it or refuse."""
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise UsageError("the output is not a folder", got=path.parent, hint="choose another --out") from error
        with open_for_update(path) as stream:
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
