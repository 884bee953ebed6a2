"""Training, validation and test splits in which no patient is in two, and the datasets of a split."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ntrm.core.csv_text import read_table, rows_text
from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError, first_names
from ntrm.core.io import sha256_of, write_text
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import TOLERANCE, Resolution
from ntrm.core.wording import counted
from ntrm.data.csv_tables import one_spelling
from ntrm.data.dataset import SPLITS, Case, Dataset, check_outside, resampling
from ntrm.data.layouts import open_dataset, survey_dataset

FRACTIONS = (0.70, 0.15, 0.15)  # Fractions of the sections in training, validation and test

_ALL = "all sections"
"""Stratum that every section belongs to besides its cancer type, so that the dataset hits the fractions as well."""


class SplitRow(NamedTuple):
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
            raise DataError("unknown split", got=first_names(strange), expected=f"one of {', '.join(SPLITS)}")
        twice = [name for name, number in Counter(row.name for row in self.rows).items() if number > 1]
        if twice:
            raise DataError("sections listed twice", got=first_names(twice), hint="keep one row per section")
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
            what, hint = "the split does not list every section", "make it again; sections that have one keep it"
            raise RefusedError(what, got=f"nothing about {first_names(missing)}", hint=hint)
        # The dataset's idea of a patient counts as well as the file's.
        split_by_patient(SplitRow(case.name, case.group, split[case.name]) for case in dataset)
        return replace(dataset, cases=tuple(replace(case, split=split[case.name]) for case in dataset))

    def write(self, path: Path) -> None:
        """Write the CSV with columns name, group, split, cancer."""
        write_text(path, rows_text([SplitRow._fields, *self.rows]))


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


def write_split(
    root: Path, out: Path, *, fractions: Sequence[float] = FRACTIONS, seed: int = 0, anew: bool = False
) -> Split:
    """Split the dataset in ``root`` and write ``out``; if that file is there already, what it says is kept.

    ``anew`` leaves the splits of the dataset aside, and refuses to write over a file.
    """
    check_outside(out, root)
    if anew and out.exists():
        hint = "choose another --out, or split without --anew to add sections to this one"
        raise RefusedError("a split that is in use would be overwritten", got=out, hint=hint)
    existing, dataset = read_split(out) if out.exists() else None, open_dataset(root)
    if anew:
        dataset = replace(dataset, cases=tuple(replace(case, split=None) for case in dataset))
    split = make_split(dataset, fractions=fractions, seed=seed, existing=existing)
    split.write(out)
    return split


def parse_fractions(text: str) -> tuple[float, ...]:
    """Fractions from a comma-separated list of percentages or fractions.

    >>> parse_fractions("70,15,15"), parse_fractions("0.8, 0.2, 0")
    ((0.7, 0.15, 0.15), (0.8, 0.2, 0.0))
    """
    try:
        numbers = tuple(map(float, text.split(",")))
    except ValueError:
        raise UsageError("fractions are not numbers", got=repr(text), expected="for example 70,15,15") from None
    return tuple(number / 100 for number in numbers) if sum(numbers) > 2 else numbers


def make_split(
    dataset: Dataset, *, fractions: Sequence[float] = FRACTIONS, seed: int = 0, existing: Split | None = None
) -> Split:
    """Assign every section to a split: patient-disjoint, stratified by cancer type, the same for the same seed.

    A section that has a split (in the dataset or in ``existing``) keeps it and takes its patient's other
    sections along; what ``existing`` lists beyond the dataset stays listed. The other patients are placed
    one after the other, those with most sections first and in a seeded order otherwise, each where it
    disturbs the wished counts least. Order of the cases, platform and library versions do not matter.
    """
    plausible = len(fractions) == len(SPLITS) and all(math.isfinite(f) and f >= 0 for f in fractions)
    if not plausible or not math.isclose(sum(fractions), 1, abs_tol=1e-6) or fractions[0] == 0:
        expected = f"three numbers for {', '.join(SPLITS)} that sum to 100 (%) or to 1, the first above 0"
        raise UsageError("impossible fractions", got=", ".join(f"{each:g}" for each in fractions), expected=expected)
    rows = _sections(dataset, existing)
    fixed = split_by_patient(row for row in rows if row.split)
    balance = _Balance(rows, dict(zip(SPLITS, fractions, strict=True)))
    for patient, split in fixed.items():
        balance.put(patient, split)
    free = {row.group for row in rows} - fixed.keys()
    # Where nothing is left to draw, the splits are as they were wished.
    if free and len(balance.strata) < len(balance.offered):
        raise RefusedError(
            "too few patients for a split in which no patient is in two splits",
            got=f"{len(balance.strata)} patients",
            expected=f"at least {len(balance.offered)} for {', '.join(balance.offered)}",
            hint="add patients, or leave a part empty with `ntrm data split --fractions 50,50,0`",
        )

    def first(patient: str) -> tuple[int, str]:
        return -balance.strata[patient][_ALL], hashlib.sha256(f"{seed}/{patient}".encode()).hexdigest()

    order = sorted(free, key=first)
    for left, patient in zip(range(len(order), 0, -1), order, strict=True):
        balance.put(patient, balance.best(patient, left))
    return Split(
        tuple(row._replace(split=balance.chosen[row.group]) for row in rows),
        kept=sum(row.group in fixed for row in rows),
    )


class _Balance:
    """Sections so far and sections wished, per split and stratum; the strata are the cancer types and all sections."""

    def __init__(self, rows: Sequence[SplitRow], fractions: dict[str, float]) -> None:
        self.chosen: dict[str, str] = {}
        self.strata: dict[str, Counter[str]] = {}
        for row in rows:
            self.strata.setdefault(row.group, Counter()).update([_ALL, f"cancer {row.cancer}"])
        self.offered = [split for split in SPLITS if fractions[split] > 0]
        total = sum(self.strata.values(), Counter[str]())
        self.wished = {(split, stratum): fractions[split] * total[stratum] for split in SPLITS for stratum in total}
        self.placed: Counter[tuple[str, str]] = Counter()

    def put(self, patient: str, split: str) -> None:
        """Give the patient's sections to ``split``."""
        self.chosen[patient] = split
        self.placed.update({(split, stratum): number for stratum, number in self.strata[patient].items()})

    def best(self, patient: str, left: int) -> str:
        """Where the patient fits best, with ``left`` patients still to place; the last ones fill empty splits."""

        def growth(split: str) -> float:
            """Growth of Σ (placed − wished)² / wished over the patient's strata, less what is equal for all splits."""
            return sum(
                number * (2 * self.placed[split, stratum] + number) / self.wished[split, stratum]
                for stratum, number in self.strata[patient].items()
            )

        empty = [split for split in self.offered if not self.placed[split, _ALL]]
        return min(empty if left <= len(empty) else self.offered, key=growth)


