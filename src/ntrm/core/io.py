"""Files written whole or not at all, hashes, and CSV text that no spreadsheet runs as a formula."""

from __future__ import annotations

import csv
import errno
import fcntl
import hashlib
import io
import json
import math
import os
import re
import stat
import struct
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from ntrm.core.errors import DataError, RefusedError, UsageError, plain_number

if TYPE_CHECKING:
    import numpy as np
    from _typeshed import SupportsWrite
    from numpy.typing import NDArray

PARTIAL = ".partial-"
"""Every temporary name starts with this, so that leftovers of a killed run are recognised and never read."""

ARRAYS_LEVEL = 3
"""How hard zlib tries to compress arrays."""

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a log is opened: a link in its place could lead to any file."""

_UMASK = threading.Lock()
_FORMULA = "=+-@\t\r\n＝＋－＠"
"""First characters that make a spreadsheet compute a cell; some systems take the wide forms for the narrow ones."""
_SUSPECT = frozenset((*_FORMULA, "'"))
"""A cell that begins otherwise is what it says."""
_HARMLESS = re.compile(r"[+-]?[0-9.,]+([eE][+-]?[0-9]+)?|[+-]+")
"""Numbers, and grades such as ``++``, in which there is nothing to compute."""


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
    partial = handle = None
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=PARTIAL, suffix=path.suffix, dir=path.parent)
            partial = Path(name)
            # By this ``remove_partials`` knows it from what a killed process left. Not every file system has locks.
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_SH)
            yield partial
            with partial.open("rb+") as stream:
                os.fsync(stream.fileno())
            partial.chmod(0o600 if private else 0o666 & ~_umask())
            partial.replace(path)
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)
        if handle is not None:
            os.close(handle)


def check_folder(out: Path) -> None:
    """Refuse an output folder that is a file."""
    if out.exists() and not out.is_dir():
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
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        raise DataError(
            f"cannot write to {folder}",
            got="no permission" if existing.is_dir() else f"{existing} is no folder",
            hint="choose another --out, or change its permissions",
        )


def _umask() -> int:
    # The mask cannot be read without setting it, so two threads must not do it at once.
    with _UMASK:
        mask = os.umask(0o022)
        os.umask(mask)
    return mask


def open_for_update(path: Path) -> BinaryIO:
    """Open a file as it is, or a new one, to read and to write; what is no plain file is refused.

    A link could lead to any file, and whoever writes there would destroy it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    refused = DataError(f"{path.name} is a link or no plain file", got=path, hint="remove it")
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        raise refused if error.errno in (errno.ELOOP, errno.ENXIO) else error from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise refused
    return os.fdopen(descriptor, "r+b")


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Write a whole UTF-8 text file or nothing."""
    with whole_file(path, private=private) as partial:
        partial.write_text(text, encoding="utf-8")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file or nothing."""
    with whole_file(path) as partial:
        partial.write_bytes(content)


def write_json(path: Path, document: Any) -> None:
    """Write a whole JSON file or nothing; keys keep their order."""
    # Streamed: the text of a large document takes more memory than the document.
    with whole_file(path) as partial, partial.open("w", encoding="utf-8", buffering=1 << 16) as stream:
        stream.writelines(_indented(document, "\n"))
        stream.write("\n")


_PLAIN = frozenset({str, int, float, bool, type(None)})
_ROWS = 1000
"""Rows that are encoded together."""


def _number(value: Any) -> Any:
    """What the library cannot write, as it asks for it."""
    plain = plain_number(value)
    if plain is value:
        raise TypeError(f"{type(value).__name__} cannot be written as JSON")
    return plain


_COMPACT: Any = {"ensure_ascii": False, "allow_nan": False, "default": _number}


def _indented(value: Any, line: str) -> Iterator[str]:
    """The text of ``json.dumps(value, indent=2)`` in parts; ``line`` begins a line as far in as the value stands.

    The library indents in Python, value by value. Its fast encoder cannot, but it can be told what stands between the
    values, and that is enough for a list or an object without others inside, such as the row of a table.
    """
    inner = line + "  "
    if not value or not isinstance(value, dict | list | tuple):
        yield json.dumps(value, **_COMPACT)
    elif _is_plain(value):
        text = _encoder(inner)(value)
        yield f"{text[0]}{inner}{text[1:-1]}{line}{text[-1]}"
    elif isinstance(value, dict):
        for number, (key, each) in enumerate(value.items()):
            # The library knows how a key is written that is no text.
            yield ("," if number else "{") + inner + json.dumps({key: None}, **_COMPACT)[1:-5]
            yield from _indented(each, inner)
        yield line + "}"
    elif all(isinstance(each, dict) and each and _is_plain(each) for each in value):
        yield from _indented_rows(value, line)
    else:
        for number, each in enumerate(value):
            yield ("," if number else "[") + inner
            yield from _indented(each, inner)
        yield line + "]"


