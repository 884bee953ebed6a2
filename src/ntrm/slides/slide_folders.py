"""Which files of a folder are slides: by their names on a disk and in object storage, and by links on a disk."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from errno import EACCES
from pathlib import Path, PurePosixPath

from ntrm.core.errors import DataError, first_names
from ntrm.core.wording import counted
from ntrm.results.manifest import is_run
from ntrm.results.paths import RUN

DICOM = ".dcm"
SLIDE_SUFFIXES = (
    *(".svs", ".tif", ".tiff", ".ndpi", ".mrxs", ".scn", ".bif", ".svslide", ".btf", ".qptiff"),
    *(".png", ".jpg", ".jpeg", ".jfif", DICOM),
)
"""What is taken from a folder. A file that is named itself may end as it likes: readers choose by content."""
MASKS, IMAGES = "Masks", "Images"  # Folders of a dataset
OTHER_IMAGES = (
    *(".czi", ".vsi", ".lif", ".isyntax", ".zvi", ".vms", ".vmu"),
    *(".jp2", ".jpx", ".j2k", ".bmp", ".gif", ".webp"),
)
"""Pictures and slides that are not read: somebody may miss them."""


@dataclass(frozen=True)
class LeftOut:
    """What folders hold that may be taken for slides and is not; grows while they are looked into."""

    results: list[str] = field(default_factory=list)
    """Folders that ``ntrm segment`` wrote to before: their pictures are no slides."""
    endings: Counter[str] = field(default_factory=Counter)  # Of ``OTHER_IMAGES``, and how many files have them

    def slides_among(self, names: Iterable[PurePosixPath]) -> Iterator[PurePosixPath]:
        """The slides among the names that are not hidden; of the others the endings are counted."""
        for name in names:
            ending = name.suffix.lower()
            if any(part.startswith(".") for part in name.parts):
                continue
            if ending in SLIDE_SUFFIXES:
                yield name
            elif ending in OTHER_IMAGES:
                self.endings[ending] += 1

    def notes(self, *, names: bool) -> list[str]:
        """In words; without ``names`` nothing that could be a patient's.

        >>> LeftOut(["out", "old/out"]).notes(names=True), LeftOut(["Jane Doe"]).notes(names=False)
        (['left out: results in out, old/out'], ['left out: 1 folder of results'])
        """
        notes = []
        if self.results:
            folders = f"results in {first_names(self.results)}" if names else counted(len(self.results), "folder")
            notes.append(f"left out: {folders}" + ("" if names else " of results"))
        if self.endings:
            files = f"{counted(self.endings.total(), 'file')} ({first_names(sorted(self.endings))})"
            notes.append(f"left out by their endings: {files}; convert those that are slides to OME-TIFF")
        return notes


def one_of_each(names: Iterable[PurePosixPath]) -> Iterator[PurePosixPath]:
    """The names in order; of a DICOM slide, which is a folder of files, one a level, only the first brings the rest."""
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
    return name == slide


def has_parts(slide: PurePosixPath) -> bool:
    """Whether a slide of this name may consist of several files."""
    return slide.suffix.lower() in (".mrxs", DICOM)


def refuse(error: OSError) -> None:
    """A patient's slides must not be missing only because their folder has other permissions."""
    raise DataError(
        f"cannot read the folder {error.filename}",
        got=error.strerror,
        expected="a folder that can be read",
        hint="change its permissions, or name the other folders one by one",
    ) from error


def slides_in(
    folder: Path, left_out: LeftOut, *, out: Path | None = None, on_error: Callable[[OSError], None] = refuse
) -> Iterator[Path]:
    """Slides in a fixed order. What lies in ``out`` is a result, and so is what lies in folders of earlier results.

    ``on_error`` is called for a folder that cannot be looked into; where it raises nothing, the others go on.
    """
    files = (PurePosixPath(path.relative_to(folder)) for path in _files_under(folder, left_out, out, on_error))
    names = (name for name in left_out.slides_among(files) if not is_annotation(folder / name))
    yield from (folder / name for name in one_of_each(names) if not lies_in(folder / name, out))


def _files_under(
    folder: Path, left_out: LeftOut, out: Path | None, on_error: Callable[[OSError], None]
) -> Iterator[Path]:
    """Regular files, and links that lead nowhere, which are slides that are lost; also those of linked folders.

    Every folder is looked into once, however many links lead there, and by its own path where it has one.
    """
    seen: set[Path] = set()
    for parent, folders, names in os.walk(folder, onerror=on_error, followlinks=True):
        here, where = Path(parent), real(Path(parent))
        # Only the system may look into lost+found at the top of many disks. A link upwards adds nothing.
        inside = [name for name in folders if not name.startswith(".") and name != "lost+found"]
        inside = [name for name in inside if not where.is_relative_to(real(here / name))]
        folders.clear()
        if where in seen:
            continue
        seen.add(where)
        if not os.access(here, os.X_OK):
            # Its names can be listed, and no file be opened.
            on_error(PermissionError(EACCES, os.strerror(EACCES), parent))
            continue
        with suppress(OSError):
            if RUN in names and (here / RUN).is_file() and is_run((here / RUN).read_bytes()):
                left_out.results.extend([] if lies_in(here, out) else [str(here)])
                continue
        folders.extend(sorted(inside, key=lambda name: ((here / name).is_symlink(), name)))
        paths = (here / name for name in names)
        yield from (path for path in paths if path.is_file() or (path.is_symlink() and not path.exists()))


def real(path: Path) -> Path:
    """The one path to which all others lead; ``Path.resolve`` fails where links lead to each other."""
    return Path(os.path.realpath(path))


def lies_in(path: Path, folder: Path | None) -> bool:
    """Whether a path is a folder or leads into it."""
    return folder is not None and real(path).is_relative_to(real(folder))


def is_annotation(path: Path) -> bool:
    """Whether a file is a mask of a dataset."""
    images = path.parent.parent / IMAGES
    return is_mask(PurePosixPath(path), [PurePosixPath(images)] if images.is_dir() else [])
