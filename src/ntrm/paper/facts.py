"""What the data is at each resolution: its fingerprint, how much of it there is, and what a pass over it costs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ntrm.core.errors import UsageError, choices_error
from ntrm.core.io import write_json
from ntrm.core.labels import LabelSchema
from ntrm.core.processes import parallel_map
from ntrm.core.progress import SILENT, Progress
from ntrm.data.cache import TileCache
from ntrm.data.dataset import SPLITS, Case, Dataset
from ntrm.data.layouts import open_dataset
from ntrm.data.split import DatasetSplits
from ntrm.data.tiles import foreground_windows, tile_windows
from ntrm.training.recipe import Recipe


@dataclass(frozen=True)
class Facts:
    """A dataset at one resolution."""

    level: str
    """Empty where the layout has none."""
    mpp: float
    fingerprint: str
    sections: Mapping[str, int]
    """By part."""
    patients: Mapping[str, int]
    pixels: Mapping[str, int]
    windows: Mapping[str, int]
    """Training windows in each part, cut as the recipe says."""
    phantom: bool
    """Whether the sections were drawn by a program."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def choose_levels(data: Path, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The levels to work at, coarsest first: those wanted, or all there are; one empty name for layouts without."""
    present = open_dataset(data).levels
    if present == ("",):
        if wanted:
            raise UsageError("this dataset has no resolution levels", got=", ".join(wanted), hint="leave them out")
        return present
    missing = [level for level in wanted if level not in present]
    if missing:
        raise choices_error(f"no such resolution in {data}", ", ".join(missing), present)
    return tuple(level for level in present if not wanted or level in wanted)


def gather_facts(
    parts: DatasetSplits, level: str, recipe: Recipe, memory: Path, *, jobs: int = 1, progress: Progress = SILENT
) -> Facts:
    """Facts about the data; every section is decoded into the cache on the way, once for all runs.

    What was found is kept in ``memory`` and believed until a file's size or time changes.
    """
    kept = recall_facts(memory, parts.dataset, recipe)
    if kept is not None:
        return kept
    count = partial(_count, schema=parts.schema, recipe=recipe)
    cases = list(parts.dataset)
    label = f"reading sections {level}".strip()
    counts = list(progress.track(parallel_map(count, cases, jobs), len(cases), label))
    facts = _facts(parts, level, counts)
    write_json(memory, {"stamp": _stamp(parts.dataset, recipe), "facts": facts.as_dict()})
    return facts


def _facts(parts: DatasetSplits, level: str, counts: list[tuple[int, int]]) -> Facts:
    cases = list(parts.dataset)
    by_part = {part: [k for k, case in enumerate(cases) if case.split == part] for part in SPLITS}
    empty = [part for part, members in by_part.items() if not members]
    if empty:
        raise UsageError(
            f"{parts.dataset.root} has an empty part",
            got=f"no section in {', '.join(empty)}",
            hint="divide it with `ntrm data split` and give the file with --splits",
        )
    return Facts(
        level=level,
        mpp=parts.resolution.mean,
        fingerprint=parts.fingerprint(),
        sections={part: len(members) for part, members in by_part.items()},
        patients={part: len({cases[k].group for k in members}) for part, members in by_part.items()},
        pixels={part: sum(counts[k][0] for k in members) for part, members in by_part.items()},
        windows={part: sum(counts[k][1] for k in members) for part, members in by_part.items()},
        phantom=is_phantom(parts.dataset.root),
    )


def is_phantom(root: Path) -> bool:
    """Whether a dataset folder was written by ``ntrm phantom``: it then has the truth about every section."""
    return (root / "truth.json").is_file()


def _count(case: Case, schema: LabelSchema, recipe: Recipe) -> tuple[int, int]:
    """Pixels and windows of one section, which is decoded into the cache."""
    section = TileCache().open(case, schema)
    height, width = section.shape
    windows = tile_windows(height, width, size=recipe.window, overlap=recipe.overlap)
    if recipe.drop_background:
        windows = foreground_windows(section.mask, windows, schema.background_index)
    return height * width, len(windows)


def _stamp(dataset: Dataset, recipe: Recipe) -> str:
    digest = hashlib.sha256(dataset.schema.fingerprint.encode())
    digest.update(f"{recipe.window} {recipe.overlap} {recipe.drop_background}".encode())
    for case in dataset:
        files = [path.stat() for path in (case.image, case.mask) if path is not None]
        times = [f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}" for stat in files]
        digest.update("|".join([case.name, case.group, str(case.split), str(case.resolution), *times]).encode())
    return digest.hexdigest()


def recall_facts(memory: Path, dataset: Dataset, recipe: Recipe) -> Facts | None:
    """What was found about the data before; None where nothing was, or the data has changed since."""
    try:
        document = json.loads(memory.read_text(encoding="utf-8"))
        return Facts(**document["facts"]) if document["stamp"] == _stamp(dataset, recipe) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
