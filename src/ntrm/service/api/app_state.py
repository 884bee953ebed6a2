"""Everything that the requests of one service share."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path

import numpy as np
from anyio import CapacityLimiter

from ntrm.core.errors import NtrmError
from ntrm.correct.log import Stamp, read_log, stamp_of
from ntrm.correct.results import correction_in
from ntrm.correct.slide import SlideCorrections
from ntrm.correct.state import State
from ntrm.results.documents import read_summary
from ntrm.results.folder import ResultsFolder
from ntrm.results.paths import CORRECTED, CORRECTIONS, REGIONS, SUMMARY, table_file
from ntrm.results.slide_state import finished
from ntrm.results.tables import FOOT, is_own_column, read_table
from ntrm.service.api.access import Access
from ntrm.service.api.schemas import SlideDocument, slide_document
from ntrm.service.core.audit import Audit
from ntrm.service.core.model_info import ModelFacts, read_facts
from ntrm.service.core.problems import is_full, missing
from ntrm.service.core.settings import AUDIT, DATABASE, INCOMING, SERVICE_FOLDER, TRASH, UPLOADS, ServiceSettings
from ntrm.service.core.watch import Watch
from ntrm.service.jobs.catalogue import Catalogue
from ntrm.service.jobs.database import JobStore
from ntrm.service.jobs.slide_record import SlideRow
from ntrm.service.jobs.supervisor import Supervisor
from ntrm.service.tiles.caches import TileStore
from ntrm.service.tiles.geometry import DeepZoom
from ntrm.service.tiles.mask_tiles import FILES, MaskGrid, MaskLayers
from ntrm.service.tiles.readers import Readers
from ntrm.service.tiles.region_finder import RegionFinder
from ntrm.service.tiles.slide_tiles import SlideTiles
from ntrm.slides.inputs import source_fingerprint
from ntrm.slides.isolated import ReadingLimits
from ntrm.slides.readers.reader import ArrayCache

_log = logging.getLogger(__name__)
CHORE_SECONDS = 60.0
IDLE_SECONDS = 600.0  # Slides that nobody views are closed after this
END_SECONDS = 5.0  # How long the end waits for what is done beside the requests
OPEN_RESULTS = 32
HEAVY = 2  # Previews of corrections at a time
OPEN_CORRECTIONS = 16
MOST_TABLE = 2**28  # Bytes of the table of a slide's regions
FINGERPRINTS = 4096  # Of originals, kept: each is two reads of the file; and numbers of corrections


class OpenResults:
    """The results of one finished slide: the layers of its masks, and its regions, which are read when asked for."""

    def __init__(self, folder: Path) -> None:
        grid = read_summary(folder).grid
        self.bounds = grid.area
        self.layers = MaskLayers(folder, MaskGrid(DeepZoom(*grid.area[2:]), *grid.to_level0[:2]))
        self._folder = folder

    @cached_property
    def regions(self) -> RegionFinder:
        """Finds the region at a point."""
        if (state := finished(self._folder)) is None:
            raise _no_results()
        return RegionFinder(state.tables["regions"], self._folder / REGIONS)


class AppState:
    """Database, workers, open slides and results, tiles."""

    def __init__(self, settings: ServiceSettings) -> None:
        # Absolute: one name for one folder, which is then sure to be recognised and left out of answers.
        self.settings = settings = replace(settings, out=settings.out.absolute())
        hidden, limits = settings.hidden, settings.limits
        ResultsFolder(settings.out).own(SERVICE_FOLDER)
        for name in (UPLOADS, INCOMING, TRASH):
            (hidden / name).mkdir(exist_ok=True, mode=0o700)
        self.store = JobStore(hidden / DATABASE)
        self.audit = Audit(hidden / AUDIT)
        self.access = Access(settings)
        self.readers = Readers(limits.open_slides, ReadingLimits(limits.read_memory_mb, limits.open_seconds))
        self.tiles = TileStore(limits)
        self.watch = Watch()  # What fails of all that is done beside the requests
        self.catalogue = Catalogue(settings, self.store, self.readers, self.audit.note)
        self.supervisor = Supervisor(settings, self.store, self.watch)
        self.heavy = CapacityLimiter(HEAVY)
        """For what takes a processor, and memory, for up to a second: few threads, so that others stay free."""
        self._pixels = ArrayCache(limits.tile_cache_bytes // 2)
        self._model: ModelFacts | None = None
        self.naming = threading.Lock()  # Held while a name is chosen for a new slide
        self.uploads = 0  # Uploads in progress
        self._stop = threading.Event()
        self._chores = threading.Thread(target=self._do_chores, name="chores", daemon=True)
        self.search = self._new_search()
        """Looks for the originals of results; in a thread of its own, since the roots may be large and far away."""

    def open(self) -> None:
        """Begin: clean up after a service that was killed, adopt results, start the workers."""
        for leftover in (self.settings.hidden / INCOMING).iterdir():
            leftover.unlink(missing_ok=True)
        self.watch.run("emptying the trash", self.catalogue.empty_trash)
        # Nothing begins before this is done.
        self.catalogue.check()
        try:
            self.supervisor.reclaim()
            self.catalogue.open()
        except sqlite3.Error as error:
            if not is_full(error):
                raise
            _log.warning("the disk is full: delete slides, and start the service again")
        for thread in (self.supervisor, self._chores, self.search):
            thread.start()
        self.audit.note("start")

    def close(self) -> None:
        """Stop the workers, close the files."""
        self._stop.set()
        self.supervisor.stop()
        self.tiles.close()
        self.readers.close_unused()
        for thread in (self._chores, self.search):
            thread.join(END_SECONDS)
        self.audit.note_refusals()
        self.audit.note("stop")
        self.audit.close()
        self.store.close()

    @property
    def model(self) -> ModelFacts | None:
        """None while it is being fetched."""
        if self._model is None:
            self._model = read_facts(self.settings)
        return self._model

    def document(self, slide: SlideRow, waiting: list[str] | None = None) -> SlideDocument:
        """A slide as it is shown."""
        waiting = self.store.waiting() if waiting is None else waiting
        return slide_document(slide, self.catalogue.facts(slide), waiting, self.corrected_count(slide))

    # A slide's files

    def folder(self, slide: SlideRow) -> Path:
        """Of its results."""
        return self.settings.out / slide.slide_id

    def revision(self, slide: SlideRow) -> tuple[Stamp, Stamp]:
        """Changes whenever the results do, or when a ground truth is added to them."""
        made, truth = (stamp_of(self.folder(slide) / name) for name in (SUMMARY, FILES["truth"]))
        if made is None:
            raise _no_results()
        return made, truth

    def tile_revision(self, slide: SlideRow, corrections: State | None = None) -> str:
        """Short, and another one whenever tiles of the slide are: of its original, results or corrections."""
        key: list[object] = [] if corrections is None else [step.when for step in corrections.steps]
        for stamp in (self.original, self.revision):
            with suppress(NtrmError):  # there may be none
                key.append(stamp(slide))
        return hashlib.sha256(repr(key).encode()).hexdigest()[:16]

    def results(self, slide: SlideRow) -> OpenResults:
        """The results of a finished slide."""
        return _results(self.folder(slide), self.revision(slide))

    def original(self, slide: SlideRow) -> tuple[Path, tuple[str, int, int]]:
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
        path, key = self.original(slide)
        with self.readers.using(path, alone=slide.alone) as reader:
            yield SlideTiles(reader, self._pixels, key)

    # Corrections

    def corrections_of(self, slide: SlideRow) -> SlideCorrections:
        """What people made of a slide's mask."""
        return _corrections(self.folder(slide), self.revision(slide))

    def corrections_at(self, slide: SlideRow, version: int | None) -> tuple[int, State]:
        """The corrections after a step of the log, or after the last one, and its number."""
        current = self.corrections_of(slide)
        newest = current.log.version
        if version is not None and version > newest:
            raise missing("there is no such version", f"the newest is {newest}")
        return newest if version is None else version, current.state(version)

    def corrected_value(self, slide: SlideRow, version: int, row: int, column: int, network: int | None) -> int:
        """The value of the corrected mask at a pixel, where the network's is known: class + 1, 0 is nothing."""
        _, corrections = self.corrections_at(slide, version)
        # 0 is nothing, and becomes 255.
        label = np.array([[network or 0]], dtype=np.uint8) - np.uint8(1)
        return (int(corrections.at(np.array([row]), np.array([column]), label)[0, 0]) + 1) % 256

    def corrected_regions(self, slide: SlideRow, version: int) -> RegionFinder | None:
        """The regions of the corrected mask of this version; None where its files are of another, or not there."""
        steps, folder = self.corrections_of(slide).log.at(version).fingerprint, self.folder(slide)
        return _corrected_regions(folder, steps, stamp_of(folder / CORRECTED / SUMMARY))

    def corrected_count(self, slide: SlideRow) -> int | None:
        """Corrections that count; None where they cannot be read."""
        folder = self.folder(slide)
        stamp = stamp_of(folder / CORRECTIONS) if slide.status == "done" else None
        return 0 if stamp is None else _count(folder, stamp)

    def is_corrected(self, slide: SlideRow, there: SlideCorrections) -> bool:
        """Whether the files of the corrected mask are up to date; if not, they are made soon."""
        ready = there.is_written
        if not ready:
            self.store.ask_again(slide.id, "correct")
        return ready

    def corrected_failure(self, slide: SlideRow) -> str | None:
        """Why the files of the corrected mask could not be made the last time."""
        job = self.store.job(slide.id, "correct")
        said = [(job.error or {}).get(key) for key in ("what", "got", "hint")] if job else []
        return "; ".join(each for each in said if each) or None

    # From time to time

    def _do_chores(self) -> None:
        chores: dict[str, Callable[[], object]] = {
            "closing slides": partial(self.readers.close_unused, idle_seconds=IDLE_SECONDS),
            "noting refusals": self.audit.note_refusals,
            "emptying the trash": self.catalogue.empty_trash,
            "deleting old slides": self.catalogue.retire,
            "looking around": self._look_around,
        }
        while not self._stop.wait(CHORE_SECONDS):
            for name, work in chores.items():
                self.watch.run(name, work)

    def _look_around(self) -> None:
        if self.catalogue.look_around() and not self.search.is_alive():
            self.search = self._new_search()
            self.search.start()

    def _new_search(self) -> threading.Thread:
        work = partial(self.watch.run, "the search for originals", lambda: self.catalogue.find_originals(self._stop))
        return threading.Thread(target=work, name="originals", daemon=True)


