"""Ways to damage a document: its bytes, the values of a JSON or YAML document, the cells of a table."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np

Random = np.random.Generator

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 10**30, 10**400, 0.5, -0.0, 1e-320, 1e308),
    *(float("nan"), float("inf"), float("-inf")),
    *("", " ", "\0", "nan", "1e999", "../../etc/passwd", "a" * 5000, "\ud800", "é\u202e", "=1+1", "<b>"),
    *([], {}, [[]], [None], {"": None}, [1, 2, 3], {"a": {"b": [1]}}),
)
ODD_CELLS = (
    *("", " ", "nan", "inf", "-1", "0", "1e999", "1" * 400, "0x10", "1,5", "1_000", "½", "²", "٣"),
    *("\0", '"', '""', "'", "../x", "/", "a" * 200_000, "é", "\ufeff", "=1+1", "None", "true", "\n", "\r", "\u2028"),
)
ODD_BYTES = (
    *(b"\xff\xfe", b"\x00", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xff" * 64, b"&a "),
    *(b"[" * 100_000, b'{"a":' * 50_000),
)


def _place(data: bytearray, random: Random) -> int:
    return int(random.integers(0, len(data) + 1))


def cut(data: bytearray, random: Random) -> bytearray:
    return data[: _place(data, random)]


def flip(data: bytearray, random: Random) -> bytearray:
    for place in random.integers(0, max(len(data), 1), int(random.integers(1, 33))):
        if data:
            data[place] ^= 1 << int(random.integers(0, 8))
    return data


def hole(data: bytearray, random: Random) -> bytearray:
    start = _place(data, random)
    stop = min(len(data), start + int(random.integers(1, 300)))
    data[start:stop] = bytes(stop - start)
    return data


def moved(data: bytearray, random: Random) -> bytearray:
    start = _place(data, random)
    del data[start : start + int(random.integers(1, 60))]
    return data


def doubled(data: bytearray, random: Random) -> bytearray:
    start = _place(data, random)
    part = data[start : start + int(random.integers(1, 300))]
    data[start:start] = part * int(random.integers(1, 40))
    return data


def inserted(data: bytearray, random: Random) -> bytearray:
    start = _place(data, random)
    data[start:start] = ODD_BYTES[int(random.integers(0, len(ODD_BYTES)))]
    return data


def replaced(data: bytearray, random: Random) -> bytearray:
    """Nothing, or something else altogether."""
    other = (b"", b"null", b"[]", b"{}", b"0", b'""', b"a,b\n", bytes(1000), random.bytes(2000), gzip.compress(b"[]"))
    return bytearray(other[int(random.integers(0, len(other)))])


def numbers(data: bytearray, random: Random) -> bytearray:
    """Numbers of a text become others."""
    text = bytes(data)
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?", text))
    if not found:
        return flip(data, random)
    match = found[int(random.integers(0, len(found)))]
    odd = (b"-1", b"0", b"1e999", b"NaN", b"Infinity", b"9" * 5000, b"1e-999", b"2147483648", b"0.1.2", b"-", b"1e5")
    return bytearray(text[: match.start()] + odd[int(random.integers(0, len(odd)))] + text[match.end() :])


def values(data: bytearray, random: Random) -> bytearray:
    """One value of a JSON document becomes another, is lost, or is there under another name."""
    document = json.loads(bytes(data))
    for _ in range(int(random.integers(1, 3))):
        holder, key = _choose(document, random)
        how = int(random.integers(0, 10))
        if holder is None:
            document = ODD_VALUES[int(random.integers(0, len(ODD_VALUES)))]
            break
        if how == 0:
            del holder[key]
        elif how == 1 and isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        elif how == 2 and isinstance(holder, list):
            holder.extend(holder[: int(random.integers(1, 5))])
        else:
            holder[key] = ODD_VALUES[int(random.integers(0, len(ODD_VALUES)))]
    return bytearray(json.dumps(document, ensure_ascii=bool(random.integers(0, 2))).encode("utf-8", "surrogatepass"))


def _choose(document: Any, random: Random) -> tuple[Any, Any]:
    """A place somewhere in a document: what holds it, and its key."""
    holder, key, here = None, None, document
    while isinstance(here, dict | list) and here and (holder is None or random.random() < 0.75):
        keys = list(here) if isinstance(here, dict) else range(len(here))
        holder, key = here, keys[int(random.integers(0, len(keys)))]
        here = here[key]
    return holder, key


def cells(data: bytearray, random: Random) -> bytearray:
    """A table with other cells, rows or columns."""
    rows = list(csv.reader(io.StringIO(bytes(data).decode())))
    for _ in range(int(random.integers(1, 4))):
        row = rows[int(random.integers(0, len(rows)))]
        how = int(random.integers(0, 8))
        column = int(random.integers(0, max(len(row), 1)))
        if how == 0:
            del row[column : column + 1]
        elif how == 1:
            row.insert(column, "further")
        elif how == 2:
            rows.append(list(row))
        elif how == 3 and len(rows) > 1:
            rows.remove(row)
        elif row:
            row[column] = ODD_CELLS[int(random.integers(0, len(ODD_CELLS)))]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n" if random.random() < 0.8 else "\r", quoting=csv.QUOTE_MINIMAL)
    writer.writerows(rows)
    return bytearray(text.getvalue().encode("utf-8", "surrogatepass"))


Damage = Callable[[bytearray, Random], bytearray]
OF_BYTES: dict[str, Damage] = {
    each.__name__: each for each in (cut, flip, hole, moved, doubled, inserted, replaced, numbers)
}
OF_KIND: dict[str, dict[str, Damage]] = {
    "json": {**OF_BYTES, "values": values, "values again": values, "further values": values, "other values": values},
    "csv": {**OF_BYTES, "cells": cells, "cells again": cells, "further cells": cells},
    "text": {**OF_BYTES, "numbers again": numbers},
    "bytes": OF_BYTES,
}
