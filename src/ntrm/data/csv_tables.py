"""The small CSV tables that come with a dataset, read row by row with every fault named."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from ntrm.core.csv_text import read_table
from ntrm.core.errors import PATIENT, DataError, NtrmError
from ntrm.core.mpp import Resolution
from ntrm.data.dataset import SPLITS, Case
from ntrm.data.faults import Fault, fault

GOOD_NAME = re.compile(r"""\w[^/\\:;*?"<>|]*""")
"""Names that every file system can hold, and that no spreadsheet takes for a formula."""
LONGEST = 200  # Bytes of a name: a suffix must fit behind it
SHA256 = re.compile(r"[0-9a-f]{64}")


def is_good_name(name: str) -> bool:
    """Whether a name has no odd characters.

    >>> [is_good_name(name) for name in ("BCC_1", "Größe 2 (a)", "-rf", ".hidden", "../up", "ends.")]
    [True, True, False, False, False, False]
    """
    good = name.isprintable() and GOOD_NAME.fullmatch(name) is not None and not name.endswith((".", " "))
    return good and len(name.encode()) <= LONGEST


def one_spelling(name: str) -> str:
    """A name with each letter with a mark as one character: some systems store it as two, and tables have either."""
    return unicodedata.normalize("NFC", name)


def nearly(columns: Iterable[str], known: Collection[str]) -> dict[str, str]:
    """Columns that are almost a known one that is missing, and which; ``group`` is almost ``patient``.

    They must not be passed over: without its patients, a table lets slides leak between splits.

    >>> nearly(["slide", "patient_id", "Split"], ["patient", "split"])
    {'patient_id': 'patient', 'Split': 'split'}
    """
    columns = tuple(columns)
    meant = {**dict.fromkeys((*PATIENT, "group"), "patient"), **{column: column for column in known}}
    almost = {column: meant[column.lower()] for column in columns if column.lower() in meant and column not in known}
    return {column: name for column, name in almost.items() if name in known and name not in columns}


def read_cases(path: Path, *, mpp_needed: bool) -> tuple[dict[str, Case], list[Fault]]:
    """Rows of ``cases.csv`` by name, as cases without files, and what is wrong with them.

    Columns name, group, split; mpp where it is needed; optionally mpp_y, cancer and slide_sha256. An empty split means
    not split yet.
    """
    table = read_table(path, ("name", "group", "split"))
    rows: dict[str, Case] = {}
    faults: list[Fault] = []
    if mpp_needed and table and "mpp" not in table[0]:
        faults.append(fault("no-mpp", path.name, f"no column mpp among {', '.join(table[0])}"))
        mpp_needed = False
    for line, cells in enumerate(table, start=2):
        name = cells["name"] = one_spelling(cells["name"])
        where = f"row {line} ({name})"
        slide = cells.get("slide_sha256", "").lower()
        for found, present in {
            "no name": not name,
            "a second row for this name": name in rows,
            "no group (patient)": not cells["group"],
            "slide_sha256 is no SHA-256": slide and not SHA256.fullmatch(slide),
            f"unknown split {cells['split']!r}, not one of {', '.join(SPLITS)}": cells["split"] not in {*SPLITS, ""},
        }.items():
            faults += [fault("bad-cases", path.name, f"{where}: {found}")] if present else []
        resolution = None
        if mpp_needed or cells.get("mpp"):
            try:
                resolution = Resolution(number(cells["mpp"]), number(cells.get("mpp_y") or cells["mpp"]))
            except NtrmError as error:
                faults.append(fault("no-mpp", path.name, f"{where}: {error.got}"))
        split = cells["split"] if cells["split"] in SPLITS else None
        case = Case(name, None, None, cells["group"] or name, split, resolution, cancer=cells.get("cancer", ""))
        rows.setdefault(name, replace(case, slide_sha256=slide if SHA256.fullmatch(slide) else ""))
    members: dict[str, dict[str, str]] = defaultdict(dict)
    for row in rows.values():
        if row.split is not None:
            members[row.group].setdefault(row.split, row.name)
    for group, splits in members.items():
        if len(splits) > 1:
            found = ", ".join(f"{name} in {split}" for split, name in splits.items())
            faults.append(fault("patient-split", path.name, f"{group}: {found}"))
    return rows, faults


def fault_of(error: NtrmError, code: str, file: str) -> Fault:
    """The fault that an error about a table amounts to."""
    found = error.what if error.got is None else f"{error.what}: {error.got}"
    return fault(code, file, found, expected=str(error.expected or ""), hint=error.hint)


def number(text: str) -> float:
    """Finite number from a cell.

    >>> number("0.5")
    0.5
    """
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError("not a number", got=repr(text) if text else "an empty cell", expected="a number such as 0.5")
    return value
