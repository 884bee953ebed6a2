"""The parts a network learns from, is chosen by and is judged on: one way to get them for every command."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from ntrm.data.cases import Dataset
from ntrm.data.layouts import open_dataset
from ntrm.data.split import make_split
from ntrm.errors import RefusedError, UsageError
from ntrm.files import sha256_of
from ntrm.labels import LabelSchema
from ntrm.resolution import Resolution


@dataclass(frozen=True)
class Parts:
    """A dataset at one resolution, divided so that no patient is in two parts."""

    whole: Dataset
    resolution: Resolution
    """The same for every section."""

    def __getitem__(self, split: str) -> Dataset:
        """Sections of ``train``, ``val`` or ``test``."""
        return self.whole.in_split(split)

    @property
    def schema(self) -> LabelSchema:
        """Classes of the masks."""
        return self.whole.schema

    def fingerprint(self, split: str | None = None) -> str:
        """Short hash over names, splits and the bytes of images and masks, of one part or of all.

        It does not depend on where the dataset lies.
        """
        digest = hashlib.sha256(self.schema.fingerprint.encode())
        for case in sorted(self.whole if split is None else self[split], key=lambda case: case.name):
            files = [sha256_of(path) for path in (case.image, case.mask) if path is not None]
            digest.update("|".join([case.name, str(case.split), str(case.resolution), *files]).encode())
        return digest.hexdigest()[:16]


def open_parts(root: Path, *, level: str | None = None, split_file: Path | None = None, seed: int = 0) -> Parts:
    """Open a dataset at one resolution and divide it.

    ``split_file`` (what ``ntrm data split`` writes) decides where it is given; otherwise the dataset's own splits,
    and sections that have none are placed as ``ntrm data split --seed`` would place them: the same everywhere.
    """
    dataset = open_dataset(Path(root), level=level, cases_file=split_file)
    if len(dataset.levels) > 1:
        raise UsageError(
            f"{root} has several resolutions",
            got="none chosen",
            expected=f"one of {', '.join(dataset.levels)}",
            mend="choose one with --resolution",
        )
    if any(case.split is None for case in dataset):
        dataset = make_split(dataset, seed=seed).apply(dataset)
    return Parts(dataset, _common_resolution(dataset))


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
    found = {case.name: case.resolution for case in dataset}
    first = next(iter(found.values()), None)
    if first is None:
        raise RefusedError(
            f"{dataset.root}: µm/px is not stated",
            got=f"{sum(each is None for each in found.values())} of {len(found)} sections without it",
            mend="write it into the column mpp of cases.csv",
        )
    strange = [name for name, each in found.items() if each is None or not each.same_as(first)]
    if strange:
        raise RefusedError(
            f"{dataset.root}: sections differ in µm/px",
            got=f"{strange[0]}: {found[strange[0]]}",
            expected=f"{first} as the others",
            mend="bring them to one resolution with `ntrm data resample`",
        )
    return first
