"""The slides at an address: which objects there are slides, and which belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import PurePosixPath

from ntrm.results.paths import RUN
from ntrm.results.run_record import is_run
from ntrm.slides.addresses import Address
from ntrm.slides.object_store import NoSuchObjectError, RemoteFile
from ntrm.slides.slide_cache import RemoteSlide, SlideCache
from ntrm.slides.slide_names import LeftOut, belongs_to, has_parts, is_mask, one_of_each


class RemoteSlides:
    """Finds slides in object storage; what lies in ``out`` is a result."""

    def __init__(self, make_cache: Callable[[], SlideCache], out: Address | None = None) -> None:
        self._make_cache = make_cache
        self.out = out
        self._listed: dict[Address, list[RemoteFile]] = {}

    @cached_property
    def cache(self) -> SlideCache:
        """Where slides are fetched to; made for the first address."""
        return self._make_cache()

    def files_under(self, folder: Address) -> list[RemoteFile]:
        """Every object below a folder; listed once."""
        if folder not in self._listed:
            self._listed[folder] = self.cache.store(folder).files_under(folder)
        return self._listed[folder]

    def slide(self, address: Address) -> RemoteSlide | None:
        """The slide that an address names itself; None where it is a folder."""
        file = self.cache.store(address).stat(address)
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
        results = self._results_among(folder, files)
        left_out.results.extend(str(each) for each in results)
        files = [file for file in files if not any((folder / file.name).lies_in(each) for each in results)]
        names = [PurePosixPath(file.name) for file in files]
        folders = {parent for name in names for parent in name.parents}
        taken = (name for name in left_out.slides_among(names) if not is_mask(name, folders))
        by_name = dict(zip(names, files, strict=True))
        for name in one_of_each(taken):
            if has_parts(name):
                yield str(name), _with_parts(folder, name, files)
            else:
                main = by_name[name]
                yield str(name), RemoteSlide(folder / main.name, (RemoteFile(name.name, main.size, main.version),))

    def _results_among(self, folder: Address, files: Sequence[RemoteFile]) -> list[Address]:
        """Folders that ``ntrm segment`` wrote to before: their pictures are no slides."""
        store = self.cache.store(folder)
        records = (folder / file.name for file in files if PurePosixPath(file.name).name == RUN)
        return [record.parent for record in records if is_run(store.read(record) or b"")]

    def read(self, address: Address) -> bytes:
        """The bytes of a table of slides."""
        content = self.cache.store(address).read(address)
        if content is None:
            raise NoSuchObjectError(f"nothing found at {address}", expected="a table of slides")
        return content


def _with_parts(folder: Address, name: PurePosixPath, files: Sequence[RemoteFile]) -> RemoteSlide:
    """A slide with all its objects, named below the slide's own folder."""
    parts = [file for file in files if belongs_to(name, PurePosixPath(file.name))]
    named = (PurePosixPath(file.name).relative_to(name.parent).as_posix() for file in parts)
    renamed = (RemoteFile(short, file.size, file.version) for short, file in zip(named, parts, strict=True))
    return RemoteSlide(folder / str(name), tuple(sorted(renamed)))
