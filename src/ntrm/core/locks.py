"""One process at a time in a folder; the lock goes with its holder, however that ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ntrm.core.errors import RefusedError, UsageError


@contextmanager
def holding(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file ``path``; where another process has it, wait for it or refuse."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError("the output is not a folder", got=path.parent, hint="choose another --out") from error
    with path.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise RefusedError(
                f"another process works in {path.parent}",
                got=f"{path.name} is held",
                hint="wait until it ends, or choose another --out",
            ) from error
        yield
