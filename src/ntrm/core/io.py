"""Files written whole or not at all: texts, JSON, arrays; lock files; and what may be opened where anybody may link."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import stat
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from ntrm.core.errors import BROKEN, DataError, RefusedError, UsageError, plain_number

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pydantic import ConfigDict, TypeAdapter

Kind = TypeVar("Kind")
Document = dict[str, Any]

PARTIAL = ".partial-"
"""Every temporary name starts with this, so that leftovers of a killed run are recognised and never read."""

NO_LINK = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"))
"""How a file is opened that somebody may have replaced by a link, as far as the system knows how."""
APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | NO_LINK


@contextmanager
def writing(what: object) -> Iterator[None]:
    """Turn an ``OSError`` in the block into a ``DataError``."""
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot write {what}", got=error, hint="check free space and permissions") from error


@contextmanager
def whole_file(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; rename it to ``path`` when the block ends without an error.

    A reader sees the old file or the new one, never half of it. The suffix is kept, because image libraries choose
    their format by it. A ``private`` file is at no moment readable for other users.
    """
    if path.is_dir():
        raise DataError(f"cannot write {path}", got="a folder", expected="the name of a file")
    partial = path.with_name(f"{PARTIAL}{secrets.token_hex(8)}{path.suffix}")
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with _created(partial, 0o600 if private else 0o666):
                yield partial
                with partial.open("rb+") as stream:
                    os.fsync(stream.fileno())
                partial.replace(path)
    finally:
        with suppress(FileNotFoundError, NotADirectoryError):
            partial.unlink()


@contextmanager
def _created(partial: Path, mode: int) -> Iterator[None]:
    """Create the file, and hold a lock by which ``remove_partials`` knows it from what a killed process left."""
    try:
        from fcntl import LOCK_SH, flock
    except ImportError:  # Windows, where a file that is open can be neither deleted nor renamed
        partial.touch(mode, exist_ok=False)
        yield
        return
    while True:
        partial.touch(mode, exist_ok=False)
        with partial.open("rb") as stream:
            with suppress(OSError):  # not every file system has locks
                flock(stream, LOCK_SH)
            # Another process may have removed it before it was locked.
            if partial.exists():
                yield
                return


def remove_partials(folder: Path) -> int:
    """Delete what a killed run left in ``folder``; returns the number of files."""
    return sum(_removed(leftover) for leftover in folder.glob(f"{PARTIAL}*"))


def _removed(leftover: Path) -> bool:
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock

        with leftover.open("rb+") as stream:  # over NFS only a file open for writing can be locked
            flock(stream, LOCK_EX | LOCK_NB)
            leftover.unlink(missing_ok=True)  # while it is locked: who has just created it looks whether it is there
    except BlockingIOError:
        return False
    except (OSError, ImportError):  # gone by now, or on a system without such locks
        with suppress(PermissionError):
            leftover.unlink(missing_ok=True)
    return True


def check_folder(out: Path) -> None:
    """Refuse an output folder that is a file, or lies below one."""
    if any(each.exists() and not each.is_dir() for each in (out, *out.parents)):
        raise UsageError("the output is not a folder", got=out, hint="choose another --out")


def foreign_files(out: Path, what: str, names: Iterable[str]) -> RefusedError:
    """Error for an output folder that holds files of something else than ``what``."""
    first = sorted(names)
    got = f"{out}: {', '.join(first[:3])}{' …' if len(first) > 3 else ''}"
    return RefusedError(
        f"the folder holds something that is no {what}", got=got, hint="choose an empty or a new folder for --out"
    )


def check_writable(folder: Path) -> None:
    """Refuse, before long work, a folder that nothing can be written to; a missing folder is not created."""
    check_folder(folder)
    if not os.access(next(path for path in (folder, *folder.absolute().parents) if path.exists()), os.W_OK | os.X_OK):
        hint = "choose another --out, or change its permissions"
        raise DataError(f"cannot write to {folder}", got="no permission", hint=hint)


def check_plain(path: Path) -> None:
    """Refuse a link, a pipe or a device in the place of a file of ours: it could lead anywhere."""
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        raise DataError(f"{path.name} is a link or no plain file", got=path, hint="remove it")


