"""Slides and results at an address: fetched before the network works on a slide, sent when its files are finished.

The results at the address are the truth, and the same files as on a disk. On this machine there is a folder for the
slides that are not finished yet; once the files of a slide are sent, with ``done.json`` last, they are deleted here. So
another machine with an empty disk sees which slides are done, and a process that is killed at any moment leaves nothing
half that looks whole.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from ntrm.core.errors import DataError, NtrmError, RefusedError
from ntrm.core.io import PARTIAL, holding, write_bytes
from ntrm.data.cache import default_folder
from ntrm.results import paths
from ntrm.results.manifest import Manifest
from ntrm.results.paths import DONE, FAILED, HIDDEN, LOCK, MASK, RUN, SOURCE
from ntrm.results.tables import COLUMNS
from ntrm.segment.tabulating import tabulate
from ntrm.slides.inputs import SlideInput
from ntrm.slides.object_store import Address, NoSuchObjectError, ObjectStore, RemoteFile, RemoteSlide, RemoteSlides
from ntrm.slides.slide_ids import KnownResults

AT_A_TIME = 16  # Small objects that are read or sent side by side: each costs a journey, and hardly any bytes
ROUNDS = 5
"""How often tables are made anew because outcomes came meanwhile. Whoever sends an outcome makes the tables after it,
so that nobody has to go on until the last machine is through."""


@dataclass(frozen=True)
class Storage:
    """Where things lie: plain data, also for workers on other machines."""

    cache: Path | None = None  # Folder on this machine; by default one in that of ``NTRM_CACHE``
    out: Address | None = None  # Of the results; None where they are in a folder

    @property
    def folder(self) -> Path:
        """The cache; only an address needs one."""
        return (default_folder() / "remote" if self.cache is None else self.cache).absolute()


class RemoteResults(KnownResults):
    """Results at ``address``; ``out`` is the folder on this machine of those that are still to be sent."""

    def __init__(self, address: Address, cache: Path) -> None:
        super().__init__(cache / "results" / hashlib.sha256(str(address).encode()).hexdigest()[:32])
        self.address = address
        self._store = ObjectStore(address.scheme)

    def check_folder(self, claim: Callable[[], None]) -> None:
        """Make the address a place of this run's results; ``claim`` does so with the folder of this machine."""
        self.out.mkdir(parents=True, exist_ok=True, mode=0o700)
        with holding(self.out / ".claim.lock", wait=True):
            # Looked at before the record: a run that another machine begins meanwhile is then nothing strange.
            strange = next((name for name in self._files() if not name.startswith(".")), None)
            before = self._store.read(self.address / RUN)
            if before is not None:
                (self.out / RUN).write_bytes(before)
            elif strange is not None:
                what = f"{self.address} is not empty and holds no results"
                raise RefusedError(what, got=strange, hint="choose a new or an empty folder for --out")
            else:
                # Left over from results that are no longer there.
                _delete(path for path in self.out.iterdir() if path.is_dir() or not path.name.endswith("lock"))
            claim()
            if before is not None or self._store.create((self.out / RUN).read_bytes(), self.address / RUN):
                return
        self.check_folder(claim)  # another machine was first: only the same run may go on

    def _files(self) -> dict[str, RemoteFile]:
        """Every object at the address, by its name below it."""
        with suppress(NoSuchObjectError):
            return {file.name: file for file in self._store.files_under(self.address)}
        return {}

    def outcomes(self) -> dict[tuple[str, str], RemoteFile]:
        """The records of slides' outcomes at the address, in their versions of now, by slide and name."""
        records = ((name.split("/"), file) for name, file in self._files().items())
        return {(name[0], name[2]): file for name, file in records if name[1:] in ([HIDDEN, DONE], [HIDDEN, FAILED])}

    def others(self, slide_ids: Collection[str]) -> list[str]:
        """Ids of slides that have an outcome at the address, besides these."""
        return sorted({slide_id for slide_id, _ in self.outcomes()} - {*slide_ids})

    @contextmanager
    def state_folder(self, slide_id: str) -> Iterator[Path]:
        """A copy of the state that a slide has at the address, for as long as it is looked at."""
        with TemporaryDirectory(prefix="ntrm-state-") as folder:
            for name in (FAILED, SOURCE, DONE):
                content = self._store.read(self.address / slide_id / HIDDEN / name)
                if content is not None:
                    write_bytes(Path(folder) / slide_id / HIDDEN / name, content)
            yield Path(folder) / slide_id

    def bring(self, slide_id: str) -> None:
        """Have here what the address knows of a finished slide. The caller holds the slide's lock."""
        folder = self.out / slide_id
        with self.state_folder(slide_id) as state:
            if (state / HIDDEN / DONE).is_file():
                _clear(folder)
                shutil.copytree(state, folder, dirs_exist_ok=True)
            elif not (folder / MASK).is_file():
                # Of a slide that was done at the address, then refused: no results that are still to be sent.
                _delete(path for path in (folder / HIDDEN / DONE, folder / HIDDEN / SOURCE) if path.is_file())

    def deliver(self, slide_id: str) -> None:
        """Send a finished slide, ``done.json`` last; then only its lock stays on this machine."""
        folder, there = self.out / slide_id, self.address / slide_id
        if self._store.read(there / HIDDEN / DONE) != (folder / HIDDEN / DONE).read_bytes():
            if (folder / MASK).is_file():
                self._send_files(folder, there)
            self._store.send(folder / HIDDEN / DONE, there / HIDDEN / DONE)
        self._store.remove(there / HIDDEN / FAILED)
        _clear(folder)

    def _send_files(self, folder: Path, there: Address) -> None:
        """All that a local folder of results would keep, but the outcome, which comes last, and locks."""
        every = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
        ends = (f"{HIDDEN}/{DONE}", f"{HIDDEN}/{FAILED}", LOCK)
        files = {k: path for k, path in every.items() if not (k.endswith(ends) or path.name.startswith(PARTIAL))}
        _all(lambda name: self._store.send(files[name], there / name), files)
        sizes = {file.name: file.size for file in self._store.files_under(there)}
        for name, path in files.items():
            if sizes.get(name) != path.stat().st_size:
                raise DataError(
                    f"not every file was uploaded completely to {there}",
                    got=f"{path.name}: {sizes.get(name)} bytes",
                    expected=f"{path.stat().st_size} bytes",
                    hint="run the same command again to upload what is missing",
                )

    def deliver_failure(self, slide_id: str) -> None:
        """Send why a slide failed; where even that fails, the command still tells it."""
        path = self.out / slide_id / HIDDEN / FAILED
        with suppress(NtrmError, OSError):
            if path.is_file():
                self._store.send(path, self.address / slide_id / HIDDEN / FAILED)

    def tabulate(self, run: Manifest, covariates: Sequence[str], *, report: bool) -> list[str]:
        """Write the tables and the overview of every slide at the address; returns what was left out, and why.

        No lock is between machines: one that began before a slide was there may send its tables after those with the
        slide. So whoever has sent tables looks whether they still tell all that is there.
        """
        with holding(self.out / ".tables.lock", wait=True):
            for _ in range(ROUNDS):
                before, notes = self.outcomes(), self._tabulate(run, covariates, report=report)
                if self.outcomes() == before:
                    break
        return notes

    def _tabulate(self, run: Manifest, covariates: Sequence[str], *, report: bool) -> list[str]:
        """The same once, in a folder to which what tables and overview say of the slides is fetched."""
        seen = {paths.THUMBNAIL, paths.REPORT, f"{paths.CORRECTED}/{paths.REPORT}"} if report else set()
        wanted = seen | {f"{HIDDEN}/{DONE}", f"{HIDDEN}/{FAILED}", f"{paths.CORRECTED}/{paths.SUMMARY}"}
        below = [(name, name.partition("/")[2]) for name in self._files()]
        names = [name for name, of_slide in below if of_slide in wanted]
        # The overview has the colours of the first mask.
        names += [name for name, of_slide in below if of_slide == MASK][:1]
        folder = self.out / ".tables"
        shutil.rmtree(folder, ignore_errors=True)

        def fetch(name: str) -> None:
            # Of a report it is only asked whether it is there.
            content = b"" if name.endswith(paths.REPORT) else self._store.read(self.address / name)
            if content is not None:
                write_bytes(folder / name, content)

        before = self._store.read(self.address / RUN)
        write_bytes(folder / RUN, before or (self.out / RUN).read_bytes())
        _all(fetch, names)
        notes = tabulate(folder, run, covariates, report=report)
        made = [*map(paths.table_file, COLUMNS), *([paths.INDEX] if report else [])]
        for name in [*made, *([RUN] if (folder / RUN).read_bytes() != before else [])]:
            self._store.send(folder / name, self.address / name)
        shutil.rmtree(folder)
        return notes


