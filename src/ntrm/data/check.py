"""Walk a whole dataset, decode every file, and report every fault; nothing stops at the first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ntrm.core.errors import DataError
from ntrm.core.labels import IGNORE, DecodedMask, LabelSchema
from ntrm.core.mpp import level_factor
from ntrm.core.processes import parallel_map
from ntrm.core.progress import SILENT, Progress
from ntrm.data.csv_tables import fault_of, number, read_table
from ntrm.data.dataset import SPLITS, Case
from ntrm.data.faults import KINDS, Fault, FaultError, fault, printable
from ntrm.data.image_files import MAX_PIXELS, image_size, read_image, read_mask
from ntrm.data.layouts import CASES, MEASUREMENTS, Survey, natural, patient_of, section_of, survey_dataset

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """A case to inspect, and what is needed for it."""

    root: Path
    case: Case
    schema: LabelSchema | None
    tiles: bool
    """Whether the masks may be tiles of sections, of which some are rightly all background."""
    max_pixels: int


@dataclass
class Outcome:
    """What was found out about a case."""

    size: tuple[int, int] | None = None
    """(height, width) by the image, or else by the mask."""
    pixels: int = 0
    strays: int = 0
    ignored: int = 0
    faults: list[Fault] = field(default_factory=list)


def inspect_case(task: Task) -> Outcome:
    """Decode image and mask of a case; every fault of theirs is in the outcome."""
    outcome = Outcome()
    image, mask = task.case.image, task.case.mask
    image_at = _attempt(task, outcome, image, image_size) if image else None
    mask_at = _attempt(task, outcome, mask, image_size) if mask else None
    outcome.size = image_at or mask_at
    if image and image_at:
        _attempt(task, outcome, image, lambda path: read_image(path, max_pixels=task.max_pixels))
    if mask and mask_at:
        _inspect_mask(task, outcome, mask)
    if mask and image_at and mask_at and image_at != mask_at:
        found = f"image {image_at[1]} × {image_at[0]}, mask {mask_at[1]} × {mask_at[0]}"
        outcome.faults.append(fault("size-mismatch", _relative(task, mask), found))
    return outcome


def _inspect_mask(task: Task, outcome: Outcome, path: Path) -> None:
    schema = task.schema
    if schema is None:
        return
    decoded = _attempt(task, outcome, path, lambda path: read_mask(path, schema, max_pixels=task.max_pixels))
    if decoded is None:
        return
    outcome.pixels, outcome.strays, outcome.ignored = decoded.mask.size, decoded.strays, decoded.ignored
    code = _emptiness(decoded, schema.background_index)
    if code == "background-only" and task.tiles:
        return
    if code:
        outcome.faults.append(fault(code, _relative(task, path)))


def _emptiness(decoded: DecodedMask, background: int | None) -> str:
    """Code of the fault that a mask without any tissue has, or the empty string."""
    values = set(np.flatnonzero(np.bincount(decoded.mask.ravel(), minlength=256)).tolist())
    if values <= {IGNORE}:
        return "empty-mask"
    return "background-only" if values <= {IGNORE, background} else ""


def _attempt(task: Task, outcome: Outcome, path: Path, read: Callable[[Path], T]) -> T | None:
    try:
        return read(path)
    except FaultError as error:
        outcome.faults.append(replace(error.fault, file=_relative(task, path)))
        return None


def _relative(task: Task, path: Path) -> str:
    return printable(path.relative_to(task.root).as_posix())


# Pathologists' own measurements, which may come with a dataset as ``measurements.csv``.
#
# Columns: ``name`` (a section of the dataset), ``clearance_um`` (tumour to margin) and ``depth_um`` (of invasion),
# both in µm, of which one may be empty; optionally ``reader`` (who measured) and ``note``. A section may have
# one row per reader.


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
            hint=f"run `ntrm data check {root}` for all faults and how to fix them",
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


# Walk a whole dataset, decode every file, and report every fault; nothing stops at the first one.


SIZE_TOLERANCE = 0.01
"""Share by which the sizes of two resolutions may miss the ratio of their factors; a pixel is always allowed."""


@dataclass(frozen=True)
class Strays:
    """Pixels of RGB masks whose colour is in no palette, in masks that are used all the same."""

    pixels: int
    ignored: int
    """Those that become ignore; the others take the nearest class."""
    masks: int
    share: float
    """Of all mask pixels."""


@dataclass(frozen=True)
class LevelSummary:
    """What there is at one resolution; ``level`` is empty where the layout has none."""

    level: str
    cases: int
    mpp: tuple[float, ...]
    """The µm/px that occur, in ascending order."""
    smallest: tuple[int, int]
    """(height, width) of the case with the fewest pixels."""
    largest: tuple[int, int]


@dataclass(frozen=True)
class CheckReport:
    """Everything that ``ntrm data check`` found out."""

    root: Path
    layout: str
    classes: tuple[str, ...]
    sections: int
    patients: int
    splits: dict[str, int]
    """Sections per split."""
    levels: tuple[LevelSummary, ...]
    strays: Strays
    measurements: int
    """Sections that a pathologist has measured."""
    findings: tuple[Fault, ...]
    """Faults and notes, grouped by code."""

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What must be fixed."""
        return tuple(finding for finding in self.findings if finding.severity == "fault")

    @property
    def notes(self) -> tuple[Fault, ...]:
        """What is worth knowing but does no harm."""
        return tuple(finding for finding in self.findings if finding.severity == "note")

    @property
    def clean(self) -> bool:
        """Whether nothing must be fixed."""
        return not self.faults

    def as_dict(self) -> dict[str, Any]:
        """The report for JSON."""
        document = asdict(self)
        del document["findings"]
        return {
            **document,
            "root": str(self.root),
            "clean": self.clean,
            "faults": [finding.as_dict() for finding in self.faults],
            "notes": [finding.as_dict() for finding in self.notes],
        }