def _sections(dataset: Dataset, existing: Split | None) -> list[SplitRow]:
    """One row per section, sorted by name, with its split where it has one."""
    listed = {row.name: row for row in existing.rows} if existing else {}
    rows: dict[str, SplitRow] = {}
    for case in dataset:
        before = listed[case.name].split if case.name in listed else ""
        if case.split and before and case.split != before:
            raise contradiction(f"section {case.name}", case.split, before)
        row = SplitRow(case.name, case.group, case.split or before, case.cancer)
        if rows.setdefault(case.name, row) != row:
            raise RefusedError(
                f"the resolutions of section {case.name} disagree",
                got=f"{rows[case.name]} and {row}",
                hint="give it one group, split and cancer type in cases.csv",
            )
    return sorted((listed | rows).values(), key=lambda row: row.name)


@dataclass(frozen=True)
class DatasetSplits:
    """A dataset at one resolution, divided so that no patient is in two splits."""

    dataset: Dataset
    resolution: Resolution  # The same for every section; its pixels are square

    def __getitem__(self, split: str) -> Dataset:
        """Sections of ``train``, ``val`` or ``test``."""
        return self.dataset.in_split(split)

    @property
    def schema(self) -> LabelSchema:
        """Classes of the masks."""
        return self.dataset.schema

    def fingerprint(self, split: str | None = None) -> str:
        """Short hash over classes and their colours, names, splits and the bytes of files, of one split or of all.

        It does not depend on where the dataset lies.
        """
        # Masks in RGB are read by these colours: with others they are other labels.
        digest = hashlib.sha256(self.schema.fingerprint.encode() + self.schema.palette.tobytes())
        for case in sorted(self.dataset if split is None else self[split], key=lambda case: case.name):
            files = [sha256_of(path) for path in (case.image, case.mask) if path is not None]
            digest.update("|".join([case.name, str(case.split), str(case.resolution), *files]).encode())
        return digest.hexdigest()[:16]