def _all(work: Callable[[str], None], names: Iterable[str]) -> None:
    with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="ntrm-objects") as pool:
        for _ in pool.map(work, names):
            pass


def _clear(folder: Path) -> None:
    """Delete what was sent; ``done.json`` first, so that no half of a slide is taken for a whole one."""
    (folder / HIDDEN / DONE).unlink(missing_ok=True)
    _delete(path for path in [*folder.glob("*"), *(folder / HIDDEN).glob("*")] if path.name not in (HIDDEN, LOCK))


def _delete(found: Iterable[Path]) -> None:
    for path in found:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


class FileTransfer:
    """Fetches slides and sends results; does nothing for what is in a folder of this machine."""

    def __init__(self, storage: Storage | None = None) -> None:
        storage = storage or Storage()
        self.slides = RemoteSlides(lambda: storage.folder / "slides", storage.out)
        self.results = None if storage.out is None else RemoteResults(storage.out, storage.folder)
        self._next: dict[RemoteSlide, RemoteSlide] = {}
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="ntrm-fetch")
        self._fetched: dict[RemoteSlide, Future[ExitStack | None]] = {}
        self._stopped = threading.Event()

    def expect(self, slides: Mapping[str, SlideInput]) -> None:
        """Say which slides, by id, will be asked for: each is fetched while the one before is worked on."""
        known = {} if self.results is None else self.results.outcomes()
        left = [slide.remote for name, slide in slides.items() if slide.remote and (name, DONE) not in known]
        self._next = dict(pairwise(left))

    @contextmanager
    def at_hand(self, slide: SlideInput) -> Iterator[None]:
        """Have the slide's file where ``slide.path`` says, and begin to fetch the next one."""
        with ExitStack() as stack:
            if slide.remote is not None:
                ahead = self._fetched.pop(slide.remote, None)
                stack.enter_context((ahead and ahead.result()) or self.slides.holding(slide.remote))
                if following := self._next.get(slide.remote):
                    self._fetched[following] = self._ahead.submit(self._fetch, following)
            yield

    def _fetch(self, slide: RemoteSlide) -> ExitStack | None:
        """Hold a slide; None where something is wrong, which will be told when the slide is needed."""
        with suppress(NtrmError, OSError), ExitStack() as stack:
            stack.enter_context(self.slides.holding(slide, self._stopped.is_set))
            return stack.pop_all()
        return None

    def close(self) -> None:
        """Stop fetching ahead."""
        self._stopped.set()
        self._ahead.shutdown(wait=True, cancel_futures=True)
        for ahead in self._fetched.values():
            if not ahead.cancelled() and (held := ahead.result()) is not None:
                held.close()
