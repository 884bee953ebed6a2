"""The slides at an address: which objects are slides, and which belong together; fetched while they are read.

Whoever has a slide in the cache holds a lock that ends with its process, and deletes it in the end; what killed
processes left is deleted when the next slide is fetched.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.io import writing
from ntrm.core.locks import holding
from ntrm.results.manifest import is_run
from ntrm.results.paths import RUN
from ntrm.slides.object_store import Address, NoSuchObjectError, ObjectStore, RemoteFile
from ntrm.slides.slide_folders import LeftOut, belongs_to, has_parts, is_mask, one_of_each


@dataclass(frozen=True)
class RemoteSlide:
    """The objects of one slide; most slides are a single one."""

    address: Address  # Of the file that is opened
    files: tuple[RemoteFile, ...]
    """All of them, named below the folder of ``address``; none where there is no such object."""

    @property
    def version(self) -> str:
        """Differs where any object changed, and says nothing about names."""
        return _hash([(file.size, file.version) for file in self.files])

    @property
    def key(self) -> str:
        """Name of its folder in the cache."""
        return _hash([str(self.address), [(file.name, file.size, file.version) for file in self.files]])[:32]


def _hash(document: object) -> str:
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()


class RemoteSlides:
    """Finds slides in object storage, where what lies in ``out`` is a result, and fetches them into a folder.

    ``make_folder`` says into which; it is called for the first address.
    """

    def __init__(self, make_folder: Callable[[], Path], out: Address | None = None) -> None:
        self._make_folder = make_folder
        self.out = out
        self._stores: dict[str, ObjectStore] = {}
        self._listed: dict[Address, list[RemoteFile]] = {}

    @cached_property
    def folder(self) -> Path:
        """Where slides are fetched to."""
        return self._make_folder()

    def path(self, slide: RemoteSlide) -> Path:
        """Where the slide is while it is held."""
        return self.folder / slide.key / slide.address.name

    def store(self, address: Address) -> ObjectStore:
        """The storage of an address."""
        if address.scheme not in self._stores:
            self._stores[address.scheme] = ObjectStore(address.scheme)
        return self._stores[address.scheme]

    def files_under(self, folder: Address) -> list[RemoteFile]:
        """Every object below a folder; listed once."""
        if folder not in self._listed:
            self._listed[folder] = self.store(folder).files_under(folder)
        return self._listed[folder]

    def slide(self, address: Address) -> RemoteSlide | None:
        """The slide that an address names itself; None where it is a folder."""
        file = self.store(address).stat(address)
        if file is None:
            return None
        return self.named(address) if has_parts(PurePosixPath(address.name)) else RemoteSlide(address, (file,))

    def named(self, address: Address) -> RemoteSlide:
        """The slide of a table's row, from a listing of its folder; without files where it is not there."""
        try:
            files = self.files_under(address.parent)
        except NoSuchObjectError:
            files = []
        if not any(file.name == address.name for file in files):
            return RemoteSlide(address, ())
        return _with_parts(address.parent, PurePosixPath(address.name), files)

    def below(self, folder: Address, left_out: LeftOut) -> Iterator[tuple[str, RemoteSlide]]:
        """The slides of a folder, each with its name below it, in the order of a folder on a disk."""
        files = [file for file in self.files_under(folder) if not (folder / file.name).lies_in(self.out)]
        records = [folder / file.name for file in files if PurePosixPath(file.name).name == RUN]
        results = [record.parent for record in records if is_run(self.store(record).read(record) or b"")]
        left_out.results.extend(str(each) for each in results)
        files = [file for file in files if not any((folder / file.name).lies_in(each) for each in results)]
        names = [PurePosixPath(file.name) for file in files]
        folders = {parent for name in names for parent in name.parents}
        taken = (name for name in left_out.slides_among(names) if not is_mask(name, folders))
        by_name = dict(zip(names, files, strict=True))
        for name in one_of_each(taken):
            yield str(name), _with_parts(folder, name, files if has_parts(name) else [by_name[name]])

    @contextmanager
    def holding(self, slide: RemoteSlide, stopped: Callable[[], bool] | None = None) -> Iterator[Path]:
        """Have the slide on disk within the block; it is deleted at the end. Waits for another process that has it.

        Where it can be ``stopped``, because nobody may need it, it is refused instead.
        """
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # What killed processes left.
        for path in self.folder.iterdir():
            if path.is_dir():
                with suppress(RefusedError), holding(self._lock(path.name)):
                    shutil.rmtree(path, ignore_errors=True)
        folder = self.folder / slide.key
        with holding(self._lock(slide.key), wait=stopped is None):
            try:
                with writing(folder):
                    self._fetch(slide, folder, stopped or (lambda: False))
                yield self.path(slide)
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def _lock(self, key: str) -> Path:
        return self.folder / f"{key}.lock"

    def _fetch(self, slide: RemoteSlide, folder: Path, stopped: Callable[[], bool]) -> None:
        """Fetch all objects, and make sure that they are whole and still those that were listed."""
        if not slide.files:
            raise NoSuchObjectError(f"nothing found at {slide.address}", expected="an object that exists")
        store = self.store(slide.address)
        for file in slide.files:
            address, to = slide.address.parent / file.name, folder / file.name
            to.parent.mkdir(parents=True, exist_ok=True)
            store.fetch(address, to, stopped)
            now, size = store.stat(address), to.stat().st_size
            if now is None or (size, now.size, now.version) != (file.size, file.size, file.version):
                raise DataError(
                    f"{address} changed while it was read, or was not downloaded completely",
                    got=f"{size} bytes",
                    expected=f"{file.size} bytes, the same as when the slides were listed",
                    hint="run the same command again when the files no longer change",
                )


def _with_parts(folder: Address, name: PurePosixPath, files: Sequence[RemoteFile]) -> RemoteSlide:
    """A slide with all its objects, named below the slide's own folder."""
    parts = [file for file in files if belongs_to(name, PurePosixPath(file.name))]
    named = (PurePosixPath(file.name).relative_to(name.parent).as_posix() for file in parts)
    renamed = (RemoteFile(short, file.size, file.version) for short, file in zip(named, parts, strict=True))
    return RemoteSlide(folder / str(name), tuple(sorted(renamed)))
