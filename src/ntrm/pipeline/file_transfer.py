"""Slides and results at an address: fetched before the network works on a slide, sent when its files are finished.

The results at the address are the truth, and the same files as on a disk. On this machine there is a folder for the
slides that are not finished yet; once the files of a slide are sent, with ``done.json`` last, they are deleted here. So
another machine with an empty disk sees which slides are done, and a process that is killed at any moment leaves nothing
half that looks whole.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from ntrm.core.errors import DataError, NtrmError, RefusedError
from ntrm.core.io import PARTIAL, write_bytes, write_text
from ntrm.core.locks import holding
from ntrm.data.cache import default_folder
from ntrm.pipeline.tabulating import tabulate
from ntrm.results import paths
from ntrm.results.paths import DONE, FAILED, HIDDEN, INDEX, LOCK, MASK, RUN, SOURCE
from ntrm.results.run_record import Run
from ntrm.results.slide_state import made_otherwise, source_version
from ntrm.results.tables import COLUMNS
from ntrm.slides.inputs import SlideInput
from ntrm.slides.object_store import Address, NoSuchObjectError, ObjectStore, RemoteFile
from ntrm.slides.remote_slides import RemoteSlide, RemoteSlides
from ntrm.slides.slide_ids import KnownResults

AT_A_TIME = 16
"""Small objects that are read or sent side by side: each costs a journey, and hardly any bytes."""
ROUNDS = 5
"""How often tables are made anew because outcomes came meanwhile. Whoever sends an outcome makes the tables after it,
so that nobody has to go on until the last machine is through."""
TABLES = ".tables"
"""Folder, in that of the results on this machine, where tables are made."""


class RemoteResults(KnownResults):
    """Results at ``address``; ``work`` is the folder of those that are still to be sent."""

    def __init__(self, address: Address, work: Path) -> None:
        super().__init__(work)
        self.address = address
        self.work = work
        self._store = ObjectStore(address.scheme)

    def claim(self, claim: Callable[[], None]) -> None:
        """Make the address a place of this run's results; ``claim`` does so with the folder of this machine."""
        self.work.mkdir(parents=True, exist_ok=True, mode=0o700)
        here, there = self.work / RUN, self.address / RUN
        with holding(self.work / ".claim.lock", wait=True):
            before = self._record()
            if before is None or not _same_run(here, before):
                # Left over from results that are no longer there.
                for path in self.work.iterdir():
                    if path.is_dir() or not path.name.endswith("lock"):
                        _delete(path)
            if before is not None:
                here.write_bytes(before)
            claim()
            now = here.read_bytes()
            if before is None and not self._store.create(now, there):
                # Another machine was first: only the same run may go on.
                here.write_bytes(self._store.read(there) or now)
                claim()
            elif before not in (None, now):
                self._store.write(now, there)

    def _record(self) -> bytes | None:
        """The record of the run at the address; None where it is empty. Refuses an address of something else."""
        # Looked at before the record: a run that another machine begins meanwhile is then nothing strange.
        names = (name for folders in (False, True) for name in self._store.names_in(self.address, folders=folders))
        strange = next((name for name in names if not name.startswith(".")), None)
        record = self._store.read(self.address / RUN)
        if record is None and strange is not None:
            raise RefusedError(
                f"{self.address} is not empty and holds no results",
                got=strange,
                hint="choose a new or an empty folder for --out",
            )
        return record

    def _listed(self) -> dict[PurePosixPath, RemoteFile]:
        """Every object at the address, by its name below it."""
        try:
            return {PurePosixPath(file.name): file for file in self._store.files_under(self.address)}
        except NoSuchObjectError:
            return {}

    def outcomes(self) -> dict[str, dict[str, RemoteFile]]:
        """By slide, the records of its outcomes at the address in the version they have now, by their names."""
        found: dict[str, dict[str, RemoteFile]] = {}
        for name, file in self._listed().items():
            if name.parts[1:] in ((HIDDEN, DONE), (HIDDEN, FAILED)) and not name.parts[0].startswith("."):
                found.setdefault(name.parts[0], {})[name.name] = file
        return found

    def others(self, slide_ids: Collection[str]) -> list[str]:
        """Ids of slides that have an outcome at the address, besides these."""
        return [name for name in self.outcomes() if name not in slide_ids]

    @contextmanager
    def state_folder(self, slide_id: str) -> Iterator[Path]:
        """A copy of the state that a slide has at the address, for as long as it is looked at."""
        with TemporaryDirectory(prefix="ntrm-state-") as folder:
            self._fetch_state(slide_id, Path(folder) / slide_id)
            yield Path(folder) / slide_id

    def bring(self, slide_id: str) -> None:
        """Have here what the address knows of a finished slide. The caller holds the slide's lock."""
        folder = self.work / slide_id
        if self._is_there(self.address / slide_id / HIDDEN / DONE):
            _empty(folder)
            self._fetch_state(slide_id, folder)
        elif not (folder / MASK).is_file():
            # Of a slide that was done at the address, then refused: no results that are still to be sent.
            for name in (DONE, SOURCE):
                (folder / HIDDEN / name).unlink(missing_ok=True)

    def _is_there(self, address: Address) -> bool:
        return address.name in self._store.names_in(address.parent, folders=False)

    def _fetch_state(self, slide_id: str, folder: Path) -> None:
        for name in (FAILED, SOURCE, DONE):
            content = self._store.read(self.address / slide_id / HIDDEN / name)
            if content is not None:
                write_bytes(folder / HIDDEN / name, content)

    def deliver(self, slide_id: str) -> None:
        """Send a finished slide, ``done.json`` last; then only its lock stays on this machine."""
        folder, there = self.work / slide_id, self.address / slide_id
        if self._store.read(there / HIDDEN / DONE) != (folder / HIDDEN / DONE).read_bytes():
            if (folder / MASK).is_file():
                self._send_files(folder, there)
            self._store.send(folder / HIDDEN / DONE, there / HIDDEN / DONE)
        self._store.remove(there / HIDDEN / FAILED)
        _empty(folder)

    def _send_files(self, folder: Path, there: Address) -> None:
        """All that a local folder of results would keep, but the state, which comes last."""
        every = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
        files = {name.as_posix(): path for name, path in every.items() if _is_sent(name)}
        _all(lambda name: self._store.send(files[name], there / name), [*files])
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
        """Send why a slide failed."""
        path = self.work / slide_id / HIDDEN / FAILED
        if path.is_file():
            self._store.send(path, self.address / slide_id / HIDDEN / FAILED)

    def tabulate(self, run: Run, covariates: Sequence[str], *, report: bool) -> list[str]:
        """Write the tables and the overview of every slide at the address; returns what was left out, and why.

        No lock is between machines: one that began before a slide was there may send its tables after those with the
        slide. So whoever has sent tables looks whether they still tell all that is there.
        """
        notes: list[str] = []
        with holding(self.work / f"{TABLES}.lock", wait=True):
            now = self.outcomes()
            for _ in range(ROUNDS):
                before, notes = now, self._tabulate(now, run, covariates, report=report)
                now = self.outcomes()
                if now == before:
                    break
        return notes

    def _tabulate(self, names: Collection[str], run: Run, covariates: Sequence[str], *, report: bool) -> list[str]:
        """The same once, of these slides: what tables and overview say of them is fetched."""
        folder = self.work / TABLES
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        seen = [paths.THUMBNAIL, paths.REPORT, f"{paths.CORRECTED}/{paths.REPORT}"] if report else []
        wanted = [f"{HIDDEN}/{DONE}", f"{HIDDEN}/{FAILED}", f"{paths.CORRECTED}/{paths.SUMMARY}", *seen]
        there = [str(name) for name in self._listed() if name.parts[0] in names]

        def fetch(name: str) -> None:
            # Of a report it is only asked whether it is there.
            content = b"" if name.endswith(paths.REPORT) else self._store.read(self.address / name)
            if content is not None:
                write_bytes(folder / name, content)

        _all(fetch, [name for name in there if name.partition("/")[2] in wanted])
        for name in [name for name in there if name.partition("/")[2] == MASK][:1]:
            # The overview has the colours of the first mask.
            (folder / name).parent.mkdir(exist_ok=True)
            self._store.fetch(self.address / name, folder / name)
        before = self._store.read(self.address / RUN)
        (folder / RUN).write_bytes(before or (self.work / RUN).read_bytes())
        notes = tabulate(folder, run, covariates, report=report)
        made = [*map(paths.table_file, COLUMNS), *([INDEX] if report else [])]
        for name in [*made, *([RUN] if (folder / RUN).read_bytes() != before else [])]:
            self._store.send(folder / name, self.address / name)
        shutil.rmtree(folder, ignore_errors=True)
        return notes


