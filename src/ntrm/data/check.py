"""Walk a whole dataset, decode every file, and report every fault; nothing stops at the first one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ntrm.data.cases import SPLITS
from ntrm.data.decode import MAX_PIXELS
from ntrm.data.faults import KINDS, Fault, fault
from ntrm.data.inspection import Outcome, Task, inspect_case
from ntrm.data.measurements import check_measurements
from ntrm.data.parallel import parallel_map
from ntrm.data.patients import patient_of, section_of
from ntrm.data.survey import Survey, natural, survey_dataset
from ntrm.errors import DataError
from ntrm.progress import SILENT, Progress
from ntrm.resolution import level_factor

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
        """What must be mended."""
        return tuple(finding for finding in self.findings if finding.severity == "fault")

    @property
    def notes(self) -> tuple[Fault, ...]:
        """What is worth knowing but does no harm."""
        return tuple(finding for finding in self.findings if finding.severity == "note")

    @property
    def clean(self) -> bool:
        """Whether nothing must be mended."""
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
    findings = [*survey.faults, *faults, *_level_faults(survey, outcomes)]
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
