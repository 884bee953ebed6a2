"""Slides at an address, fetched into a folder of bounded size: whole or not at all, by one process at a time.

A slide's folder is named after its address, sizes and ETags, so that another version of an object is another slide. It
is filled under a temporary name and renamed. Whoever reads a slide holds a lock that ends with its process; without
such a reader, the slide that was used longest ago makes room first.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.io import PARTIAL, writing
from ntrm.core.locks import holding, is_held
from ntrm.slides.addresses import Address
from ntrm.slides.object_store import NoSuchObjectError, ObjectStore, RemoteFile

SPARE_BYTES = 256 * 2**20
"""That the cache leaves free on its disk: results are written there, too."""


@dataclass(frozen=True)
class RemoteSlide:
    """The objects of one slide; most slides are a single one."""

    address: Address
    """Of the file that is opened."""
    files: tuple[RemoteFile, ...]
    """All of them, named below the folder of ``address``; none where there is no such object."""

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(file.size for file in self.files)

    @property
    def version(self) -> str:
        """Differs where any object changed, and says nothing about names."""
        return _hash([(file.size, file.version) for file in self.files])

    @property
    def key(self) -> str:
        """Of the folder in the cache."""
        return _hash([str(self.address), [(file.name, file.size, file.version) for file in self.files]])[:32]


def _hash(document: object) -> str:
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()


class SlideCache:
    """Slides under ``folder``, at most ``limit`` bytes of them."""

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder = folder
        self.limit = limit
        self._stores: dict[str, ObjectStore] = {}

    def path(self, slide: RemoteSlide) -> Path:
        """Where the slide is, or will be."""
        return self.folder / slide.key / slide.address.name

    def store(self, address: Address) -> ObjectStore:
        """The storage of an address."""
        if address.scheme not in self._stores:
            self._stores[address.scheme] = ObjectStore(address.scheme)
        return self._stores[address.scheme]

    @contextmanager
    def holding(self, slide: RemoteSlide, stopped: Callable[[], bool] = lambda: False) -> Iterator[Path]:
        """Have the slide on disk within the block; fetches it, or waits for the process that does."""
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            used = self._lock(slide.key).open("w")
        with used:
            fcntl.flock(used, fcntl.LOCK_SH)
            if not self._is_there(slide.key):
                with holding(self.folder / f"{slide.key}.fetch", wait=True):
                    if not self._is_there(slide.key):
                        self._fetch(slide, stopped)
            os.utime(self.folder / slide.key)
            yield self.path(slide)

    def _lock(self, key: str) -> Path:
        return self.folder / f"{key}.lock"

    def _is_there(self, key: str) -> bool:
        return (self.folder / key).is_dir()

    def _fetch(self, slide: RemoteSlide, stopped: Callable[[], bool]) -> None:
        if not slide.files:
            raise NoSuchObjectError(
                f"nothing found at {slide.address}", expected="an object that exists", hint="check the address"
            )
        with holding(self.folder / "room.lock", wait=True), writing(self.folder):
            self._make_room(slide)
            # The name reserves room for what is still to come.
            partial = Path(tempfile.mkdtemp(prefix=f"{PARTIAL}{slide.key}-{slide.size}-", dir=self.folder))
        try:
            for file in slide.files:
                self._fetch_file(slide.address.parent / file.name, file, partial / file.name, stopped)
            partial.rename(self.folder / slide.key)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _fetch_file(self, address: Address, file: RemoteFile, to: Path, stopped: Callable[[], bool]) -> None:
        """Fetch one object, and make sure that it is whole and still the one that was listed."""
        with writing(to.parent):
            to.parent.mkdir(parents=True, exist_ok=True)
        store = self.store(address)
        store.fetch(address, to, stopped)
        now, size = store.stat(address), to.stat().st_size
        if now is None or (now.size, now.version) != (file.size, file.version):
            raise DataError(
                f"{address} changed while it was read",
                got="other bytes than when the slides were listed",
                expected="slides that stay as they are during a run",
                hint="run the command again when the files no longer change",
            )
        if size != file.size:
            hint = "run the same command again; if this does not help, upload the slide again"
            raise DataError(
                f"{address} was not downloaded completely",
                got=f"{size} bytes",
                expected=f"{file.size} bytes",
                hint=hint,
            )

    def _make_room(self, slide: RemoteSlide) -> None:
        """Delete what nobody reads, the longest unused first, until the slide fits."""
        if slide.size > self.limit:
            raise RefusedError(
                f"{slide.address} does not fit into the cache",
                got=f"{slide.size / 1e9:.3g} GB",
                expected=f"at most {self.limit / 1e9:.3g} GB",
                hint="choose a larger disk with --cache",
            )
        used = self._remove_leftovers(slide.key)
        folders = [path for path in self.folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
        folders.sort(key=lambda path: path.stat().st_mtime)
        sizes = {path: sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) for path in folders}
        used += sum(sizes.values())
        for path, size in sizes.items():
            if self._fits(slide.size, used):
                return
            used -= size if self._evict(path) else 0
        if not self._fits(slide.size, used):
            raise DataError(
                f"no room in the cache for {slide.address}",
                got=f"{shutil.disk_usage(self.folder).free / 1e9:.3g} GB free, {used / 1e9:.3g} GB in use",
                expected=f"room for {slide.size / 1e9:.3g} GB, and {SPARE_BYTES / 1e9:.2g} GB to spare",
                hint="free some space, choose another --cache",
            )

    def _fits(self, size: int, used: int) -> bool:
        return used + size <= self.limit and shutil.disk_usage(self.folder).free >= size + SPARE_BYTES

    def _evict(self, path: Path) -> bool:
        """Delete a slide unless somebody reads it."""
        try:
            with holding(self._lock(path.name)):
                # Renamed first: a process that is killed now leaves no half of a slide.
                gone = path.with_name(f"{PARTIAL}{path.name}-gone")
                path.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)
        except RefusedError:
            return False
        return True

    def _remove_leftovers(self, own: str) -> int:
        """Delete what killed processes left; returns the bytes that others are fetching now."""
        reserved = 0
        for path in self.folder.glob(f"{PARTIAL}*"):
            key, size, *_ = path.name.removeprefix(PARTIAL).split("-")
            # Whoever fetches a slide holds its lock: of this one we do.
            if key != own and size.isdigit() and is_held(self.folder / f"{key}.fetch"):
                reserved += int(size)
            else:
                shutil.rmtree(path, ignore_errors=True)
        return reserved
