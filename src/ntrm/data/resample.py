"""Coarser resolutions of a dataset, derived from its finest one: area averages for images, majority votes for masks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from ntrm.csv_text import rows_text
from ntrm.data.cases import Case, Dataset
from ntrm.data.decode import image_size, read_image, read_mask
from ntrm.data.encode import write_image, write_indexed_mask, write_rgb_mask
from ntrm.data.layouts import open_dataset
from ntrm.data.parallel import parallel_map
from ntrm.data.shrink import area_average, majority_vote, shrunk_length
from ntrm.data.survey import CASES, CLASSES, MEASUREMENTS
from ntrm.data.tables import read_columns
from ntrm.errors import RefusedError, UsageError
from ntrm.files import remove_partials, whole_file
from ntrm.labels import LabelSchema
from ntrm.progress import SILENT, Progress
from ntrm.resolution import Resolution, level_factor

__all__ = ["ResampleResult", "area_average", "majority_vote", "resample_dataset", "shrunk_length"]

SIDECARS = (CLASSES, CASES, MEASUREMENTS, "truth.json")
"""Files beside the images that hold at every resolution (lengths in them are µm) and travel along."""


@dataclass(frozen=True)
class ResampleResult:
    """What was done."""

    out: Path
    levels: tuple[str, ...]
    sections: int
    written: int
    """Files written now."""
    skipped: int
    """Files that were complete already, from an earlier run."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "out": str(self.out)}


@dataclass(frozen=True)
class _Target:
    """A file to derive."""

    path: Path
    factor: Fraction
    resolution: Resolution


@dataclass(frozen=True)
class _Task:
    """A file to read, once, and all that is derived from it."""

    source: Path
    targets: tuple[_Target, ...]
    schema: LabelSchema | None
    """Classes if it is a mask, None if it is an image."""
    indexed: bool
    """Whether masks are written as indices (layout plain) or in colours (layout queensland)."""


def resample_dataset(
    dataset: Dataset | Path, levels: Sequence[str], out: Path, *, jobs: int = 1, progress: Progress = SILENT
) -> ResampleResult:
    """Write the sections of ``dataset`` at coarser ``levels`` to ``out``, in the same layout.

    In the layout queensland a level is a downsample factor of the originals, and each section is derived from
    its finest level present. In the layout plain a level is a factor of the images as they are, and there can
    be only one. Files that are there already are left alone, so that an interrupted run goes on.
    """
    if not isinstance(dataset, Dataset):
        dataset = open_dataset(dataset)
    _check_request(dataset, levels, out)
    cases = _finest(dataset.cases)
    tasks = [task for case in cases for task in _tasks(case, dataset, levels, out)]
    for folder in {target.path.parent for task in tasks for target in task.targets}:
        remove_partials(folder)
    _copy_sidecars(dataset, levels, out)
    written = sum(progress.track(parallel_map(_run, tasks, jobs), len(tasks), "resampling"))
    wanted = sum(len(task.targets) for task in tasks)
    return ResampleResult(out, tuple(levels), len(cases), written, skipped=wanted - written)


def _check_request(dataset: Dataset, levels: Sequence[str], out: Path) -> None:
    if dataset.layout == "masks":
        raise RefusedError(
            f"{dataset.root} has masks alone", expected="a dataset with images, layout queensland or plain"
        )
    if not levels or (dataset.layout == "plain" and len(levels) > 1):
        raise UsageError(
            "wrong number of resolutions",
            got=", ".join(levels) or "none",
            expected="one for a dataset of layout plain, one or more for layout queensland",
            mend="run the command once per resolution, each with its own --out",
        )
    if out.resolve().is_relative_to(dataset.root.resolve()):
        raise RefusedError(
            "the output would lie inside the dataset, which stays as it is",
            got=out,
            expected=f"a folder outside {dataset.root}",
            mend="choose another --out",
        )


