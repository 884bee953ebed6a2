"""Pathologists' own measurements, which may come with a dataset as ``measurements.csv``.

Columns: ``name`` (a section of the dataset), ``clearance_um`` (tumour to margin) and ``depth_um`` (of invasion),
both in µm, of which one may be empty; optionally ``reader`` (who measured) and ``note``. A section may have
one row per reader.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ntrm.data.faults import Fault, fault
from ntrm.data.survey import MEASUREMENTS, survey_dataset
from ntrm.data.tables import fault_of, number, read_table
from ntrm.errors import DataError

COLUMNS = ("name", "clearance_um", "depth_um")


@dataclass(frozen=True)
class Measurement:
    """What one reader measured on one section; None where it was not assessed."""

    clearance_um: float | None
    depth_um: float | None
    reader: str = ""
    note: str = ""


Measurements = dict[str, tuple[Measurement, ...]]


def read_measurements(root: Path, *, names: Collection[str] | None = None) -> Measurements:
    """Measurements by section name; empty where the dataset brings none.

    ``names`` are the sections of the dataset, looked up where they are not given.
    """
    root = Path(root)
    if not (root / MEASUREMENTS).exists():
        return {}
    known = {case.name for case in survey_dataset(root).cases} if names is None else names
    measurements, faults = check_measurements(root, known)
    if faults:
        first = faults[0]
        raise DataError(
            f"{root / MEASUREMENTS} cannot be used ({len(faults)} faults)",
            got=first.found,
            expected=first.expected,
            mend=f"run `ntrm data check {root}` for all faults and how to mend them",
        )
    return measurements


def check_measurements(root: Path, names: Collection[str]) -> tuple[Measurements, list[Fault]]:
    """The sound rows, and every fault of the others."""
    path = root / MEASUREMENTS
    if not path.exists():
        return {}, []
    try:
        table = read_table(path, COLUMNS)
    except DataError as error:
        return {}, [fault_of(error, "bad-measurements", path.name)]
    sound: dict[str, list[Measurement]] = defaultdict(list)
    faults = []
    for line, cells in enumerate(table, start=2):
        try:
            measurement = _measurement(cells, names, sound[cells["name"]])
        except DataError as error:
            found = f"row {line} ({cells['name']}): {error.what}: {error.got}"
            faults.append(fault("bad-measurements", path.name, found, expected=str(error.expected or "")))
        else:
            sound[cells["name"]].append(measurement)
    return {name: tuple(rows) for name, rows in sound.items() if rows}, faults


def _measurement(cells: dict[str, str], names: Collection[str], others: list[Measurement]) -> Measurement:
    if cells["name"] not in names:
        raise DataError("unknown section", got=repr(cells["name"]), expected="a section of the dataset")
    reader = cells.get("reader", "")
    if any(other.reader == reader for other in others):
        raise DataError("a second row of one reader", got=repr(reader), expected="one row per section and reader")
    clearance, depth = (_micrometres(column, cells[column]) for column in COLUMNS[1:])
    if clearance is None and depth is None:
        raise DataError("nothing measured", got="two empty cells", expected="clearance_um or depth_um")
    return Measurement(clearance, depth, reader, cells.get("note", ""))


def _micrometres(column: str, cell: str) -> float | None:
    if not cell:
        return None
    value = number(cell)
    if value < 0:
        raise DataError(f"negative {column}", got=cell, expected="0 or more µm")
    return value
