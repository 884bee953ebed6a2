"""Facts about the data at each resolution: fingerprint, numbers of sections, patients, pixels and windows."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from ntrm.core.errors import DataError, NtrmError, UsageError, choices_error, listed
from ntrm.core.io import write_json
from ntrm.core.labels import LabelSchema
from ntrm.core.processes import parallel_map
from ntrm.core.progress import SILENT, Progress
from ntrm.data.cache import SectionCache
from ntrm.data.dataset import SPLITS, Case, Dataset
from ntrm.data.image_files import image_size
from ntrm.data.layouts import open_dataset, survey_dataset
from ntrm.data.split import DatasetSplits
from ntrm.data.tiles import foreground_windows, tile_windows
from ntrm.paper.published import TABLE_2
from ntrm.training.recipe import Recipe

CACHED_BYTES = 4
"""Of a pixel in the cache: three colours and a label."""


@dataclass(frozen=True)
class Facts:
    """A dataset at one resolution."""

    level: str
    """Empty where the layout has none."""
    mpp: float
    fingerprint: str
    sections: Mapping[str, int]
    """By split, as are patients, pixels and windows."""
    patients: Mapping[str, int]
    pixels: Mapping[str, int]
    windows: Mapping[str, int]
    """Training windows, cut as the recipe says."""
    phantom: bool
    """Whether the sections are synthetic."""


def choose_levels(data: Path, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """The levels to work at, coarsest first: those wanted, or the paper's that are there; one empty name without any.

    A dataset that has none of the paper's levels is used as it is.
    """
    present = present_levels(data)
    if present == ("",):
        if wanted:
            raise UsageError("this dataset has no resolution levels", got=", ".join(wanted), hint="leave them out")
        return present
    missing = [level for level in wanted if level not in present]
    if missing:
        raise choices_error(f"no such resolution in {data}", ", ".join(missing), present)
    chosen = wanted or tuple(level for level in present if level in TABLE_2) or present
    return tuple(level for level in present if level in chosen)


def present_levels(data: Path) -> tuple[str, ...]:
    """Levels that the dataset has, coarsest first; faults at levels that nobody asks for do not matter."""
    return tuple(dict.fromkeys(case.level for case in survey_dataset(data).cases)) or open_dataset(data).levels


def gather_facts(
    splits: DatasetSplits, level: str, recipe: Recipe, memory: Path, *, jobs: int = 1, progress: Progress = SILENT
) -> Facts:
    """Facts about the data; every section is decoded into the cache on the way, once for all runs.

    They are kept in ``memory`` and used again until the size or the time of a file changes.
    """
    known = recall_facts(memory, splits.dataset, recipe)
    if known is not None:
        return known
    count = partial(_try_count, schema=splits.schema, recipe=recipe)
    cases = list(splits.dataset)
    label = f"reading sections {level}".strip()
    counts = list(progress.track(parallel_map(count, cases, jobs), len(cases), label))
    _refuse_unreadable(splits.dataset, [each for each in counts if isinstance(each, NtrmError)])
    sound = [each for each in counts if not isinstance(each, NtrmError)]
    facts = _facts(splits, level, [*zip(cases, sound, strict=True)])
    write_json(memory, {"stamp": _stamp(splits.dataset, recipe), "facts": asdict(facts)})
    return facts


def expect_facts(splits: DatasetSplits, level: str, recipe: Recipe, memory: Path) -> Facts:
    """Facts as far as the headers of the files tell them: nothing is decoded, windows of glass are counted, too."""
    known = recall_facts(memory, splits.dataset, recipe)
    if known is not None:
        return known
    counts = []
    for case in splits.dataset:
        height, width = _header_size(case)
        counts.append((height * width, len(tile_windows(height, width, size=recipe.window, overlap=recipe.overlap))))
    return _facts(splits, level, [*zip(splits.dataset, counts, strict=True)])


def _header_size(case: Case) -> tuple[int, int]:
    path = case.image or case.mask
    return (0, 0) if path is None else image_size(path)


def check_room(datasets: Sequence[Dataset]) -> None:
    """Refuse, before anything is read, a disk that cannot hold the decoded sections."""
    cache = SectionCache()
    sizes = [_header_size(case) for dataset in datasets for case in dataset]
    needed = CACHED_BYTES * sum(height * width for height, width in sizes)
    folder = next(path for path in (cache.folder, *cache.folder.absolute().parents) if path.exists())
    # What lies there already may be of other data; then the disk fills up and the error says so.
    free = shutil.disk_usage(folder).free + cache.size().bytes
    if needed > free:
        raise DataError(
            "the disk is too small for the decoded sections",
            got=f"{free / 1e9:,.1f} GB in {cache.folder}",
            expected=f"{needed / 1e9:,.1f} GB for {len(sizes)} images",
            hint="choose a folder on a larger disk with NTRM_CACHE, or fewer levels with --resolutions",
        )


def _try_count(case: Case, schema: LabelSchema, recipe: Recipe) -> tuple[int, int] | NtrmError:
    """Like ``_count``; an error is returned, so that one bad file does not hide the next."""
    try:
        return _count(case, schema, recipe)
    except NtrmError as error:
        return error


def _refuse_unreadable(dataset: Dataset, errors: Sequence[NtrmError]) -> None:
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise DataError(
            f"{len(errors)} sections of {dataset.root} cannot be used",
            got=listed([f"{error.what} ({error.got})" for error in errors]),
            hint=f"run `ntrm data check {dataset.root}` for all faults and how to fix them; what was read is kept",
        )


def _facts(splits: DatasetSplits, level: str, counted: list[tuple[Case, tuple[int, int]]]) -> Facts:
    by_split = {split: [(case, *counts) for case, counts in counted if case.split == split] for split in SPLITS}
    empty = [split for split, members in by_split.items() if not members]
    if empty:
        raise UsageError(
            f"{splits.dataset.root} has an empty split",
            got=f"no section in {', '.join(empty)}",
            hint="divide it with `ntrm data split` and give the file with --splits",
        )
    return Facts(
        level=level,
        mpp=splits.resolution.mean,
        fingerprint=splits.fingerprint(),
        sections={split: len(members) for split, members in by_split.items()},
        patients={split: len({case.group for case, *_ in members}) for split, members in by_split.items()},
        pixels={split: sum(pixels for _, pixels, _ in members) for split, members in by_split.items()},
        windows={split: sum(windows for *_, windows in members) for split, members in by_split.items()},
        phantom=is_phantom(splits.dataset.root),
    )


def is_phantom(root: Path) -> bool:
    """Whether a dataset folder was written by ``ntrm phantom``, with the ground truth about every section."""
    return (root / "truth.json").is_file()


def _count(case: Case, schema: LabelSchema, recipe: Recipe) -> tuple[int, int]:
    """Pixels and windows of one section, which is decoded into the cache."""
    section = SectionCache().open(case, schema)
    height, width = section.shape
    windows = tile_windows(height, width, size=recipe.window, overlap=recipe.overlap)
    if recipe.drop_background:
        windows = foreground_windows(section.mask, windows, schema.background_index)
    return height * width, len(windows)


def _stamp(dataset: Dataset, recipe: Recipe) -> str:
    digest = hashlib.sha256(dataset.schema.fingerprint.encode() + dataset.schema.palette.tobytes())
    digest.update(f"{recipe.window} {recipe.overlap} {recipe.drop_background}".encode())
    for case in dataset:
        files = [path.stat() for path in (case.image, case.mask) if path is not None]
        times = [f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}" for stat in files]
        digest.update("|".join([case.name, case.group, str(case.split), str(case.resolution), *times]).encode())
    return digest.hexdigest()


def recall_facts(memory: Path, dataset: Dataset, recipe: Recipe) -> Facts | None:
    """Facts gathered before; None where there are none, or the data has changed since."""
    try:
        document = json.loads(memory.read_text(encoding="utf-8"))
        return Facts(**document["facts"]) if document["stamp"] == _stamp(dataset, recipe) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
