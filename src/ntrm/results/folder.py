"""The one place that opens files of a results folder: whoever handed the folder over may have put anything into it.

Only plain files are read, up to a limit, and no link is followed below the folder: neither another file of the machine
is shown or written to, nor does a pipe or a device keep us waiting. What is refused is an ``OSError`` that says why.
"""

from __future__ import annotations

import functools
import io
import logging
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ntrm.core.errors import BROKEN, DataError, RefusedError
from ntrm.core.io import NO_ARRAYS, arrays_in
from ntrm.results.paths import CLASSES, HIDDEN, INDEX, RUN, TABLES, table_file

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

_log = logging.getLogger(__name__)
MB = 2**20
MOST_PIXELS, MOST_SCANS = 2**25, 16  # Of a picture, and how often a JPEG may go over them
LONGEST = 100  # Characters of a slide's name: a path with some folders before it must fit everywhere
_PLAIN = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_-])?")
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
"""Names that some systems take for devices."""
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
WITH_DESCRIPTORS = os.open in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")


def is_safe_name(name: str) -> bool:
    """Whether a slide's folder may be called so.

    >>> [is_safe_name(name) for name in ("BCC_1", "../x", "ü 1", "end.", "run.json", "nul.tif")]
    [True, False, False, False, False, False]
    """
    # Some file systems ignore case.
    taken = name.lower() in (RUN, INDEX, CLASSES, *map(table_file, TABLES))
    return _PLAIN.fullmatch(name) is not None and len(name) <= LONGEST and not taken and not _RESERVED.fullmatch(name)


@dataclass(frozen=True)
class SlideFolder:
    """A slide's folder of results, or ``corrected`` in it; it may be reached through a link, but not be one."""

    path: Path

    def open(self, *names: str, most: int = 2**44) -> io.BufferedReader:
        """A plain file of at most so many bytes; the last of the names is its own."""
        with _inside(self.path, *names[:-1]) as folder:
            return _plain(names[-1], folder, most)

    def read(self, *names: str, most: int = 256 * MB) -> bytes:
        """Its content."""
        with self.open(*names, most=most) as stream:
            return stream.read(most)

    def has(self, *names: str) -> bool:
        """Whether there is such a plain file."""
        try:
            with _inside(self.path, *names[:-1]) as folder:
                return stat.S_ISREG(folder.stat(names[-1]).st_mode)
        except OSError:
            return False

    def check(self) -> None:
        """Refuse, before anything is written, a link in the place of the folder or of the hidden one in it."""
        for path in (self.path, self.path / HIDDEN):
            if path.is_symlink():
                hint = "put the folder itself there"
                raise DataError(f"{path} is a link", expected="a folder of the results", hint=hint)

    def arrays(self, *names: str, hint: str, most: int = 2**30) -> dict[str, NDArray[Any]]:
        """The arrays of an NPZ file; refused, before any is unpacked, where they have too many bytes."""
        try:
            with self.open(*names, most=2**30) as stream:
                return arrays_in(stream, most)
        except NO_ARRAYS as error:
            raise DataError(f"cannot read {self.path.joinpath(*names)}", got=error, hint=hint) from error

    def picture(self, *names: str) -> tuple[bytes, Image]:
        """A JPEG or PNG as it is, and decoded; its size is known before any pixel is."""
        content = self.read(*names, most=64 * MB)
        return content, _decoded(names[-1], content)

    def remove(self, trash: SlideFolder) -> None:
        """Move the folder, or what lies in its place, into another one and delete it there; no link is followed."""
        name = f"{self.path.name}-{time.time_ns()}"
        with _folder(self.path.parent) as here, _inside(trash.path) as there:
            os.rename(here / self.path.name, there / name, src_dir_fd=here.descriptor, dst_dir_fd=there.descriptor)
            if stat.S_ISDIR(there.stat(name).st_mode):
                # What cannot be deleted now is deleted with the rest of the trash.
                shutil.rmtree(there / name, ignore_errors=True, dir_fd=there.descriptor)
            else:
                os.unlink(there / name, dir_fd=there.descriptor)


