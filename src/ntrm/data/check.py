"""Decode every file of a dataset and report every fault."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ntrm.core.labels import IGNORE
from ntrm.core.mpp import Resolution, level_factor
from ntrm.core.processes import parallel_map
from ntrm.core.progress import SILENT, Progress
from ntrm.data.dataset import SPLITS, Case
from ntrm.data.faults import KINDS, Fault, FaultError, fault, printable
from ntrm.data.image_files import MAX_PIXELS, image_size, read_image, read_mask
from ntrm.data.layouts import CASES, CLASSES, Survey, natural, patient_of, section_of, survey_dataset

T = TypeVar("T")


@dataclass
class Inspection:
    """What was found out about a case."""

    size: tuple[int, int] | None = None  # (height, width) by the image, or else by the mask
    pixels: int = 0
    strays: int = 0
    ignored: int = 0
    values: Counter[int] = field(default_factory=Counter)
    """Pixels of the mask by class, strays that are ignored left out."""
    faults: list[Fault] = field(default_factory=list)


def inspect(case: Case, survey: Survey, max_pixels: int) -> Inspection:
    """Decode image and mask of a case and collect all their faults."""
    result, schema = Inspection(), survey.schema

    def attempt(path: Path | None, read: Callable[[Path], T]) -> T | None:
        if path is None:
            return None
        try:
            return read(path)
        except FaultError as error:
            result.faults.append(replace(error.fault, file=printable(survey.relative(path))))
            return None

    image_at, mask_at = attempt(case.image, image_size), attempt(case.mask, image_size)
    result.size = image_at or mask_at
    if image_at:
        attempt(case.image, partial(read_image, max_pixels=max_pixels))
    if case.mask is None:
        return result
    file = survey.relative(case.mask)
    if mask_at and schema and (decoded := attempt(case.mask, partial(read_mask, schema=schema, max_pixels=max_pixels))):
        result.pixels, result.strays, result.ignored = decoded.mask.size, decoded.strays, decoded.ignored
        counts = np.bincount(decoded.mask.ravel(), minlength=IGNORE + 1)
        values = set(np.flatnonzero(counts).tolist())
        result.values = Counter(dict(enumerate(counts.tolist()))) - Counter({IGNORE: decoded.ignored})
        if values <= {IGNORE}:
            result.faults.append(fault("empty-mask", file))
        # Of the tiles of a section some are rightly all background.
        elif values <= {IGNORE, schema.background_index} and survey.layout != "masks":
            result.faults.append(fault("background-only", file))
    strange = any(each.code in ("mask-format", "stray-colours") for each in result.faults)
    if strange and case.image and schema:
        with suppress(FaultError):
            read_mask(case.image, schema)
            read_image(case.mask)
            result.faults = [fault("exchanged", file)]
    if image_at and mask_at and image_at != mask_at:
        found = f"image {image_at[1]} × {image_at[0]}, mask {mask_at[1]} × {mask_at[0]}"
        result.faults.append(fault("size-mismatch", file, found))
    return result


@dataclass(frozen=True)
class Strays:
    """Pixels of RGB masks whose colour is in no palette, in masks that are used all the same."""

    pixels: int
    ignored: int  # Those that become ignore; the others take the nearest class
    masks: int
    share: float  # Of all mask pixels


@dataclass(frozen=True)
class LevelSummary:
    """What there is at one resolution; ``level`` is empty where the layout has none."""

    level: str
    cases: int
    mpp: tuple[float, ...]  # The µm/px that occur, in ascending order; the mean of x and y where pixels are not square
    resolutions: tuple[Resolution, ...]  # The same, along x and y
    smallest: tuple[int, int]  # (height, width) of the case with the fewest pixels
    largest: tuple[int, int]


@dataclass(frozen=True)
class CheckReport:
    """Everything that ``ntrm data check`` found out."""

    root: Path
    layout: str
    classes: tuple[str, ...]
    sections: int
    patients: int
    splits: dict[str, int]  # Sections per split
    levels: tuple[LevelSummary, ...]
    strays: Strays
    findings: tuple[Fault, ...]  # Faults and notes, grouped by code

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
        document = asdict(self) | {"root": str(self.root), "clean": self.clean}
        del document["findings"]
        return document | {"faults": list(map(asdict, self.faults)), "notes": list(map(asdict, self.notes))}


def check_dataset(
    root: Path, *, max_pixels: int = MAX_PIXELS, jobs: int = 1, progress: Progress = SILENT
) -> CheckReport:
    """Check every file of a dataset; raises only where the folder is no dataset at all."""
    survey = survey_dataset(Path(root))
    tiles = survey.layout == "masks"
    work = partial(inspect, survey=replace(survey, cases=[], faults=[]), max_pixels=max_pixels)
    outcomes = list(progress.track(parallel_map(work, survey.cases, jobs), len(survey.cases), "checking"))
    counts = Counter({case.name: case.split for case in survey.cases}.values())
    splits = {split: counts[split] for split in SPLITS if counts[split]}
    # A dataset that is split needs all three to be trained and scored with; one that is not split yet needs none.
    missing = [split for split in SPLITS if splits and split not in splits]
    findings = [*survey.faults, *_level_faults(survey, outcomes)]
    findings += [fault("missing-split", CASES, f"no section in {split}") for split in missing]
    # Many programs write the second of two classes as 255, which is ignored here.
    values = sum((outcome.values for outcome in outcomes), Counter[int]())
    absent = ", ".join(survey.schema.names[1:]) if survey.schema else ""
    if absent and {value for value, pixels in values.items() if pixels} == {0, IGNORE}:
        share = f"{100 * values[IGNORE] / values.total():.2g} %"
        found = f"no pixel of {absent}; {share} of the pixels are {IGNORE}, which is ignored"
        findings.append(fault("binary-masks", CLASSES, found))
    findings += [finding for outcome in outcomes for finding in outcome.faults]
    strays = sum(outcome.strays for outcome in outcomes)
    return CheckReport(
        root=survey.root,
        layout=survey.layout,
        classes=survey.schema.names if survey.schema else (),
        sections=len({section_of(case.name) if tiles else case.name for case in survey.cases}),
        patients=len({patient_of(case.name) if tiles else case.group for case in survey.cases}),
        splits=splits,
        levels=_summarise_levels(survey, outcomes),
        strays=Strays(
            pixels=strays,
            ignored=sum(outcome.ignored for outcome in outcomes),
            masks=sum(outcome.strays > 0 for outcome in outcomes),
            share=strays / max(1, sum(outcome.pixels for outcome in outcomes)),
        ),
        findings=tuple(sorted(findings, key=lambda f: ([*KINDS].index(f.code), natural(f.file), natural(f.found)))),
    )


def _level_faults(survey: Survey, outcomes: list[Inspection]) -> list[Fault]:
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
            # Sizes are rounded: by a pixel of small images, by a hundredth of large ones at most.
            if any(abs(a - b) > max(1, 0.01 * b) for a, b in zip(size, wanted, strict=True)):
                found = f"{size[1]} × {size[0]} at {level}"
                expected = f"about {wanted[1]:.0f} × {wanted[0]:.0f}, from the size at {finest}"
                faults.append(fault("level-mismatch", name, found, expected=expected))
    return faults


def _summarise_levels(survey: Survey, outcomes: list[Inspection]) -> tuple[LevelSummary, ...]:
    summaries = []
    for level in dict.fromkeys(case.level for case in survey.cases):
        pairs = [(c, o) for c, o in zip(survey.cases, outcomes, strict=True) if c.level == level]
        sizes = sorted((o.size for _, o in pairs if o.size), key=lambda size: (size[0] * size[1], size)) or [(0, 0)]
        known = tuple(sorted({c.resolution for c, _ in pairs if c.resolution}, key=lambda found: (found.mean, found)))
        mpp = tuple(sorted({resolution.mean for resolution in known}))
        summaries.append(LevelSummary(level, len(pairs), mpp, known, smallest=sizes[0], largest=sizes[-1]))
    return tuple(summaries)
