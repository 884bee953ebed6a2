"""Writing that never leaves half a file behind, and fingerprints of what was read."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ntrm.errors import DataError

_UMASK = threading.Lock()

PARTIAL = ".partial-"
"""Every temporary name starts with this, so that leftovers of a killed run are recognised and never read."""


@contextmanager
def whole_file(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it into place when the block ends well.

    A reader sees the old file or the new one, never a part. The suffix is kept, because image
    libraries choose their format by it. A ``private`` file is at no moment readable for other users.
    """
    if path.is_dir():
        raise DataError(f"cannot write {path}", got="a folder", expected="the name of a file")
    partial = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=PARTIAL, suffix=path.suffix, dir=path.parent)
        os.close(handle)
        partial = Path(name)
        yield partial
        with partial.open("rb+") as stream:
            os.fsync(stream.fileno())
        partial.chmod(0o600 if private else 0o666 & ~_umask())
        partial.replace(path)
    except OSError as error:
        raise DataError(f"cannot write {path}", got=error, mend="check free space and permissions") from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)


def check_writable(folder: Path) -> None:
    """Refuse, before long work, a folder that nothing can be written to; one that is not there yet is not made."""
    there = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise DataError(
            f"cannot write to {folder}",
            got="no permission" if there.is_dir() else f"{there} is no folder",
            mend="choose another --out, or change its permissions",
        )


def _umask() -> int:
    # There is no call that reads the mask without setting it: two threads at once would leave each other's behind.
    with _UMASK:
        mask = os.umask(0o022)
        os.umask(mask)
    return mask


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Write a whole UTF-8 text file or nothing."""
    with whole_file(path, private=private) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, document: Any) -> None:
    """Write a whole JSON file or nothing; keys keep their order."""
    # Piece by piece: the text of a large document takes more memory than the document.
    with whole_file(path) as partial, partial.open("w", encoding="utf-8") as stream:
        json.dump(document, stream, indent=2, ensure_ascii=False, allow_nan=False)
        stream.write("\n")


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def remove_partials(folder: Path) -> int:
    """Delete what a killed run left in ``folder``; returns how many files went."""
    leftovers = list(folder.glob(f"{PARTIAL}*"))
    for leftover in leftovers:
        leftover.unlink(missing_ok=True)
    return len(leftovers)
