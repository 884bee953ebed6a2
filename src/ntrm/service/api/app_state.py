"""Everything that the requests of one service share."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from anyio import CapacityLimiter

from ntrm.core.errors import NtrmError
from ntrm.core.io import APPEND
from ntrm.core.wording import NO_MODEL
from ntrm.correct.log import Stamp, read_log, stamp_of
from ntrm.correct.results import correction_in
from ntrm.correct.slide import SlideCorrections
from ntrm.correct.state import State
from ntrm.models.config import ModelConfig
from ntrm.models.folders import CONFIG, locate, read_config
from ntrm.results.classes import folder_classes
from ntrm.results.documents import read_summary
from ntrm.results.folder import ResultsFolder
from ntrm.results.manifest import check_out, read_run
from ntrm.results.paths import CLASSES, CORRECTED, CORRECTIONS, REGIONS, SUMMARY, table_file
from ntrm.results.slide_state import finished
from ntrm.results.tables import FOOT, is_own_column, read_table
from ntrm.service.api.access import Access
from ntrm.service.api.schemas import SlideDocument, slide_document
from ntrm.service.core.problems import ProblemError, is_full, missing
from ntrm.service.core.settings import AUDIT, DATABASE, INCOMING, SERVICE_FOLDER, TRASH, UPLOADS, ServiceSettings
from ntrm.service.jobs.catalogue import Catalogue
from ntrm.service.jobs.database import JobStore
from ntrm.service.jobs.rows import SlideRow
from ntrm.service.jobs.supervisor import Supervisor, Watch
from ntrm.service.tiles.layers import FILES, MaskLayers
from ntrm.service.tiles.readers import Readers
from ntrm.service.tiles.region_finder import RegionFinder
from ntrm.service.tiles.slide_tiles import SlideTiles, TileStore
from ntrm.slides.inputs import source_fingerprint
from ntrm.slides.isolated import ReadingLimits
from ntrm.slides.readers.reader import ArrayCache

_log = logging.getLogger(__name__)
CHORE_SECONDS = 60.0
IDLE_SECONDS = 600.0  # Slides that nobody views are closed after this
END_SECONDS = 5.0  # How long the end waits for what is done beside the requests
OPENED = 32  # Results and corrections that are kept open
MOST_TABLE = 2**28  # Bytes of the table of a slide's regions
FINGERPRINTS = 4096  # Of originals, kept: each is two reads of the file; and numbers of corrections


class Audit(RotatingFileHandler):
    """JSON lines for nobody else; a full file becomes ``audit.jsonl.1`` and so on, the oldest of ten is dropped."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=8 * 2**20, backupCount=9, delay=True)

    def _open(self) -> TextIOWrapper:
        return os.fdopen(os.open(self.baseFilename, APPEND, 0o600), "a", encoding="utf-8")

    def note(self, action: str, slide: str = "", outcome: str = "ok") -> None:
        """Add a line; one that cannot be written is reported on stderr."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"time": time, "action": action, "slide": slide, "outcome": outcome})
        self.handle(logging.makeLogRecord({"msg": line}))


class AppState:
    """Database, workers, open slides and results, tiles."""

    def __init__(self, settings: ServiceSettings) -> None:
        # Absolute: one name for one folder, which is then sure to be recognised and left out of answers.
        self.settings = settings = replace(settings, out=settings.out.absolute())
        hidden, limits = settings.hidden, settings.limits
        ResultsFolder(settings.out).own(SERVICE_FOLDER)
        for name in (UPLOADS, INCOMING, TRASH):
            (hidden / name).mkdir(exist_ok=True, mode=0o700)
        run = check_out(settings.out)
        self.blank = run if run is not None and run.model is None else None
        """What a folder began with in which tissues are named from nothing, without a model."""
        known = (None, None) if self.blank else read_config(locate(settings.model) / CONFIG)
        self._model: ModelConfig | None = known[0]
        self.weights_sha256: str | None = known[1]
        self.store = JobStore(hidden / DATABASE)
        self.audit = Audit(hidden / AUDIT)
        self.access = Access(settings)
        self.readers = Readers(limits.open_slides, ReadingLimits(limits.read_memory_mb, limits.open_seconds))
        self.tiles = TileStore(limits)
        self.watch = Watch()  # What fails of all that is done beside the requests
        self.catalogue = Catalogue(settings, self.store, self.readers)
        self.supervisor = Supervisor(settings, self.store, self.watch)
        self.heavy = CapacityLimiter(2)
        """For what takes a processor, and memory, for up to a second: few threads, so that others stay free."""
        self.naming = threading.Lock()  # Held while a name is chosen for a new slide
        self.uploads = 0  # Uploads in progress
        self._pixels = ArrayCache(limits.tile_cache_bytes // 2)
        self._stop = threading.Event()
        self._chores = threading.Thread(target=self._do_chores, name="chores", daemon=True)
        self.searched = threading.Event()  # Set once the originals of results were looked for: roots may be far away

    def open(self) -> None:
        """Begin: clean up after a service that was killed, adopt results, start the workers."""
        for leftover in (self.settings.hidden / INCOMING).iterdir():
            leftover.unlink(missing_ok=True)
        self.watch.run("emptying the trash", self.catalogue.empty_trash)
        # Nothing begins before this is done.
        self.catalogue.check()
        try:
            self.store.reclaim(())  # The workers of a service that was killed ended with it.
            self.catalogue.open()
        except sqlite3.Error as error:
            if not is_full(error):
                raise
            _log.warning("the disk is full: delete slides, and start the service again")
        self.supervisor.start()
        self._chores.start()
        self.audit.note("start")

    def close(self) -> None:
        """Stop the workers, close the files."""
        self._stop.set()
        self.supervisor.stop()
        self.tiles.close()
        self.readers.close_unused()
        self._chores.join(END_SECONDS)
        self.audit.note("stop")
        self.audit.close()
        self.store.close()

    @property
    def model(self) -> ModelConfig:
        """The model; without one, what stands in its place, with the classes as people call them now."""
        out = self.settings.out
        return self._model or _stand_in(out, stamp_of(out / CLASSES))

    def check_worker(self) -> None:
        """Refuse what no worker would ever do."""
        if (refusal := self.supervisor.refusal) is not None:
            said: dict[str, Any] = {key: refusal.get(key) for key in ("what", "got", "expected")}
            raise ProblemError(503, "no_worker", **said, hint=refusal.get("hint") or "")

    def document(self, slide: SlideRow, waiting: list[str] | None = None) -> SlideDocument:
        """A slide as it is shown."""
        waiting = self.store.waiting() if waiting is None else waiting
        stamp = stamp_of(self.folder(slide) / CORRECTIONS) if slide.status == "done" else None
        corrections = 0 if stamp is None else _count(self.folder(slide), stamp)
        return slide_document(slide, self.catalogue.results(slide), waiting, corrections)

    # A slide's files

    def folder(self, slide: SlideRow) -> Path:
        """Of its results."""
        return self.settings.out / slide.slide_id

    def _revision(self, slide: SlideRow) -> tuple[Stamp, ...]:
        """Changes whenever the results do, when a ground truth is added to them, or a class is changed."""
        folder = self.folder(slide)
        made, *others = map(stamp_of, (folder / SUMMARY, folder / FILES["truth"], self.settings.out / CLASSES))
        if made is None:
            raise _no_results()
        return made, *others

    def tile_revision(self, slide: SlideRow, corrections: State | None = None) -> str:
        """Short, and another one whenever tiles of the slide are: of its original, results or corrections."""
        # Two logs may have a step of one number, if somebody moved one of them away.
        key: list[object] = [] if corrections is None else [step.when for step in corrections.steps]
        for stamp in (self._original, self._revision):
            with suppress(NtrmError):  # there may be none
                key.append(stamp(slide))
        return hashlib.sha256(repr(key).encode()).hexdigest()[:16]

    def layers(self, slide: SlideRow) -> MaskLayers:
        """The masks of a finished slide."""
        return _layers(self.folder(slide), self._revision(slide))

    def _original(self, slide: SlideRow) -> tuple[Path, tuple[str, int, int]]:
        """The original's path, and a key that changes whenever the file does."""
        if slide.source is None:
            raise missing("the original of this slide is not known", "start the service with --root FOLDER")
        try:
            status = slide.source.stat()
        except OSError:
            raise missing("the original of this slide is not there any more", "put it back") from None
        file = status.st_mtime_ns, status.st_size
        if slide.status == "done" and slide.fingerprint not in (None, _fingerprint(slide.source, *file)):
            raise missing("the original of this slide was replaced by another file", "put it back")
        return slide.source, (slide.id, *file)

    @contextmanager
    def slide_tiles(self, slide: SlideRow) -> Iterator[SlideTiles]:
        """The original's tiles."""
        path, key = self._original(slide)
        with self.readers.using(path, alone=slide.alone) as reader:
            yield SlideTiles(reader, self._pixels, key)

    # Corrections

    def corrections_of(self, slide: SlideRow) -> SlideCorrections:
        """What people made of a slide's mask."""
        return _corrections(self.folder(slide), self._revision(slide))

    def corrections_at(self, slide: SlideRow, version: int | None) -> State:
        """The corrections after a step of the log, or after the last one."""
        current = self.corrections_of(slide)
        if version is not None and version > current.log.version:
            raise missing("there is no such version", f"the newest is {current.log.version}")
        return current.state(version)

    def regions(self, slide: SlideRow, version: int | None) -> RegionFinder | None:
        """The regions of the network's mask, or of the corrected one of this version: None where it is not made."""
        if not version:
            return _regions(self.folder(slide), self._revision(slide))
        steps, folder = self.corrections_of(slide).log.at(version).fingerprint, self.folder(slide)
        return _corrected_regions(folder, steps, stamp_of(folder / CORRECTED / SUMMARY))

    def corrected(self, slide: SlideRow, there: SlideCorrections) -> tuple[bool, str | None]:
        """Whether the files of the corrected mask are up to date; if not, they are made soon, and why they were not."""
        if there.is_written:
            return True, None
        self.store.ask_again(slide.id, "correct")
        job = self.store.job(slide.id, "correct")
        said = [(job.error or {}).get(key) for key in ("what", "got", "hint")] if job else []
        return False, "; ".join(each for each in said if each) or None

    def _do_chores(self) -> None:
        chores: dict[str, Callable[[], object]] = {
            "closing slides": partial(self.readers.close_unused, IDLE_SECONDS),
            "emptying the trash": self.catalogue.empty_trash,
            "looking around": lambda: self.catalogue.look_around() and self.catalogue.find_originals(self._stop),
        }
        self.watch.run("the search for originals", lambda: self.catalogue.find_originals(self._stop))
        self.searched.set()
        while not self._stop.wait(CHORE_SECONDS):
            for name, work in chores.items():
                self.watch.run(name, work)


