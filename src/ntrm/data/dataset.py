"""What a dataset is once its layout has been understood: cases with image, mask, patient, split and µm/px."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from ntrm.core.errors import RefusedError, choices_error
from ntrm.core.labels import LabelSchema
from ntrm.core.mpp import Resolution, level_factor

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Case:
    """One section at one resolution."""

    name: str
    image: Path | None
    mask: Path | None
    group: str  # Patient (or slide): all cases of one group belong into one split
    split: str | None = None
    resolution: Resolution | None = None
    level: str = ""  # Folder of the queensland layout ("10x"); empty for the plain layout
    cancer: str = ""  # Stratum for splitting: the cancer type the section was filed under, if any
    slide_sha256: str = ""  # Of the file of the slide that the image was cut from, if it is known


@dataclass(frozen=True)
class Dataset:
    """Cases of one layout and one label schema, in a stable order."""

    root: Path
    layout: str  # ``queensland``, ``plain`` or ``masks`` (masks alone, enough for statistics)
    schema: LabelSchema
    cases: tuple[Case, ...] = field(repr=False)

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)

    def __len__(self) -> int:
        return len(self.cases)

    @property
    def levels(self) -> tuple[str, ...]:
        """Resolutions present ("10x"), coarsest first; ``("",)`` for layouts without."""
        return tuple(sorted({c.level for c in self.cases}, key=lambda level: -level_factor(level) if level else 0))

    def in_split(self, split: str) -> Dataset:
        """The cases of one split."""
        present = sorted({c.split for c in self.cases if c.split})
        if split not in present:
            raise choices_error(f"no such split in {self.root}", split, present or ["(no case has a split)"])
        return replace(self, cases=tuple(case for case in self.cases if case.split == split))


def resampling(root: Path, mpp: float) -> str:
    """How to get the dataset at coarser µm/px, as a command that works as it is.

    >>> resampling(Path("my data"), 6.7)
    "run `ntrm data resample 'my data' --to 6.7 --out 'my data-6.7um'`, and use 'my data-6.7um'"
    """
    root = root if root.name.strip(".") else root.resolve()
    out = str(root.with_name(f"{root.name}-{mpp:g}um"))
    command = shlex.join(["ntrm", "data", "resample", str(root), "--to", f"{mpp:g}", "--out", out])
    return f"run `{command}`, and use {shlex.quote(out)}"


def check_outside(out: Path, root: Path) -> None:
    """Refuse to write into a dataset."""
    if out.resolve().is_relative_to(root.resolve()):
        what = "the output would be inside the dataset, which must not be changed"
        raise RefusedError(what, got=out, expected=f"a place outside {root}")
