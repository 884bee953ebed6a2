"""Facts about the data at each resolution: fingerprint, numbers of sections, patients, pixels and windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ntrm.core.errors import DataError, NtrmError, UsageError, choices_error, listed
from ntrm.core.labels import LabelSchema
from ntrm.core.processes import parallel_map
from ntrm.core.progress import SILENT, Progress
from ntrm.data.cache import SectionCache
from ntrm.data.dataset import SPLITS, Case
from ntrm.data.layouts import open_dataset, survey_dataset
from ntrm.data.split import DatasetSplits
from ntrm.data.tiles import foreground_windows, tile_windows
from ntrm.paper.published import TABLE_2
from ntrm.training.recipe import Recipe


@dataclass(frozen=True)
class Facts:
    """A dataset at one resolution."""

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


def check_splits(splits: DatasetSplits) -> None:
    """Refuse data without a section in one of the splits."""
    empty = [split for split in SPLITS if not any(case.split == split for case in splits.dataset)]
    if empty:
        raise UsageError(
            f"{splits.dataset.root} has an empty split",
            got=f"no section in {', '.join(empty)}",
            hint="divide it with `ntrm data split` and give the file with --splits",
        )


def gather_facts(
    splits: DatasetSplits, level: str, recipe: Recipe, *, jobs: int = 1, progress: Progress = SILENT
) -> Facts:
    """Facts about the data; every section is decoded into the cache on the way, once for all runs."""
    check_splits(splits)
    cases = list(splits.dataset)
    count = partial(_try_count, schema=splits.schema, recipe=recipe)
    label = f"reading sections {level}".strip()
    counts = list(progress.track(parallel_map(count, cases, jobs), len(cases), label))
    errors = [each for each in counts if isinstance(each, NtrmError)]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise DataError(
            f"{len(errors)} sections of {splits.dataset.root} cannot be used",
            got=listed([f"{error.what} ({error.got})" for error in errors]),
            hint=f"run `ntrm data check {splits.dataset.root}` for all faults and how to fix them",
        )
    sound = [each for each in counts if not isinstance(each, NtrmError)]
    of = {split: [k for k, case in enumerate(cases) if case.split == split] for split in SPLITS}
    return Facts(
        mpp=splits.resolution.mean,
        fingerprint=splits.fingerprint(),
        sections={split: len(members) for split, members in of.items()},
        patients={split: len({cases[k].group for k in members}) for split, members in of.items()},
        pixels={split: sum(sound[k][0] for k in members) for split, members in of.items()},
        windows={split: sum(sound[k][1] for k in members) for split, members in of.items()},
        phantom=is_phantom(splits.dataset.root),
    )


def is_phantom(root: Path) -> bool:
    """Whether a dataset folder was written by ``ntrm phantom``, with the ground truth about every section."""
    return (root / "truth.json").is_file()


def _try_count(case: Case, schema: LabelSchema, recipe: Recipe) -> tuple[int, int] | NtrmError:
    """Pixels and windows of a section; an error is returned, so that one bad file does not hide the next."""
    try:
        section = SectionCache().open(case, schema)
    except NtrmError as error:
        return error
    height, width = section.shape
    windows = tile_windows(height, width, size=recipe.window, overlap=recipe.overlap)
    if recipe.drop_background:
        windows = foreground_windows(section.mask, windows, schema.background_index)
    return height * width, len(windows)