def section_hashes(case: Case) -> set[str]:
    """Short hashes by which a model remembers a section that it was trained on, whatever its name and place.

    The slide that it was cut from has one, too: other cuts of it are other images of the same tissue.
    """
    image = "" if case.image is None else sha256_of(case.image)
    return {sha256[:8] for sha256 in (image, case.slide_sha256) if sha256}


def trained_on(hashes: Collection[str], sections: Dataset) -> str:
    """Which of the sections a model that remembers ``hashes`` was trained on, as under other splits; "" if none."""
    known = set(hashes)
    seen = [case.name for case in sections if known and not known.isdisjoint(section_hashes(case))]
    of_all = f"{len(seen)} of {counted(len(sections), 'section')}"
    return f"the model was trained on {of_all} ({first_names(seen)})" if seen else ""


def open_splits(root: str | Path, *, resolution: str | None = None, splits: str | Path | None = None) -> DatasetSplits:
    """Open a dataset at one resolution (``10x``) and divide it.

    The file ``splits`` (what ``ntrm data split`` writes) decides; without it the dataset's own splits do, and
    sections that have none get the split that ``ntrm data split`` would give them: the same everywhere.
    """
    dataset = open_dataset(Path(root), resolution=resolution, splits=splits)
    if len(dataset.levels) > 1:
        expected, hint = f"one of {', '.join(dataset.levels)}", "choose one with --resolution"
        raise UsageError(f"{root} has several resolutions", got="none chosen", expected=expected, hint=hint)
    if any(case.split is None for case in dataset):
        # The sections of all resolutions are divided at once: one that is missing at some must not move the others.
        everything = replace(dataset, cases=tuple(survey_dataset(Path(root)).cases))
        dataset = make_split(everything).apply(dataset)
    return DatasetSplits(dataset, _common_resolution(dataset))


def few_sections(dataset: Dataset, count: int) -> Dataset:
    """``count`` sections, spread evenly over the cancer types, otherwise in an order fixed by their names.

    The choice for a smaller count is part of the choice for a larger one, so that learning curves nest.
    """
    if not 1 <= count <= len(dataset):
        raise UsageError("wrong number of sections", got=count, expected=f"1 to {len(dataset)}")
    strata: dict[str, list[str]] = {}
    for case in sorted(dataset, key=lambda case: hashlib.sha256(case.name.encode()).digest()):
        strata.setdefault(case.cancer, []).append(case.name)
    ranked = sorted((rank, cancer, name) for cancer, names in strata.items() for rank, name in enumerate(names))
    chosen = {name for _, _, name in ranked[:count]}
    return replace(dataset, cases=tuple(case for case in dataset if case.name in chosen))


def _common_resolution(dataset: Dataset) -> Resolution:
    """The median of all sections, which must agree: neither may depend on their names.

    Of an even number the lower one of the middle counts, so that it always is the value of a section.
    """
    stated = [case.resolution for case in dataset if case.resolution is not None]
    missing = [case.name for case in dataset if case.resolution is None]
    if missing or not stated:
        raise RefusedError(
            f"{dataset.root}: µm/px is not stated",
            got=f"{len(missing)} of {len(dataset)} sections without it ({first_names(missing)})",
            hint="write it into the column mpp of cases.csv",
        )
    along_x, along_y = sorted(each.x for each in stated), sorted(each.y for each in stated)
    middle = (len(stated) - 1) // 2
    common = Resolution(along_x[middle], along_y[middle])
    for what, values in (
        ("sections differ in µm/px", along_x),
        ("sections differ in µm/px", along_y),
        ("pixels are not square", sorted((common.x, common.y))),
    ):
        if not Resolution.square(values[0]).same_as(Resolution.square(values[-1])):
            raise RefusedError(
                f"{dataset.root}: {what}",
                got=f"{values[0]:g} to {values[-1]:g} µm/px",
                expected=f"the same in all sections, along x and y, within {TOLERANCE:.0%}",
                hint=resampling(dataset.root, max(along_x[-1], along_y[-1])),
            )
    return common