# Of the files as they are: each is made anew when they have changed.
_corrections = lru_cache(OPENED)(lambda folder, _revision: SlideCorrections(folder))
_fingerprint = lru_cache(FINGERPRINTS)(lambda path, _changed, _size: source_fingerprint(path))


@lru_cache(OPENED)
def _stand_in(out: Path, _changed: Stamp) -> ModelConfig:
    return ModelConfig("", folder_classes(out), mpp=read_run(out).mpp, name=NO_MODEL)


@lru_cache(OPENED)
def _layers(folder: Path, _revision: tuple[Stamp, ...]) -> MaskLayers:
    grid = read_summary(folder).grid
    return MaskLayers(folder, grid.area, grid.to_level0[:2])


@lru_cache(OPENED)
def _regions(folder: Path, _revision: tuple[Stamp, ...]) -> RegionFinder:
    if (state := finished(folder)) is None:
        raise _no_results()
    return RegionFinder(state.tables["regions"], folder / REGIONS)


@lru_cache(OPENED)
def _corrected_regions(folder: Path, steps: str, _made: Stamp) -> RegionFinder | None:
    made = correction_in(folder)
    if made is None or made.log != steps:
        return None
    table = read_table(folder / CORRECTED / table_file("regions"), most=MOST_TABLE)
    rows = [{name: cell for name, cell in row.items() if is_own_column(name) and name not in FOOT} for row in table]
    return RegionFinder(rows, folder / CORRECTED / REGIONS)


@lru_cache(FINGERPRINTS)
def _count(folder: Path, _changed: Stamp) -> int | None:
    """Corrections that count; None where they cannot be read. The log is read again when it has changed."""
    try:
        return len(read_log(folder).active)
    except NtrmError:
        return None


def _no_results() -> NtrmError:
    return missing("the slide has no results", "wait until its status is done")