def _all(work: Callable[[str], None], names: Sequence[str]) -> None:
    with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="ntrm-objects") as pool:
        for _ in pool.map(work, names):
            pass


def _is_sent(name: Path) -> bool:
    hidden = name.parts[0] == HIDDEN
    left_out = hidden and (name.parts[1] in (paths.MAPS, DONE, FAILED) or name.name.endswith(LOCK))
    return not left_out and not name.name.startswith(PARTIAL)


def _empty(folder: Path) -> None:
    """Delete what was sent; ``done.json`` first, so that no half of a slide is taken for a whole one."""
    (folder / HIDDEN / DONE).unlink(missing_ok=True)
    visible = [path for path in folder.iterdir() if path.name != HIDDEN]
    for path in (*visible, *(path for path in (folder / HIDDEN).glob("*") if path.name != LOCK)):
        _delete(path)


def _delete(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _same_run(path: Path, there: bytes) -> bool:
    """Whether a folder's record is that at the address, whatever columns the inputs had."""
    try:
        both = [json.loads(content) | {"covariates": []} for content in (path.read_bytes(), there)]
    except (OSError, ValueError, TypeError):
        return False
    return bool(both[0] == both[1])


@dataclass(frozen=True)
class Storage:
    """Where things lie: plain data, also for workers on other machines."""

    cache: Path | None = None
    """Folder on this machine; by default one in that of ``NTRM_CACHE``."""
    out: Address | None = None
    """Of the results; None where they are in a folder."""

    @property
    def folder(self) -> Path:
        """The cache; only an address needs one."""
        return (default_folder() / "remote" if self.cache is None else self.cache).absolute()

    def shared(self) -> Storage:
        """The same for workers on other machines: slides have one path everywhere."""
        with suppress(RuntimeError):  # a user without a home, who then has no slides from addresses either
            return replace(self, cache=self.folder)
        return self

    def slides(self) -> RemoteSlides:
        """Finds slides, and fetches them."""
        return RemoteSlides(lambda: self.folder / "slides", self.out)

    def work_folder(self) -> Path:
        """Folder of the results that are not at their address yet."""
        return self.folder / "results" / hashlib.sha256(str(self.out).encode()).hexdigest()[:32]

    def results(self) -> RemoteResults | None:
        """The results at their address."""
        return None if self.out is None else RemoteResults(self.out, self.work_folder())


class FileTransfer:
    """Fetches slides and sends results; does nothing for what is in a folder of this machine."""

    def __init__(self, storage: Storage | None = None) -> None:
        self._storage = storage or Storage()
        self.results = self._storage.results()
        self._next: dict[Path, SlideInput] = {}
        self._ahead = ThreadPoolExecutor(1, thread_name_prefix="ntrm-fetch")
        self._fetched: dict[RemoteSlide, Future[ExitStack | None]] = {}
        self._stopped = threading.Event()

    @cached_property
    def _slides(self) -> RemoteSlides:
        return self._storage.slides()

    def expect(self, slides: Sequence[SlideInput], slide_ids: Sequence[str]) -> None:
        """Say which slides will be asked for, in which order: each is fetched while the one before is worked on."""
        known = {} if self.results is None else self.results.outcomes()
        left = [slide for slide, name in zip(slides, slide_ids, strict=True) if DONE not in known.get(name, ())]
        self._next = {slide.path: after for slide, after in pairwise(left)}

    def bring(self, slide_id: str) -> None:
        """Have in the slide's folder what the address knows of a finished slide. The caller holds the slide's lock."""
        if self.results is not None:
            self.results.bring(slide_id)

    @contextmanager
    def at_hand(self, slide: SlideInput) -> Iterator[None]:
        """Have the slide's file where ``slide.path`` says, and begin to fetch the next one."""
        with ExitStack() as stack:
            if slide.remote is not None:
                ahead = self._fetched.pop(slide.remote, None)
                stack.enter_context((ahead and ahead.result()) or self._slides.holding(slide.remote))
            following = self._next.get(slide.path)
            if following is not None and following.remote is not None:
                self._fetched[following.remote] = self._ahead.submit(self._fetch, following.remote)
            yield

    def _fetch(self, slide: RemoteSlide) -> ExitStack | None:
        """Hold a slide; None where something is wrong, which will be told when the slide is needed."""
        with suppress(NtrmError, OSError), ExitStack() as stack:
            stack.enter_context(self._slides.holding(slide, self._stopped.is_set))
            return stack.pop_all()
        return None

    def deliver(self, slide_id: str) -> None:
        """Send the files of a finished slide. The caller holds the slide's lock."""
        if self.results is not None:
            self.results.deliver(slide_id)

    def deliver_failure(self, slide_id: str) -> None:
        """Send why a slide failed; where even that fails, the command still tells it."""
        if self.results is not None:
            with suppress(NtrmError, OSError):
                self.results.deliver_failure(slide_id)

    def close(self) -> None:
        """Stop fetching ahead."""
        self._stopped.set()
        self._ahead.shutdown(wait=True, cancel_futures=True)
        for ahead in self._fetched.values():
            if not ahead.cancelled() and (held := ahead.result()) is not None:
                held.close()
        self._fetched.clear()


def remember_objects(folder: Path, slide: SlideInput) -> None:
    """Keep which version of its objects a finished slide was."""
    if slide.remote is not None:
        write_text(folder / HIDDEN / SOURCE, f"{slide.remote.version}\n")


def check_objects(folder: Path, slide: SlideInput) -> None:
    """A finished slide never stands for objects that were replaced since."""
    if slide.remote is not None and slide.remote.files and source_version(folder) not in (None, slide.remote.version):
        raise made_otherwise("another file", folder)
