"""The slides of a folder on a disk, also of the folders in it and of those that links lead to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from errno import EACCES
from pathlib import Path, PurePosixPath

from ntrm.core.errors import DataError
from ntrm.results.paths import RUN
from ntrm.results.run_record import is_run
from ntrm.slides.slide_names import IMAGES, LeftOut, is_mask, one_of_each

OnError = Callable[[OSError], None]


def refuse(error: OSError) -> None:
    """A patient's slides must not be missing only because their folder has other permissions."""
    raise DataError(
        f"cannot read the folder {error.filename}",
        got=error.strerror,
        expected="a folder that can be read",
        hint="change its permissions, or name the other folders one by one",
    ) from error


def slides_in(
    folder: Path, left_out: LeftOut, *, out: Path | None = None, on_error: OnError = refuse
) -> Iterator[Path]:
    """Slides in a fixed order. What lies in ``out`` is a result, and so is what lies in folders of earlier results.

    ``on_error`` is called for a folder that cannot be looked into; where it raises nothing, the others go on.
    """
    files = (PurePosixPath(path.relative_to(folder)) for path in _files_under(folder, left_out, out, on_error))
    names = (name for name in left_out.slides_among(files) if not is_annotation(folder / name))
    yield from (folder / name for name in one_of_each(names) if not lies_in(folder / name, out))


def _files_under(folder: Path, left_out: LeftOut, out: Path | None, on_error: OnError) -> Iterator[Path]:
    """Regular files, and links that lead nowhere, which are slides that are lost; also those of linked folders.

    Every folder is looked into once, however many links lead there. A link to a folder around it adds nothing.
    """
    seen: set[Path] = set()
    tops = [folder]
    while tops:
        links: list[Path] = []
        for parent, folders, names in (found for top in tops for found in os.walk(top, onerror=on_error)):
            here, where = Path(parent), real(Path(parent))
            # Only the system may look into lost+found at the top of many disks.
            folders[:] = [name for name in folders if not name.startswith(".") and name != "lost+found"]
            if where in seen:
                folders.clear()
                continue
            seen.add(where)
            if not os.access(here, os.X_OK):
                # Its names can be listed, and no file be opened.
                folders.clear()
                on_error(PermissionError(EACCES, os.strerror(EACCES), parent))
                continue
            if RUN in names and _holds_results(here):
                folders.clear()
                left_out.results.extend([] if lies_in(here, out) else [str(here)])
                continue
            links += [here / name for name in folders if (here / name).is_symlink()]
            paths = (here / name for name in names)
            yield from (path for path in paths if path.is_file() or (path.is_symlink() and not path.exists()))
        tops = [link for link in sorted(links) if not real(link.parent).is_relative_to(real(link))]


def _holds_results(folder: Path) -> bool:
    try:
        return (folder / RUN).is_file() and is_run((folder / RUN).read_bytes())
    except OSError:
        return False


def real(path: Path) -> Path:
    """The one path to which all others lead; ``Path.resolve`` fails where links lead to each other."""
    return Path(os.path.realpath(path))


def lies_in(path: Path, folder: Path | None) -> bool:
    """Whether a path is a folder or leads into it."""
    return folder is not None and real(path).is_relative_to(real(folder))


def is_annotation(path: Path) -> bool:
    """Whether a file is a mask of a dataset."""
    images = PurePosixPath(path.parent.parent / IMAGES)
    return is_mask(PurePosixPath(path), [images] if Path(images).is_dir() else [])