def open_for_update(path: Path) -> BinaryIO:
    """Open a file as it is, or a new one, to read and to write; what is no plain file is refused."""
    check_plain(path)
    return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o666), "r+b")


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


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Write a whole UTF-8 text file or nothing."""
    with whole_file(path, private=private) as partial:
        partial.write_text(text, encoding="utf-8")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or nothing."""
    with whole_file(path) as partial:
        partial.write_bytes(content)


STRICT: ConfigDict = {"strict": True, "allow_inf_nan": False}
"""The ``__pydantic_config__`` of a document: nothing passes for something else, as a text would for a number."""


def parsed(kind: Callable[..., Kind], content: bytes | str) -> Kind:
    """The document in a file's content; a ``ValueError`` that says where it is damaged. Further keys are ignored.

    >>> from ntrm.results.documents import Box
    >>> parsed(Box, '{"top": 1, "left": 2, "height": 3, "width": 4}')
    Box(top=1, left=2, height=3, width=4)
    """
    from pydantic import ValidationError
    from pydantic_core import from_json

    text = content if isinstance(content, bytes) else content.encode()
    if b"NaN" in text or b"Infinity" in text:
        from_json(text, allow_inf_nan=False)  # also where a document may hold anything
    try:
        document: Kind = _reader(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))) from error
    return document


@cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def write_json(path: Path, document: Any) -> None:
    """Write a whole JSON file or nothing: keys keep their order, and NaN stays visible, for readers to refuse."""
    from pydantic_core import to_json

    write_bytes(path, to_json(document, indent=2, inf_nan_mode="constants", fallback=plain_number) + b"\n")


def read_json(path: Path, *, hint: str) -> Any:
    """Read a JSON document; raise a ``DataError`` with this hint where that fails."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read {path}", got=error, hint=hint) from error


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object; an empty one where the file is missing, damaged or holds something else."""
    try:
        document = read_json(path, hint="")
    except DataError:
        return {}
    return document if isinstance(document, dict) else {}


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write named arrays as a whole NPZ file or nothing.

    As ``numpy.savez_compressed``, which compresses label maps four times as long to a third less.
    """
    from numpy.lib.format import write_array

    with whole_file(path) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=3) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                write_array(stream, array, allow_pickle=False)


def read_arrays(path: Path, *, hint: str) -> dict[str, NDArray[Any]]:
    """Read the arrays of an NPZ file by name; raise a ``DataError`` with this hint where that fails."""
    try:
        with path.open("rb") as stream:
            return arrays_in(stream)
    except NO_ARRAYS as error:
        raise DataError(f"cannot read {path}", got=f"{type(error).__name__}: {error}", hint=hint) from error


NO_ARRAYS = (*BROKEN, zipfile.BadZipFile, TokenError)  # What ``arrays_in`` raises over a damaged file


def arrays_in(stream: BinaryIO, most: int = 2**40) -> dict[str, NDArray[Any]]:
    """The arrays of an NPZ file; refused, before any is unpacked, where they have more than ``most`` bytes."""
    import numpy as np
    from numpy.lib import format as npy

    # The end of a ZIP file without a comment; the sixth value says how long the list of its contents is.
    end = struct.Struct("<4s4H2LH")
    stream.seek(-end.size - 20, os.SEEK_END)
    before, (mark, *_, listed, _, comment) = stream.read(20), end.unpack(stream.read())
    if mark != b"PK\5\6" or listed > 2**20 or comment or before.startswith(b"PK\6\7"):
        raise ValueError("no file of arrays")
    arrays = {}
    with zipfile.ZipFile(stream) as archive:
        entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        # No more than this is unpacked of an entry, whatever it holds, by the two kinds that are unpacked in parts.
        if sum(entry.file_size for entry in entries.values()) > most:
            raise ValueError(f"arrays of more than {most} bytes")
        if {entry.compress_type for entry in entries.values()} - {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise ValueError("a compression that cannot be unpacked in parts")
        for name, entry in entries.items():
            with archive.open(entry) as content:
                if npy.read_magic(content) != (1, 0):
                    raise ValueError("no array as numpy writes them")
                shape, by_columns, dtype = npy.read_array_header_1_0(content)
                data = bytearray(content.read())  # to the end, where the checksum is compared
                if dtype.hasobject or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(data):
                    raise ValueError("no array of numbers or text")
                arrays[name] = np.ndarray(shape, dtype, data, order="F" if by_columns else "C")
    return arrays


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
