"""A folder of results at an address: the same files as on a disk, so that a plain download opens with every command."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from ntrm.core.errors import DataError, RefusedError
from ntrm.core.io import PARTIAL, sha256_of, write_bytes
from ntrm.core.locks import holding
from ntrm.pipeline.tabulating import tabulate
from ntrm.results.paths import (
    CORRECTED,
    DONE,
    FAILED,
    HIDDEN,
    INDEX,
    LOCK,
    MAPS,
    MASK,
    REPORT,
    RUN,
    SOURCE,
    SUMMARY,
    THUMBNAIL,
    table_file,
)
from ntrm.results.run_record import Run
from ntrm.results.tables import COLUMNS
from ntrm.slides.addresses import Address
from ntrm.slides.object_store import ObjectStore, RemoteFile

AT_A_TIME = 16
"""Small objects that are read or sent side by side: each costs a journey, and hardly any bytes."""
ROUNDS = 5
"""How often tables are made anew because outcomes came meanwhile. Whoever sends an outcome makes the tables after it,
so that nobody has to go on until the last machine is through."""
TABLES, STATES = ".tables", ".states"
"""Folders, in that of the results on this machine: where tables are made, and for states that were looked up."""


class RemoteResults:
    """Results at ``address``; ``work`` is the folder of those that are still to be sent."""

    def __init__(self, address: Address, work: Path) -> None:
        self.address = address
        self.work = work
        self._store = ObjectStore(address.scheme)
        self._there: dict[str, str] = {}
        """By slide: SHA-256 of the ``done.json`` at the address, as far as it is known."""
        self._failed: set[str] = set()
        """Slides of which the address says that they failed."""

    def claim(self, claim: Callable[[], None]) -> None:
        """Make the address a place of this run's results; ``claim`` does so with the folder of this machine."""
        self.work.mkdir(parents=True, exist_ok=True, mode=0o700)
        with holding(self.work / ".claim.lock", wait=True):
            before = self._record()
            if before is None or not _same_run(self.work / RUN, before):
                # Left over from results that are no longer there.
                self._clear()
            if before is not None:
                (self.work / RUN).write_bytes(before)
            claim()
            self._send_run(before, claim)

    def _send_run(self, before: bytes | None, claim: Callable[[], None]) -> None:
        now = (self.work / RUN).read_bytes()
        if before is None and not self._store.create(now, self.address / RUN):
            # Another machine was first: only the same run may go on.
            (self.work / RUN).write_bytes(self._store.read(self.address / RUN) or now)
            claim()
        elif before not in (None, now):
            self._store.write(now, self.address / RUN)

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

    def _clear(self) -> None:
        for path in self.work.iterdir():
            if path.is_dir() or not path.name.endswith("lock"):
                _delete(path)

    def others(self, slide_ids: Collection[str]) -> list[str]:
        """Ids of slides that have an outcome at the address, besides these."""
        return [*self._outcomes([name for name in self._slide_folders() if name not in slide_ids])]

    @contextmanager
    def state_folder(self, slide_id: str) -> Iterator[Path]:
        """A copy of the state that a slide has at the address, for as long as it is looked at."""
        with TemporaryDirectory(prefix="ntrm-state-") as folder:
            for name in (FAILED, SOURCE, DONE):
                content = self._store.read(self.address / slide_id / HIDDEN / name)
                if content is not None:
                    write_bytes(Path(folder) / slide_id / HIDDEN / name, content)
            yield Path(folder) / slide_id

    def _slide_folders(self) -> list[str]:
        return [name for name in self._store.names_in(self.address, folders=True) if not name.startswith(".")]

    def _outcomes(self, slide_ids: Iterable[str]) -> dict[str, list[RemoteFile]]:
        """The outcomes at the address, in the version they have now, of those of these slides that have any."""
        found: dict[str, list[RemoteFile]] = {}

        def note(slide_id: str) -> None:
            files = self._store.files_under(self.address / slide_id / HIDDEN)
            found[slide_id] = [file for file in files if file.name in (DONE, FAILED)]

        _all(note, [*slide_ids])
        return {slide_id: found[slide_id] for slide_id in sorted(found) if found[slide_id]}

    def look_up(self, slide_ids: Iterable[str]) -> None:
        """Fetch, many at a time, what the address knows of these slides."""
        known = set(self._store.names_in(self.address, folders=True))
        _all(self._look_up, [slide_id for slide_id in slide_ids if slide_id in known])

    def _look_up(self, slide_id: str) -> None:
        """Fetch the state of a slide, beside its folder, in which another process may be at work."""
        there = self.address / slide_id / HIDDEN
        names = self._store.names_in(there, folders=False)
        if FAILED in names:
            self._failed.add(slide_id)
        if DONE not in names:
            self._there.pop(slide_id, None)
            return
        for name in (SOURCE, DONE) if SOURCE in names else (DONE,):
            content = self._store.read(there / name) or b""
            write_bytes(self.work / STATES / slide_id / name, content)
        # Of what was read: another process may have taken the file by now.
        self._there[slide_id] = hashlib.sha256(content).hexdigest()

    def is_done(self, slide_id: str) -> bool:
        """Whether the slide was finished when it was looked up."""
        return slide_id in self._there

    def bring(self, slide_id: str) -> None:
        """Bring the state of a slide that is done at the address; one that was not done is looked up again."""
        state, folder = self.work / STATES / slide_id, self.work / slide_id
        # A state that another process looked up may be of results that are no longer there.
        if slide_id not in self._there or not (state / DONE).is_file():
            self._look_up(slide_id)
        if slide_id in self._there:
            _empty(folder)
            for name in (SOURCE, DONE):
                with suppress(FileNotFoundError):
                    (state / name).replace(folder / HIDDEN / name)
        elif not (folder / MASK).is_file():
            # Of a slide that was done at the address, then refused: no results that are still to be sent.
            for name in (DONE, SOURCE):
                (folder / HIDDEN / name).unlink(missing_ok=True)

    def deliver(self, slide_id: str) -> None:
        """Send a finished slide, ``done.json`` last; then only its lock stays on this machine."""
        folder, there = self.work / slide_id, self.address / slide_id
        digest = sha256_of(folder / HIDDEN / DONE)
        if self._there.get(slide_id) != digest:
            if slide_id not in self._there:
                self._send_files(folder, there)
            self._store.send(folder / HIDDEN / DONE, there / HIDDEN / DONE)
            self._there[slide_id] = digest
        if slide_id in self._failed:
            self._store.remove(there / HIDDEN / FAILED)
            self._failed.discard(slide_id)
        _empty(folder)

    def _send_files(self, folder: Path, there: Address) -> None:
        files = [path for path in sorted(folder.rglob("*")) if path.is_file() and _is_sent(path.relative_to(folder))]
        names = [path.relative_to(folder).as_posix() for path in files]
        _all(lambda name: self._store.send(folder / name, there / name), names)
        sizes = {file.name: file.size for file in self._store.files_under(there)}
        short = [path for path, name in zip(files, names, strict=True) if sizes.get(name) != path.stat().st_size]
        if short:
            raise DataError(
                f"not every file was uploaded completely to {there}",
                got=f"{short[0].name}: {sizes.get(short[0].relative_to(folder).as_posix())} bytes",
                expected=f"{short[0].stat().st_size} bytes",
                hint="run the same command again to upload what is missing",
            )

    def deliver_failure(self, slide_id: str) -> None:
        """Send why a slide failed."""
        path = self.work / slide_id / HIDDEN / FAILED
        if path.is_file():
            self._store.send(path, self.address / slide_id / HIDDEN / FAILED)
            self._failed.add(slide_id)

    def missing(self, slide_ids: Collection[str]) -> list[str]:
        """Slides of which the address knows no outcome yet."""
        # A slide that is being sent has a folder already.
        known = self._outcomes({*slide_ids}.intersection(self._slide_folders()))
        return [slide_id for slide_id in slide_ids if slide_id not in known]

    def tabulate(self, run: Run, covariates: Sequence[str], *, report: bool) -> list[str]:
        """Write the tables and the overview of every slide at the address; returns what was left out, and why.

        No lock is between machines: one that began before a slide was there may send its tables after those with the
        slide. So whoever has sent tables looks whether they still tell all that is there.
        """
        notes: list[str] = []
        with holding(self.work / f"{TABLES}.lock", wait=True):
            now = self._outcomes(self._slide_folders())
            for _ in range(ROUNDS):
                before, notes = now, self._tabulate([*now], run, covariates, report=report)
                now = self._outcomes(self._slide_folders())
                if now == before:
                    break
        return notes

    def _tabulate(self, names: Sequence[str], run: Run, covariates: Sequence[str], *, report: bool) -> list[str]:
        """The same once, of these slides."""
        folder = self.work / TABLES
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
        _all(lambda name: self._fetch_row(folder / name, self.address / name, report=report), names)
        self._fetch_palette(folder, names)
        before = self._store.read(self.address / RUN)
        (folder / RUN).write_bytes(before or (self.work / RUN).read_bytes())
        notes = tabulate(folder, run, covariates, report=report)
        made = [*map(table_file, COLUMNS), *([INDEX] if report else [])]
        for name in [*made, *([RUN] if (folder / RUN).read_bytes() != before else [])]:
            self._store.send(folder / name, self.address / name)
        shutil.rmtree(folder, ignore_errors=True)
        return notes

    def _fetch_row(self, folder: Path, there: Address, *, report: bool) -> None:
        """What the tables and the overview say of a slide."""
        wanted = [f"{HIDDEN}/{DONE}", f"{HIDDEN}/{FAILED}", f"{CORRECTED}/{SUMMARY}", *([THUMBNAIL] if report else [])]
        for name in wanted:
            content = self._store.read(there / name)
            if content is not None:
                write_bytes(folder / name, content)
        versions = [("", there), *([(CORRECTED, there / CORRECTED)] if (folder / CORRECTED).is_dir() else [])]
        for version, address in versions if report else []:
            if REPORT in self._store.names_in(address, folders=False):
                # The overview only asks whether it is there.
                write_bytes(folder / version / REPORT, b"")

    def _fetch_palette(self, folder: Path, names: Sequence[str]) -> None:
        """The overview has the colours of the first mask."""
        first = next((name for name in names if (folder / name / HIDDEN / DONE).is_file()), None)
        if first is not None:
            self._store.fetch(self.address / first / MASK, folder / first / MASK)


def _all(work: Callable[[str], None], names: Sequence[str]) -> None:
    with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="ntrm-objects") as pool:
        for _ in pool.map(work, names):
            pass


def _is_sent(name: Path) -> bool:
    """All that a local folder of results would keep, but the state, which comes last."""
    hidden = name.parts[0] == HIDDEN
    left_out = hidden and (name.parts[1] in (MAPS, DONE, FAILED) or name.name.endswith(LOCK))
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