@dataclass(frozen=True)
class ResultsFolder:
    """A folder of results; it may be reached through a link, but nothing in it may be one."""

    path: Path

    def __getitem__(self, name: str) -> SlideFolder:
        """A slide's folder, which need not be there yet; refuses a name that is none, and a link."""
        folder = SlideFolder(self.path / name)
        if not is_safe_name(name):
            raise RefusedError("this cannot be a slide's folder", got=repr(name))
        folder.check()
        return folder

    def __iter__(self) -> Iterator[SlideFolder]:
        """The folders of slides by name. Others, links among them, are skipped, and named once in the program's log."""
        seen: set[str] = set()
        for entry in sorted(os.scandir(self.path), key=lambda entry: entry.name):
            name, is_folder = entry.name, entry.is_dir(follow_symlinks=False)
            if not name.startswith(".") and is_folder and is_safe_name(name) and name.lower() not in seen:
                seen.add(name.lower())
                yield SlideFolder(self.path / name)
            elif not name.startswith(".") and entry.is_dir():
                _note_skipped(self.path / name)

    def open(self, name: str, *, most: int = 2**44) -> io.BufferedReader:
        """A plain file beside the folders of slides."""
        with _folder(self.path) as folder:
            return _plain(name, folder, most)

    def own(self, name: str, *, unchecked: str = "trash") -> SlideFolder:
        """The program's own folder, made where there is none: ours, for nobody else, without links in it.

        What lies in the folder ``unchecked`` was moved there to be deleted.
        """
        path = self.path / name
        if not os.path.lexists(path):
            path.mkdir(parents=True, mode=0o700)
        try:
            with _inside(path) as folder:
                if folder.descriptor is not None:  # else the system has no owners and modes like these
                    os.fchmod(folder.descriptor, 0o700)
                    _check_plain(folder.descriptor, unchecked)
        except OSError as error:
            hint = f"move {name} away: a new one is made, and the results are found again"
            raise RefusedError(f"{name} in the results is not the program's own", got=error, hint=hint) from error
        return SlideFolder(path)


def opened_table(path: Path, most: int = 2**44) -> io.BufferedReader:
    """A table of a folder of results, or of a slide's corrected version."""
    return ResultsFolder(path.parent).open(path.name, most=most)


class _Folder(NamedTuple):
    """An open folder; where the system has no descriptors of folders, as Windows, its path."""

    path: Path
    descriptor: int | None

    def __truediv__(self, name: str) -> str:
        return name if self.descriptor is not None else str(self.path / name)

    def stat(self, name: str) -> os.stat_result:
        """Of a file or a link in it."""
        return os.stat(self / name, dir_fd=self.descriptor, follow_symlinks=False)


@contextmanager
def _folder(path: Path, above: _Folder | None = None) -> Iterator[_Folder]:
    """A folder, wherever it lies; one in the folder ``above``, which may then not be a link."""
    if above is not None and not stat.S_ISDIR(above.stat(path.name).st_mode):
        raise OSError(f"{path.name} is a link or no folder")
    if not WITH_DESCRIPTORS:
        yield _Folder(path, None)
        return
    flags = _FOLDER if above is None else _FOLDER | os.O_NOFOLLOW
    descriptor = os.open(path if above is None else path.name, flags, dir_fd=above and above.descriptor)
    try:
        yield _Folder(path, descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _inside(path: Path, *names: str) -> Iterator[_Folder]:
    """A folder below others; from ``path`` on none may be a link."""
    with ExitStack() as opened:
        # A path such as "." has no name.
        folder = opened.enter_context(_folder(path.parent if path.name else path))
        for name in [path.name, *names] if path.name else names:
            folder = opened.enter_context(_folder(folder.path / name, folder))
        yield folder


def _plain(name: str, folder: _Folder, most: int) -> io.BufferedReader:
    """Open a plain file; a device is not even opened, and a pipe is not waited for."""
    if not stat.S_ISREG(folder.stat(name).st_mode):
        raise OSError(f"{name} is a link or no plain file")
    stream = os.fdopen(os.open(folder / name, _FILE, dir_fd=folder.descriptor), "rb")
    status = os.fstat(stream.fileno())
    # It may have been replaced since.
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
        stream.close()
        raise OSError(f"{name} has {status.st_size / MB:,.0f} MB, and at most {most // MB:,} MB are read")
    return stream


def _check_plain(folder: int, unchecked: str) -> None:
    """Refuse a link, a pipe, a device or another user's file in our folder, at any depth."""
    for _, folders, files, descriptor in os.fwalk(dir_fd=folder):
        for name in (".", *folders, *files):
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            is_plain = stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
            if not is_plain or status.st_uid != os.geteuid():
                raise OSError(f"{name} in it is a link, no plain file, or another user's")
        folders[:] = [name for name in folders if name != unchecked]


@functools.cache
def _note_skipped(path: Path) -> None:
    _log.warning("%a is not looked at: a link, a name that is no slide's, or another slide's in other case", path)


def _decoded(name: str, content: bytes) -> Image:
    """The picture in a file's content; an ``OSError`` where it is none, too large or damaged."""
    from PIL import JpegImagePlugin, PngImagePlugin

    kind = JpegImagePlugin.JpegImageFile if content.startswith(b"\xff\xd8\xff") else PngImagePlugin.PngImageFile
    try:
        # The plugin itself: Pillow would also try formats that start other programs.
        picture: Image = kind(io.BytesIO(content))
        width, height = picture.size
        if width * height > MOST_PIXELS or content.count(b"\xff\xda") > MOST_SCANS * (kind.format == "JPEG"):
            raise OSError(f"{width} × {height} pixels")
        picture.load()
    except BROKEN as error:
        raise OSError(f"{name} is no picture that can be read: {error}") from error
    return picture
