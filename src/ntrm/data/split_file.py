"""A split as a file, one row per section: its one reader and writer, for ``ntrm data split`` and for ``--splits``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ntrm.core.csv_text import read_table, rows_text
from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError, some
from ntrm.core.io import write_text
from ntrm.data.csv_tables import one_spelling
from ntrm.data.dataset import SPLITS, Dataset

COLUMNS = ("name", "group", "split", "cancer")


@dataclass(frozen=True)
class SplitRow:
    """One section and where it belongs."""

    name: str
    group: str
    split: str
    cancer: str = ""


@dataclass(frozen=True)
class Split:
    """A full assignment of sections to splits, sorted by name; made only if no patient is in two splits."""

    rows: tuple[SplitRow, ...]
    kept: int = field(default=0, compare=False)
    """How many sections had their split before, or got it through their patient."""

    def __post_init__(self) -> None:
        strange = [f"{row.name}: {row.split!r}" for row in self.rows if row.split not in SPLITS]
        if strange:
            raise DataError("unknown split", got=some(strange), expected=f"one of {', '.join(SPLITS)}")
        twice = [name for name, number in Counter(row.name for row in self.rows).items() if number > 1]
        if twice:
            raise DataError("sections listed twice", got=some(twice), hint="keep one row per section")
        split_by_patient(self.rows)

    @property
    def by_name(self) -> dict[str, str]:
        """Split of every section."""
        return {row.name: row.split for row in self.rows}

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Sections per split and cancer type; every split and every type is listed."""
        cells = Counter((row.split, row.cancer) for row in self.rows)
        cancers = sorted({row.cancer for row in self.rows})
        return {split: {cancer: cells[split, cancer] for cancer in cancers} for split in SPLITS}

    def as_dict(self) -> dict[str, Any]:
        """Counts and assignments as a JSON document."""
        patients = {split: len({row.group for row in self.rows if row.split == split}) for split in SPLITS}
        return {
            "sections": {split: sum(cells.values()) for split, cells in self.counts.items()},
            "patients": patients,
            "cancers": self.counts,
            "kept": self.kept,
            "split": self.by_name,
        }

    def apply(self, dataset: Dataset) -> Dataset:
        """The dataset with this split; its sections must all be listed here, and its patients not be torn apart."""
        split = self.by_name
        missing = sorted({case.name for case in dataset if case.name not in split})
        if missing:
            raise RefusedError(
                "the split does not list every section",
                got=f"nothing about {some(missing)}",
                hint="make the split again; sections that have one keep it",
            )
        # The dataset's idea of a patient counts as well as the file's.
        split_by_patient(SplitRow(case.name, case.group, split[case.name]) for case in dataset)
        return replace(dataset, cases=tuple(replace(case, split=split[case.name]) for case in dataset))

    def write(self, path: Path) -> None:
        """Write the CSV with columns name, group, split, cancer."""
        write_text(path, rows_text([COLUMNS, *((row.name, row.group, row.split, row.cancer) for row in self.rows)]))


def read_split(path: Path) -> Split:
    """Read what ``Split.write`` wrote; the columns group and cancer may be missing or empty."""
    if not path.exists():
        raise UsageError("no such split file", got=path, expected="a file that `ntrm data split --out` wrote")
    rows = (
        SplitRow(name := one_spelling(row["name"]), row.get("group") or name, row["split"], row.get("cancer", ""))
        for row in read_table(path, ("name", "split"))
    )
    try:
        return Split(tuple(sorted(rows, key=lambda row: row.name)))
    except NtrmError as error:
        raise error.prefixed(path.name) from error


def split_by_patient(rows: Iterable[SplitRow]) -> dict[str, str]:
    """Split of every patient; refuses one that is in two."""
    first: dict[str, SplitRow] = {}
    for row in rows:
        known = first.setdefault(row.group, row)
        if known.split != row.split:
            raise contradiction(f"patient {row.group}", f"{known.name} in {known.split}", f"{row.name} in {row.split}")
    return {patient: row.split for patient, row in first.items()}


def contradiction(who: str, one: str, other: str) -> RefusedError:
    """Error about a section or a patient in two splits."""
    return RefusedError(
        f"{who} is in two splits",
        got=f"{one} and {other}",
        expected="one split; otherwise the test would include training data",
        hint="correct the column split of cases.csv (empty: assigned anew), the split file or the table of slides",
    )