def _is_plain(value: dict[Any, Any] | Sequence[Any]) -> bool:
    """Whether there are no lists and objects inside."""
    return _PLAIN.issuperset(map(type, value.values() if isinstance(value, dict) else value))


def _indented_rows(rows: Sequence[dict[Any, Any]], line: str) -> Iterator[str]:
    """The same for a list of plain objects, many of them in one call of the encoder."""
    row, cell = line + "  ", line + "    "
    for begin in range(0, len(rows), _ROWS):
        text = _encoder(cell)(rows[begin : begin + _ROWS])
        # In a text a line break is escaped, so that this stands between two objects only.
        text = text[2:-2].replace(f"}},{cell}{{", f"{row}}},{row}{{{cell}")
        yield f"{',' if begin else '['}{row}{{{cell}{text}{row}}}"
    yield line + "]"


@cache
def _encoder(line: str) -> Callable[[Any], str]:
    """Encodes with a new line after each comma."""
    return json.JSONEncoder(separators=(f",{line}", ": "), **_COMPACT).encode


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

    with (
        whole_file(path) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=ARRAYS_LEVEL) as archive,
    ):
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


NO_ARRAYS = (
    *(OSError, ValueError, EOFError, TypeError, SyntaxError, LookupError, ArithmeticError, MemoryError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)
"""What ``arrays_in`` raises over a damaged file."""
_LIST_END = struct.Struct("<4s4H2LH")
"""The end of a ZIP file without a comment; the sixth value says how long the list of its contents is."""
_MOST_LISTED, _MOST_HEAD = 2**20, 2**14
"""Bytes of that list, and of what says the type and shape of an array."""


class _Head(NamedTuple):
    """What stands before the numbers of an array."""

    end: int
    shape: tuple[int, ...]
    in_columns: bool
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Bytes of the numbers."""
        return math.prod(self.shape) * self.dtype.itemsize


def arrays_in(stream: BinaryIO, most: int = 2**40, only: Container[str] | None = None) -> dict[str, NDArray[Any]]:
    """All or some arrays of an NPZ file; refused, before any is unpacked, where they have more than ``most`` bytes."""
    stream.seek(-_LIST_END.size - 20, os.SEEK_END)
    before, end = stream.read(20), _LIST_END.unpack(stream.read())
    if end[0] != b"PK\5\6" or end[5] > _MOST_LISTED or end[7] or before.startswith(b"PK\6\7"):
        raise ValueError("no file of arrays")
    with zipfile.ZipFile(stream) as archive:
        entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        wanted = {name: entry for name, entry in entries.items() if only is None or name in only}
        heads = {name: _array_head(archive, entry) for name, entry in wanted.items()}
        if sum(head.size for head in heads.values()) > most:
            raise ValueError(f"arrays of more than {most} bytes")
        return {name: _array(archive, entry, heads[name]) for name, entry in wanted.items()}


def _array_head(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> _Head:
    from numpy.lib import format as npy

    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("a compression that cannot be unpacked in parts")
    with archive.open(entry) as stream:
        content = io.BytesIO(stream.read(_MOST_HEAD))
    read = npy.read_array_header_1_0 if npy.read_magic(content) == (1, 0) else npy.read_array_header_2_0
    shape, in_columns, dtype = read(content)
    if dtype.hasobject or min(shape, default=0) < 0:
        raise ValueError("no array of numbers or text")
    return _Head(content.tell(), shape, in_columns, dtype)


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, head: _Head) -> NDArray[Any]:
    import numpy as np

    with archive.open(entry) as stream:
        stream.read(head.end)
        values = np.frombuffer(bytearray(stream.read(head.size)), dtype=head.dtype)
        # At the end the checksum is compared.
        if stream.read(1):
            raise ValueError("more than an array")
    return values.reshape(head.shape, order="F" if head.in_columns else "C")


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def remove_partials(folder: Path) -> int:
    """Delete what a killed run left in ``folder``; returns the number of files."""
    leftovers = [leftover for leftover in folder.glob(f"{PARTIAL}*") if not _is_being_written(leftover)]
    for leftover in leftovers:
        leftover.unlink(missing_ok=True)
    return len(leftovers)


def _is_being_written(partial: Path) -> bool:
    try:
        with partial.open("rb+") as stream:  # over NFS only a file open for writing can be locked
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # gone by now, or on a file system without locks
        pass
    return False


def guarded(text: str) -> str:
    """A cell for ``text``: with an apostrophe before what a spreadsheet would compute; ``original`` removes it.

    A text that begins with apostrophes and then such a formula gets one more, too.

    >>> [guarded(text) for text in ("=1+1", "-1.5", "++", "BCC", "'=1+1", "'tis")]
    ["'=1+1", '-1.5', '++', 'BCC', "''=1+1", "'tis"]
    """
    # Nearly all cells begin with something else, and a table may have millions.
    return f"'{text}" if text[:1] in _SUSPECT and _computes(text.lstrip("'")) else text


def original(cell: str) -> str:
    """The text that ``guarded`` made ``cell`` of.

    >>> [original(cell) for cell in ("'=1+1", "-1.5", "''=1+1", "'tis")]
    ['=1+1', '-1.5', "'=1+1", "'tis"]
    """
    return cell[1:] if cell[:1] == "'" and _computes(cell.lstrip("'")) else cell


def _computes(text: str) -> bool:
    return text != "" and text[0] in _FORMULA and _HARMLESS.fullmatch(text) is None


class _Lines:
    """Ends every row with a line feed alone.

    The csv writer quotes cells with characters of its line end: it must have both, or a carriage return in a cell
    would end the row.
    """

    def __init__(self, stream: SupportsWrite[str]) -> None:
        self.stream = stream

    def write(self, line: str, /) -> object:
        return self.stream.write(line.removesuffix("\r\n") + "\n")


def write_rows(stream: SupportsWrite[str], rows: Iterable[Iterable[object]]) -> None:
    """Write rows, the header first. Texts are guarded; numbers stay as they are, and None is an empty cell."""
    writer = csv.writer(_Lines(stream), lineterminator="\r\n")
    writer.writerows([guarded(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)


def write_columns(stream: SupportsWrite[str], columns: Sequence[Sequence[str]]) -> None:
    """Write rows that are given as the texts of each column, guarded: quicker where there are many."""
    guarded_columns = [*map(_guarded_texts, columns)]
    rows = zip(*guarded_columns, strict=True)
    if len(columns) > 1 and not any(map(_needs_quotes, guarded_columns)):
        stream.write("".join([f"{','.join(row)}\n" for row in rows]))
    else:
        csv.writer(_Lines(stream), lineterminator="\r\n").writerows(rows)


def _needs_quotes(texts: Sequence[str]) -> bool:
    """Whether the csv writer would put any of them in quotes."""
    together = "".join(texts)
    return any(special in together for special in ',"\r\n')


def _guarded_texts(texts: Sequence[str]) -> Sequence[str]:
    # Whole columns begin with nothing that could be a formula.
    return texts if _SUSPECT.isdisjoint([text[:1] for text in texts]) else [guarded(text) for text in texts]


def rows_text(rows: Iterable[Iterable[object]]) -> str:
    r"""Rows as ``write_rows`` writes them.

    >>> rows_text([("slide", "grade", "shift"), ("a", "@home", -2)])
    "slide,grade,shift\na,'@home,-2\n"
    """
    stream = io.StringIO()
    write_rows(stream, rows)
    return stream.getvalue()


def read_rows(stream: Iterable[str], *, strip: bool = False) -> Iterator[list[str]]:
    """Rows, the header first, without blank lines; ``strip`` removes the blanks around a cell.

    The stream must have been opened with ``newline=""``.
    """
    for row in csv.reader(stream):
        cells = [cell.strip() for cell in row] if strip else row
        if cells:
            yield [original(cell) if cell[:1] == "'" else cell for cell in cells]


def by_column(columns: Sequence[str], row: Iterable[str]) -> dict[str, str]:
    """The cells of a row by column; cells that are missing at its end are empty.

    >>> by_column(["name", "split"], ["a"])
    {'name': 'a', 'split': ''}
    """
    return dict(zip(columns, chain(row, repeat("")), strict=False))
