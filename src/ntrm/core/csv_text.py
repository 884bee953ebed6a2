"""Tables as CSV: text that no spreadsheet runs as a formula, and files read row by row."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO

from ntrm.core.errors import DataError, columns_hint

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_FORMULA = "=+-@\t\r\n＝＋－＠"
"""First characters that make a spreadsheet compute a cell; some systems take the wide forms for the narrow ones."""
_SUSPECT = frozenset((*_FORMULA, "'"))  # A cell that begins otherwise is what it says
_HARMLESS = re.compile(r"[+-]?[0-9.,]+([eE][+-]?[0-9]+)?|[+-]+")
"""Numbers, and grades such as ``++``, in which there is nothing to compute."""

Open = Callable[[Path], BinaryIO]


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


def write_rows(stream: SupportsWrite[str], rows: Iterable[Iterable[object]]) -> None:
    """Write rows, the header first. Texts are guarded; numbers stay as they are, and None is an empty cell."""
    # Cells with characters of its line end are quoted: a carriage return in a cell must not end the row.
    to_line: Any = csv.writer(SimpleNamespace(write=str), lineterminator="\r\n").writerow
    for row in rows:
        line = to_line([guarded(cell) if isinstance(cell, str) else cell for cell in row])
        stream.write(line.removesuffix("\r\n") + "\n")


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


def read_table(path: Path, needed: tuple[str, ...]) -> list[dict[str, str]]:
    """Rows of a CSV file with a header, cells stripped; raises where a needed column is missing."""
    return read_columns(path, needed)[1]


def read_columns(
    path: Path, needed: tuple[str, ...], *, strip: bool = True, open_file: Open | None = None
) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    """The names of the columns, and the rows by them."""
    columns, *rows = stream_rows(path, needed, strip=strip, open_file=open_file)
    return tuple(columns), [dict(zip(columns, row, strict=True)) for row in rows]


def stream_rows(
    path: Path, needed: Sequence[str], *, strip: bool = False, hint: str | None = None, open_file: Open | None = None
) -> Iterator[list[str]]:
    """The names of the columns, then row after row of as many cells: those that are missing at its end are empty.

    ``hint`` says what to do where our own tables are damaged.
    """
    try:
        binary = open_file(path) if open_file else path.open("rb")
        with io.TextIOWrapper(binary, encoding="utf-8-sig", newline="") as stream:
            rows = read_rows(stream, strip=strip)
            columns = next(rows, [])
            if not set(needed) <= set(columns) or "" in columns or len(set(columns)) < len(columns):
                raise DataError(
                    f"{path.name} has the wrong columns",
                    got=", ".join(columns) or "an empty file",
                    expected=f"columns {','.join(needed)}, each once, none without a name",
                    hint=hint or columns_hint(columns, needed),
                )
            yield columns
            for line, row in enumerate(rows, start=2):
                if any(row[len(columns) :]):
                    what = f"{path.name} has a row with too many cells"
                    raise DataError(what, got=f"row {line}", hint=hint or "quote cells with commas")
                yield [*row[: len(columns)], *[""] * (len(columns) - len(row))]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read {path.name}", got=error, hint=hint or "save it as CSV in UTF-8") from error
