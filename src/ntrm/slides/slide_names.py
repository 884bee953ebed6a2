"""Which files of a folder are slides, by their names alone: on a disk and in object storage alike."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from ntrm.core.errors import some
from ntrm.core.wording import counted

SUFFIXES = (
    *(".svs", ".tif", ".tiff", ".ndpi", ".mrxs", ".scn", ".vms", ".vmu", ".bif", ".svslide"),
    *(".btf", ".qptiff", ".png", ".jpg", ".jpeg", ".jfif"),
)
"""Of files that are a slide each."""
DICOM = ".dcm"
SLIDE_SUFFIXES = (*SUFFIXES, DICOM)
"""What is taken from a folder. A file that is named itself may end as it likes: readers choose by content."""
MASKS, IMAGES = "Masks", "Images"
"""Folders of a dataset."""
NO_IMAGES = (
    *(".csv", ".tsv", ".xls", ".xlsx", ".ods", ".txt", ".md", ".pdf", ".rtf", ".doc", ".docx", ".odt", ".ppt", ".pptx"),
    *(".html", ".htm", ".css", ".js", ".json", ".jsonl", ".geojson", ".xml", ".yaml", ".yml", ".toml", ".ini", ".cfg"),
    *(".py", ".ipynb", ".r", ".groovy", ".sh", ".bat", ".npy", ".npz", ".pt", ".safetensors", ".qpproj", ".qpdata"),
    *(".dat", ".opt", ".db", ".log", ".md5", ".sha256", ".lnk", ".url", ".backup", ".bak", ".tmp", ".gz"),
)
"""Endings of what lies beside slides, or is a part of one: nobody misses these."""
_ENDING = re.compile(r"\.(?=.*[a-z])[a-z0-9]{1,8}")
"""Others are parts of a name."""


@dataclass(frozen=True)
class LeftOut:
    """What folders hold that may be taken for slides and is not; grows while they are looked into."""

    results: list[str] = field(default_factory=list)
    """Folders that ``ntrm segment`` wrote to before: their pictures are no slides."""
    endings: Counter[str] = field(default_factory=Counter)
    """Of files that could be images, and how many have them."""

    def slides_among(self, names: Iterable[PurePosixPath]) -> Iterator[PurePosixPath]:
        """The slides among the names; of the others the endings are counted."""
        for name in names:
            ending = name.suffix.lower()
            if is_hidden(name):
                continue
            if ending in SLIDE_SUFFIXES:
                yield name
            elif ending not in NO_IMAGES and _ENDING.fullmatch(ending):
                self.endings[ending] += 1

    def notes(self, *, names: bool) -> list[str]:
        """In words; without ``names`` nothing that could be a patient's.

        >>> LeftOut(["out", "old/out"]).notes(names=True), LeftOut(["Jane Doe"]).notes(names=False)
        (['left out: results in out, old/out'], ['left out: 1 folder of results'])
        """
        notes = []
        if self.results:
            what = f"results in {some(self.results)}" if names else f"{counted(len(self.results), 'folder')} of results"
            notes.append(f"left out: {what}")
        if self.endings:
            which = f" ({some(sorted(self.endings))})" if names else ""
            files = f"{counted(self.endings.total(), 'file')}{which}"
            notes.append(f"left out by their endings: {files}; name those that are slides themselves")
        return notes


def is_hidden(name: PurePosixPath) -> bool:
    """Whether a file, or a folder that it lies in, is hidden."""
    return any(part.startswith(".") for part in name.parts)


def one_of_each(names: Iterable[PurePosixPath]) -> Iterator[PurePosixPath]:
    """The names in order; of a DICOM slide, which is a folder of files, one a level, only the first.

    Whichever is opened brings the others.
    """
    seen: set[PurePosixPath] = set()
    for name in sorted(names):
        if name.suffix.lower() == DICOM:
            if name.parent in seen:
                continue
            seen.add(name.parent)
        yield name


def is_mask(name: PurePosixPath, folders: Collection[PurePosixPath]) -> bool:
    """Whether a file is a mask of a dataset, given every folder: the network would find tissue in it, too."""
    return name.parent.name == MASKS and name.parent.parent / IMAGES in folders


def belongs_to(slide: PurePosixPath, name: PurePosixPath) -> bool:
    """Whether a file is part of the slide.

    >>> mrxs = PurePosixPath("a/x.mrxs")
    >>> [belongs_to(mrxs, PurePosixPath(name)) for name in ("a/x.mrxs", "a/x/Slidedat.ini", "a/y/Slidedat.ini")]
    [True, True, False]
    """
    match slide.suffix.lower():
        case ".mrxs":
            return name == slide or slide.with_suffix("") in name.parents
        case ".dcm":
            return name.parent == slide.parent and name.suffix.lower() == DICOM
        case ".vms" | ".vmu":
            # They name their other files inside; these lie beside them.
            return name.parent == slide.parent
    return name == slide


def has_parts(slide: PurePosixPath) -> bool:
    """Whether a slide of this name may consist of several files."""
    return slide.suffix.lower() in (".mrxs", DICOM, ".vms", ".vmu")
