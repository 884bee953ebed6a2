"""Lock files: one process at a time, and free again whatever becomes of that process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ntrm.core.errors import RefusedError
from ntrm.core.io import check_folder, check_plain


@contextmanager
def holding(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file ``path``; where another process has it, wait for it or refuse."""
    from filelock import FileLock, Timeout

    check_folder(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    check_plain(path)
    # A slide's lock is released by another thread than took it.
    lock = FileLock(path, timeout=-1 if wait else 0, thread_local=False)
    try:
        lock.acquire()
    except Timeout as error:
        hint = "wait until it ends, or choose another --out"
        raise RefusedError(f"another process works in {path.parent}", got=f"{path.name} is held", hint=hint) from error
    try:
        yield
    finally:
        lock.release()
