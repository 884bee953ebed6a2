"""CSV text that a spreadsheet takes for text: no cell runs as a formula, and every cell reads back as it was."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Protocol

_STARTS = "=+-@\t\r\n＝＋－＠"
"""What makes a spreadsheet compute a cell; some systems take the wide forms for the narrow ones."""

_HARMLESS = re.compile(r"[+-]?[0-9.,]+([eE][+-]?[0-9]+)?|[+-]+")
"""Numbers, and grades such as ``++``: there is nothing in them to compute."""


class _Writable(Protocol):
    def write(self, text: str, /) -> object: ...


def guarded(text: str) -> str:
    """A cell for ``text``: with an apostrophe before what a spreadsheet would compute.

    An apostrophe goes before apostrophes, too, that stand before such a text: ``original`` takes exactly one away.

    >>> [guarded(text) for text in ("=1+1", "-1.5", "++", "BCC", "'=1+1", "'tis")]
    ["'=1+1", '-1.5', '++', 'BCC', "''=1+1", "'tis"]
    """
    return f"'{text}" if _computes(text.lstrip("'")) else text


def original(cell: str) -> str:
    """The text that ``guarded`` made ``cell`` of.

    >>> [original(cell) for cell in ("'=1+1", "-1.5", "''=1+1", "'tis")]
    ['=1+1', '-1.5', "'=1+1", "'tis"]
    """
    return cell[1:] if cell[:1] == "'" and _computes(cell.lstrip("'")) else cell


def _computes(text: str) -> bool:
    return text != "" and text[0] in _STARTS and _HARMLESS.fullmatch(text) is None


class _Lines:
    """Ends every row with a line feed alone.

    The writer quotes what occurs in its own line ends: it is given both characters, or a carriage return in a cell
    would end the row there.
    """

    def __init__(self, stream: _Writable) -> None:
        self.stream = stream

    def write(self, line: str, /) -> object:
        return self.stream.write(line.removesuffix("\r\n") + "\n")


def write_rows(stream: _Writable, rows: Iterable[Iterable[object]]) -> None:
    """Write rows, the header first. Texts are guarded; numbers stay as they are, and None is an empty cell."""
    writer = csv.writer(_Lines(stream), lineterminator="\r\n")
    writer.writerows([guarded(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)


def rows_text(rows: Iterable[Iterable[object]]) -> str:
    r"""Rows as ``write_rows`` writes them.

    >>> rows_text([("slide", "grade", "shift"), ("a", "@home", -2)])
    "slide,grade,shift\na,'@home,-2\n"
    """
    stream = io.StringIO()
    write_rows(stream, rows)
    return stream.getvalue()


def read_rows(stream: Iterable[str], *, strip: bool = False) -> Iterator[list[str]]:
    """Rows, the header first and blank lines left out; ``strip`` takes away the blanks around a cell.

    The stream must have been opened with ``newline=""``.
    """
    for row in csv.reader(stream):
        if row:
            yield [original(cell.strip() if strip else cell) for cell in row]


def by_column(columns: Sequence[str], row: Iterable[str]) -> dict[str, str]:
    """The cells of a row by their column; those that are missing at its end are empty.

    >>> by_column(["name", "split"], ["a"])
    {'name': 'a', 'split': ''}
    """
    return dict(zip(columns, chain(row, repeat("")), strict=False))