@lru_cache(OPEN_RESULTS)
def _results(folder: Path, _revision: tuple[Stamp, Stamp]) -> OpenResults:
    return OpenResults(folder)


@lru_cache(OPEN_CORRECTIONS)
def _corrections(folder: Path, _revision: tuple[Stamp, Stamp]) -> SlideCorrections:
    """Another one when the mask is another; it follows its log by itself."""
    return SlideCorrections(folder)


@lru_cache(OPEN_CORRECTIONS)
def _corrected_regions(folder: Path, steps: str, _made: Stamp) -> RegionFinder | None:
    made = correction_in(folder)
    if made is None or made.log != steps:
        return None
    table = read_table(folder / CORRECTED / table_file("regions"), most=MOST_TABLE)
    rows = [{name: cell for name, cell in row.items() if is_own_column(name) and name not in FOOT} for row in table]
    return RegionFinder(rows, folder / CORRECTED / REGIONS)


@lru_cache(FINGERPRINTS)
def _count(folder: Path, _changed: Stamp) -> int | None:
    """The log is read again when it has changed."""
    try:
        return len(read_log(folder).active)
    except NtrmError:
        return None


@lru_cache(FINGERPRINTS)
def _fingerprint(path: Path, _changed: int, _size: int) -> str | None:
    """Of the file as it is now; it is read again when it has changed."""
    return source_fingerprint(path)


def _no_results() -> NtrmError:
    return missing("the slide has no results", "wait until its status is done")