def check_dataset(
    root: Path, *, max_pixels: int = MAX_PIXELS, jobs: int = 1, progress: Progress = SILENT
) -> CheckReport:
    """Check every file of a dataset; raises only where the folder is no dataset at all.

    With several ``jobs`` even a file that kills its decoder is survived and reported.
    """
    survey = survey_dataset(Path(root))
    tiles = survey.layout == "masks"
    tasks = [Task(survey.root, case, survey.schema, tiles, max_pixels) for case in survey.cases]
    outcomes = list(progress.track(_inspect_all(tasks, jobs), total=len(tasks), label="checking"))
    measurements, faults = check_measurements(survey.root, {case.name for case in survey.cases})
    findings = [*survey.faults, *faults, *_level_faults(survey, outcomes), *_missing_splits(survey)]
    findings += [finding for outcome in outcomes for finding in outcome.faults]
    return CheckReport(
        root=survey.root,
        layout=survey.layout,
        classes=survey.schema.names if survey.schema else (),
        sections=len({section_of(case.name) if tiles else case.name for case in survey.cases}),
        patients=len({patient_of(case.name) if tiles else case.group for case in survey.cases}),
        splits=_count_splits(survey),
        levels=_summarise_levels(survey, outcomes),
        strays=_sum_strays(outcomes),
        measurements=len(measurements),
        findings=tuple(sorted(findings, key=_report_order)),
    )


def _report_order(finding: Fault) -> tuple[Any, ...]:
    return list(KINDS).index(finding.code), natural(finding.file), natural(finding.found)


def _inspect_all(tasks: Sequence[Task], jobs: int) -> Iterator[Outcome]:
    """Outcomes in the order of the tasks."""
    done = 0
    while done < len(tasks):
        rest = tasks[done:]
        # parallel_map takes a single item in this process, where a crash would end the walk.
        outcomes = map(_inspect_alone, rest) if jobs > 1 == len(rest) else parallel_map(inspect_case, rest, jobs)
        try:
            for outcome in outcomes:
                done += 1
                yield outcome
        except DataError:
            # A worker died. Whoever did it is among the first ones not done, so these go one by one.
            yield _inspect_alone(tasks[done])
            done += 1


def _inspect_alone(task: Task) -> Outcome:
    """Outcome of a task in a process of its own, which may die without harm."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(inspect_case, task).result()
        except BrokenProcessPool:
            found = "its decoder was killed: not enough memory, or a damaged file"
            paths = [path.relative_to(task.root) for path in (task.case.image, task.case.mask) if path]
            return Outcome(faults=[fault("unreadable", path, found) for path in paths])


def _level_faults(survey: Survey, outcomes: list[Outcome]) -> list[Fault]:
    """Sections whose size at a coarser level does not follow from the size at their finest."""
    sizes: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    for case, outcome in zip(survey.cases, outcomes, strict=True):
        if case.level and outcome.size:
            sizes[case.name][case.level] = outcome.size
    faults = []
    for name, size_at in sizes.items():
        finest = min(size_at, key=level_factor)
        for level, size in size_at.items():
            ratio = level_factor(finest) / level_factor(level)
            wanted = [side * ratio for side in size_at[finest]]
            if any(abs(a - b) > max(1, SIZE_TOLERANCE * b) for a, b in zip(size, wanted, strict=True)):
                found = f"{size[1]} × {size[0]} at {level}"
                expected = f"about {wanted[1]:.0f} × {wanted[0]:.0f}, from the size at {finest}"
                faults.append(fault("level-mismatch", name, found, expected=expected))
    return faults


def _missing_splits(survey: Survey) -> list[Fault]:
    """A dataset that is split needs all three to be trained and scored with; one that is not split yet needs none."""
    counts = _count_splits(survey)
    return [
        fault("missing-split", CASES, f"no section in {split}") for split in SPLITS if counts and split not in counts
    ]


def _count_splits(survey: Survey) -> dict[str, int]:
    split_of = {case.name: case.split for case in survey.cases}
    counts = Counter(split_of.values())
    return {split: counts[split] for split in SPLITS if counts[split]}


def _summarise_levels(survey: Survey, outcomes: list[Outcome]) -> tuple[LevelSummary, ...]:
    summaries = []
    for level in dict.fromkeys(case.level for case in survey.cases):
        pairs = [(c, o) for c, o in zip(survey.cases, outcomes, strict=True) if c.level == level]
        sizes = sorted((o.size for _, o in pairs if o.size), key=lambda size: (size[0] * size[1], size)) or [(0, 0)]
        mpp = sorted({c.resolution.mean for c, _ in pairs if c.resolution})
        summaries.append(LevelSummary(level, len(pairs), tuple(mpp), smallest=sizes[0], largest=sizes[-1]))
    return tuple(summaries)


def _sum_strays(outcomes: list[Outcome]) -> Strays:
    pixels = sum(outcome.strays for outcome in outcomes)
    return Strays(
        pixels=pixels,
        ignored=sum(outcome.ignored for outcome in outcomes),
        masks=sum(outcome.strays > 0 for outcome in outcomes),
        share=pixels / max(1, sum(outcome.pixels for outcome in outcomes)),
    )