def _finest(cases: Iterable[Case]) -> list[Case]:
    """Every section once, at the finest level it is there."""
    best: dict[str, Case] = {}
    for case in cases:
        known = best.setdefault(case.name, case)
        if case.level and level_factor(case.level) < level_factor(known.level):
            best[case.name] = case
    return list(best.values())


def _tasks(case: Case, dataset: Dataset, levels: Sequence[str], out: Path) -> list[_Task]:
    """What to do for one section: its image and its mask."""
    tasks = []
    for source, folder, suffix in ((case.image, "Images", ".tif"), (case.mask, "Masks", ".png")):
        if source is not None:
            file = f"{folder}/{case.name}{suffix}"
            targets = tuple(_target(case, level, out / level / file if case.level else out / file) for level in levels)
            tasks.append(_Task(source, targets, dataset.schema if folder == "Masks" else None, not case.level))
    return tasks


def _target(case: Case, level: str, path: Path) -> _Target:
    if case.resolution is None:
        raise RefusedError(
            f"no µm per pixel for {case.name}", expected="a known resolution", mend="add it to cases.csv, column mpp"
        )
    factor = Fraction(level_factor(level), level_factor(case.level) if case.level else 1)
    if factor < 1:
        raise RefusedError(
            f"{case.name} cannot be made finer than it is",
            got=f"{level} wanted, {case.level} is the finest there",
            expected=f"{case.level} or coarser",
        )
    return _Target(path, factor, case.resolution.downsampled(float(factor)))


def _run(task: _Task) -> int:
    """Derive what is missing; returns how many files that were."""
    size = image_size(task.source)
    missing = [target for target in task.targets if not _is_done(target, size)]
    if not missing:
        return 0
    if task.schema is None:
        image = read_image(task.source)
        for target in missing:
            write_image(target.path, area_average(image, target.factor, target.factor), target.resolution)
        return len(missing)
    write_mask = write_indexed_mask if task.indexed else write_rgb_mask
    mask = read_mask(task.source, task.schema).mask
    for target in missing:
        shrunk = majority_vote(mask, target.factor, target.factor, len(task.schema))
        write_mask(target.path, shrunk, task.schema)
    return len(missing)


def _is_done(target: _Target, source_size: tuple[int, int]) -> bool:
    """Whether the file is there; files appear whole or not at all, so its size tells whether it is ours."""
    if not target.path.exists():
        return False
    height, width = (shrunk_length(length, target.factor) for length in source_size)
    found = image_size(target.path)
    if found != (height, width):
        raise RefusedError(
            f"{target.path} is there already and is something else",
            got=f"{found[1]} × {found[0]} pixels",
            expected=f"{width} × {height} pixels",
            mend="choose an empty --out, or remove what is there",
        )
    return True


def _copy_sidecars(dataset: Dataset, levels: Sequence[str], out: Path) -> None:
    for name in SIDECARS:
        source = next((base / name for base in (dataset.root, dataset.root / "data") if (base / name).is_file()), None)
        if source is not None:
            scaled = name == CASES and dataset.layout == "plain"
            _place(out / name, _scaled_cases(source, level_factor(levels[0])) if scaled else source.read_bytes())


def _place(path: Path, content: bytes) -> None:
    """Write ``content`` unless it is there; other content is somebody else's."""
    if path.exists() and path.read_bytes() != content:
        raise RefusedError(
            f"{path} is there already and is something else", mend="choose an empty --out, or remove what is there"
        )
    with whole_file(path) as partial:
        partial.write_bytes(content)


def _scaled_cases(path: Path, factor: int) -> bytes:
    """``cases.csv`` with its µm per pixel multiplied; all other columns unchanged."""
    columns, rows = read_columns(path, ("name", "mpp"))
    for row in rows:
        row.update({key: f"{float(row[key]) * factor:.10g}" for key in ("mpp", "mpp_y") if row.get(key)})
    return rows_text([columns, *(row.values() for row in rows)]).encode()
