"""Everything that the requests of one service share."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from pathlib import Path

import numpy as np
from anyio import CapacityLimiter

from ntrm.core.errors import NtrmError
from ntrm.correction.log import read_log
from ntrm.correction.results import is_current
from ntrm.correction.state import Corrections
from ntrm.results.documents import read_summary
from ntrm.results.folder import ResultsFolder, SlideFolder
from ntrm.results.paths import CORRECTIONS, REGIONS, SUMMARY
from ntrm.results.slide_state import BusyError, alone, finished
from ntrm.service.api.access import Access
from ntrm.service.api.schemas import SlideDocument, slide_document
from ntrm.service.core.audit import Audit
from ntrm.service.core.model_info import ModelFacts, read_facts
from ntrm.service.core.problems import ProblemError, conflict, is_full, missing
from ntrm.service.core.settings import (
    AUDIT,
    DATABASE,
    INCOMING,
    LOG,
    LOST,
    SERVICE_FOLDER,
    THUMBNAILS,
    TRASH,
    UPLOADS,
    ServiceSettings,
    upload_path,
)
from ntrm.service.core.watch import Watch
from ntrm.service.corrections.slide_corrections import CorrectionStore, SlideCorrections
from ntrm.service.corrections.writer import CorrectedWriter
from ntrm.service.jobs.adoption import Skipped, adopt, find_originals, forget_vanished, renew
from ntrm.service.jobs.database import JobStore
from ntrm.service.jobs.graph_jobs import MAKING
from ntrm.service.jobs.slide_record import DONE, FOUND, RUNNING, UPLOAD, Slide
from ntrm.service.jobs.supervisor import Supervisor
from ntrm.service.tiles.caches import OpenPool, TileStore
from ntrm.service.tiles.geometry import DeepZoom
from ntrm.service.tiles.mask_tiles import FILES, MaskGrid, MaskLayers
from ntrm.service.tiles.region_finder import RegionFinder
from ntrm.service.tiles.slide_tiles import Readers, SlideTiles
from ntrm.slides.inputs import source_fingerprint
from ntrm.wsi.isolated import ReadingLimits
from ntrm.wsi.readers.reader import ArrayCache

_log = logging.getLogger(__name__)
CHORE_SECONDS = 60.0
IDLE_SECONDS = 600.0
"""Slides that nobody views are closed after this."""
SEARCH_SECONDS = 5.0
"""How long the end waits for the search for originals."""
OPEN_RESULTS = 32
HEAVY = 2
"""Previews of corrections at a time."""
FINGERPRINTS = 4096
"""Of originals, kept: each is two reads of the file."""
DAY = 86_400.0


class OpenResults:
    """The results of one finished slide: the layers of its masks, and its regions, which are read when asked for."""

    def __init__(self, folder: Path, cache: ArrayCache) -> None:
        grid = read_summary(folder).grid
        self.bounds = grid.area
        self.layers = MaskLayers(folder, MaskGrid(DeepZoom(*grid.area[2:]), *grid.to_level0[:2]), cache)
        self._folder = folder

    @cached_property
    def regions(self) -> RegionFinder:
        """Finds the region at a point."""
        state = finished(self._folder)
        if state is None:
            raise _no_results()
        return RegionFinder(state.tables["regions"], self._folder / REGIONS)


class AppState:
    """Database, workers, open slides and results, tiles."""

    def __init__(self, settings: ServiceSettings) -> None:
        # Absolute: one name for one folder, which is then sure to be recognised and left out of answers.
        self.settings = settings = replace(settings, out=settings.out.absolute())
        hidden, limits = settings.hidden, settings.limits
        self._results_folder = ResultsFolder(settings.out)
        self._results_folder.own(SERVICE_FOLDER)
        for name in (UPLOADS, INCOMING, TRASH, THUMBNAILS):
            (hidden / name).mkdir(exist_ok=True, mode=0o700)
        self.store = JobStore(hidden / DATABASE)
        self.audit = Audit(hidden / AUDIT)
        self.access = Access(settings)
        self.readers = Readers(limits.open_slides, ReadingLimits(limits.read_memory_mb, limits.open_seconds))
        self.tiles = TileStore(limits)
        self.watch = Watch()
        """What fails of all that is done beside the requests."""
        self.skipped = Skipped(_shown)
        self.supervisor = Supervisor(settings, self.store, self._chores, self.watch)
        self.corrections = CorrectionStore()
        self.corrected = CorrectedWriter(settings.out, hidden / LOG, self.watch)
        self.heavy = CapacityLimiter(HEAVY)
        """For what takes a processor, and memory, for up to a second: few threads, so that others stay free."""
        self._pixels = ArrayCache(limits.tile_cache_bytes // 2)
        self._results: OpenPool[OpenResults] = OpenPool(OPEN_RESULTS, lambda results: results.layers.close())
        self._model: ModelFacts | None = None
        self._purging = threading.Lock()
        self.naming = threading.Lock()
        """Held while a name is chosen for a new slide."""
        self.uploads = 0
        """Uploads in progress."""
        self.search: threading.Thread | None = None
        """Looks for the originals of results; alive while it does."""
        self._stop = threading.Event()
        self._next_chore = 0.0
        self._offset = _clock_offset()

    def open(self) -> None:
        """Begin: clean up after a service that was killed, adopt results, start the workers."""
        for leftover in (self.settings.hidden / INCOMING).iterdir():
            leftover.unlink(missing_ok=True)
        self.watch.run("emptying the trash", self._empty_trash)
        # Nothing begins before this is done.
        self.store.drop_bad(_shown, self._may_read)
        try:
            self._take_stock()
        except sqlite3.Error as error:
            if not is_full(error):
                raise
            _log.warning("the disk is full: delete slides, and start the service again")
        self._find_originals()
        threading.Thread(target=self.readers.warm_up, daemon=True).start()
        self.supervisor.start()
        self.corrected.start(self._behind)
        self.audit.note("start")

    def _take_stock(self) -> None:
        """What an earlier service left, and what other programs did meanwhile."""
        self.supervisor.reclaim(blame=False)
        adopt(self.settings.out, self.store, self.skipped)
        renew(self.settings.out, self.store, self.skipped)
        forget_vanished(self.settings.out, self.store)
        self._set_aside_unknown()

    def _may_read(self, path: Path) -> bool:
        """Whether a file lies below one of the roots that the service was started with."""
        place = Path(os.path.realpath(path))
        roots = (root.resolve() for root in self.settings.roots)
        return SERVICE_FOLDER not in place.parts and any(place.is_relative_to(root) for root in roots)

    def close(self) -> None:
        """Stop the workers, close the files."""
        self._stop.set()
        self.corrected.stop()
        self.supervisor.stop()
        self.tiles.close()
        self.readers.close()
        self._results.close_unused()
        if self.search is not None:
            self.search.join(SEARCH_SECONDS)
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

    # A slide's files

    def folder(self, slide: Slide) -> Path:
        """Of its results."""
        return self.settings.out / slide.slide_id

    def revision(self, slide: Slide) -> int:
        """Changes whenever the results do, or when a ground truth is added to them."""
        try:
            made = (self.folder(slide) / SUMMARY).stat().st_mtime_ns
        except OSError:
            raise _no_results() from None
        try:
            return made ^ (self.folder(slide) / FILES["truth"]).stat().st_mtime_ns
        except OSError:
            return made

    def tile_revision(self, slide: Slide, corrections: Corrections | None = None) -> str:
        """Short, and another one whenever tiles of the slide are: of its original, results or corrections."""
        key: list[object] = [] if corrections is None else [step.when for step in corrections.steps]
        for stamp in (self.original, self.revision):
            with suppress(NtrmError):  # there may be none
                key.append(stamp(slide))
        return hashlib.sha256(repr(key).encode()).hexdigest()[:16]

    def results(self, slide: Slide) -> AbstractContextManager[OpenResults]:
        """The results of a finished slide, open until the block ends."""
        key = (slide.id, self.revision(slide))
        return self._results.hold(key, lambda: OpenResults(self.folder(slide), self._pixels))

    def original(self, slide: Slide) -> tuple[Path, tuple[str, int, int]]:
        """The original's path, and a key that changes whenever the file does."""
        if slide.source is None:
            raise missing("the original of this slide is not known", "start the service with --root FOLDER")
        try:
            status = slide.source.stat()
        except OSError:
            raise missing("the original of this slide is not there any more", "put it back") from None
        file = status.st_mtime_ns, status.st_size
        if slide.status == DONE and slide.fingerprint not in (None, _fingerprint(slide.source, *file)):
            raise missing("the original of this slide was replaced by another file", "put it back")
        return slide.source, (slide.id, *file)

    @contextmanager
    def slide_tiles(self, slide: Slide) -> Iterator[SlideTiles]:
        """The original's tiles."""
        path, key = self.original(slide)
        with self.readers.using(path, alone=slide.alone) as reader:
            yield SlideTiles(reader, self._pixels, key)

    # Corrections

    def corrections_of(self, slide: Slide, *, graph: bool = False) -> SlideCorrections:
        """What people made of a slide's mask so far; on request with its region graph, if that is there."""
        return self.corrections.of((slide.id, self.revision(slide)), self.folder(slide), graph=graph)

    def corrections_at(self, slide: Slide, version: int | None) -> tuple[int, Corrections]:
        """The corrections after a step of the log, or after the last one, and its number."""
        key = slide.id, self.revision(slide)
        found = self.corrections.at_version(key, self.folder(slide), version)
        if version is not None and version > found[0]:
            raise missing("there is no such version", f"the newest is {found[0]}")
        return found

    def corrected_value(self, slide: Slide, version: int, row: int, column: int, network: int | None) -> int:
        """The value of the corrected mask at a pixel, where the network's is known: class + 1, 0 is nothing."""
        _, corrections = self.corrections_at(slide, version)
        # 0 is nothing, and becomes 255.
        label = np.array([[network or 0]], dtype=np.uint8) - np.uint8(1)
        return (int(corrections.at(np.array([row]), np.array([column]), label)[0, 0]) + 1) % 256

    def corrected_regions(self, slide: Slide, version: int) -> RegionFinder | None:
        """The regions of the corrected mask of this version; None until its files are made."""
        return self.corrections.regions((slide.id, self.revision(slide)), self.folder(slide), version)

    def has_region_graph(self, slide: Slide) -> bool:
        """Whether parts can be named, and names carried on."""
        return self.corrections.has_graph((slide.id, self.revision(slide)), self.folder(slide))

    def corrected_count(self, slide: Slide) -> int | None:
        """Corrections that count; None where they cannot be read."""
        return self.corrections.count(self.folder(slide)) if slide.status == DONE else 0

    def is_corrected(self, slide: Slide, there: SlideCorrections) -> bool:
        """Whether the files of the corrected mask are up to date; if not, they are made soon."""
        folder = self.folder(slide)
        ready = is_current(folder, there.log)
        if not ready:
            self.corrected.ask(folder, again=True)
        return ready

    def _behind(self) -> list[Path]:
        """Folders whose corrected files an earlier service left undone."""
        folders = []
        for slide in self.store.every(DONE):
            folder = self.folder(slide)
            if self._stop.is_set():
                break
            # What is damaged is reported to whoever looks at it.
            with suppress(NtrmError):
                if (folder / CORRECTIONS).is_file() and not is_current(folder, read_log(folder)):
                    folders.append(folder)
        return folders

    # Deleting

    def delete(self, slide: Slide) -> None:
        """Remove a slide with its upload and its results, also on a full disk; a running job is ended first."""
        try:
            self._mark_deleted(slide)
        except (sqlite3.Error, OSError) as error:
            if not is_full(error) or slide.status == RUNNING:
                raise
            # Removing the slide's files first makes the room to record it.
            with self._purging:
                self._remove_files(slide)
            self._mark_deleted(slide)
        self.audit.note("delete", slide.slide_id)
        left = self.purge().get(slide.id)
        if left is not None:
            hint = "look who may write to them; the service tries again from time to time"
            raise ProblemError(500, "not_removed", "not all files could be removed", got=left, hint=hint) from left

    def _mark_deleted(self, slide: Slide) -> None:
        folder, graph = self.folder(slide), self.store.graphs.get(slide.id)
        self.corrected.drop(folder)
        if slide.status != RUNNING and (graph is None or graph.status != MAKING) and _is_there(folder):
            try:
                with alone(folder):
                    self.store.mark_deleted(slide.id)
            except BusyError as error:
                raise conflict("another program works on this slide", hint="wait until it ends") from error
        else:
            self.store.mark_deleted(slide.id)

    def purge(self) -> dict[str, OSError]:
        """Remove the files of deleted slides that nobody works on; by the id, what did not go."""
        failed = {}
        with self._purging:
            for slide in self.store.to_purge():
                try:
                    self._remove_files(slide)
                    # Last, when there is room: the database writes even to forget.
                    self.store.forget(slide.id)
                except BusyError:  # another program has begun to work on it: then later
                    continue
                except OSError as error:
                    if is_full(error):
                        raise
                    failed[slide.id] = error
        return failed

    def _remove_files(self, slide: Slide) -> None:
        hidden, folder = self.settings.hidden, self.folder(slide)
        if _is_there(folder):
            with alone(folder):
                self._results_folder[slide.slide_id].remove(SlideFolder(hidden / TRASH))
            # The tables and the overview must not name it any more either.
            self.corrected.ask_tables()
        if slide.origin == UPLOAD:
            # Never its source, which may be a file with the same content below a root.
            upload = upload_path(hidden, slide.id)
            self.readers.forget(upload)
            upload.unlink(missing_ok=True)
        for picture in (hidden / THUMBNAILS).glob(f"{slide.id}*.jpg"):
            picture.unlink(missing_ok=True)
        self._results.close_unused(which=lambda key: key[0] == slide.id)
        self.corrections.forget(slide.id)
        self._empty_trash(f"{slide.slide_id}-*")

    def _empty_trash(self, which: str = "*") -> None:
        for leftover in (self.settings.hidden / TRASH).glob(which):
            # Follows no link, also where one is put in while it works.
            shutil.rmtree(leftover)

    def _set_aside_unknown(self) -> None:
        """Uploads of no slide: a service was killed before it recorded them, or the database was moved away."""
        known, lost = self.store.ids(), self.settings.hidden / LOST
        for path in (self.settings.hidden / UPLOADS).iterdir():
            if path.name not in known:
                lost.mkdir(exist_ok=True, mode=0o700)
                path.rename(lost / path.name)
                _log.warning("an upload that belongs to no slide was moved to %s", lost / path.name)
                self.audit.note("set aside", path.name)

    # From time to time

    def _find_originals(self) -> None:
        """In a thread of its own: the roots may be large and far away."""

        def search() -> None:
            try:
                find_originals(self.store, self.settings.roots, self._stop)
            except sqlite3.Error:
                # Listing a large root went on after the end, when the database was closed.
                if not self._stop.is_set():
                    raise

        work = partial(self.watch.run, "the search for originals", search)
        self.search = threading.Thread(target=work, name="originals", daemon=True)
        self.search.start()

    def _chores(self) -> None:
        """Called often, from a thread of the supervisor."""
        for error in self.purge().values():
            raise error
        if time.monotonic() < self._next_chore:
            return
        self._next_chore = time.monotonic() + CHORE_SECONDS
        chores = (self._close_unused, self.audit.note_refusals, self.retire, self._look_around)
        for chore in chores:
            self.watch.run(chore.__name__, chore)

    def _close_unused(self) -> None:
        self.readers.close_unused(idle_seconds=IDLE_SECONDS)
        self.corrections.close_unused(IDLE_SECONDS)

    def _look_around(self) -> None:
        """Another program may have put results here, made them anew, or taken them away."""
        out, store, skipped = self.settings.out, self.store, self.skipped
        if [*adopt(out, store, skipped), *renew(out, store, skipped)]:
            self._find_originals()
        forget_vanished(out, store)

    def retire(self) -> None:
        """Delete what is older than wanted; results that were there before the service stay."""
        days = self.settings.retention_days
        # A clock that was set while the service runs would make everything old at once.
        if days is None or abs(_clock_offset() - self._offset) > DAY:
            return
        for slide in self.store.every():
            if slide.origin != FOUND and slide.finished is not None and time.time() - slide.finished > days * DAY:
                try:
                    self.delete(slide)
                except NtrmError:
                    continue


def _shown(slide: Slide) -> SlideDocument:
    """A slide as it is shown; raises where it cannot be."""
    return slide_document(slide, [], None)


@lru_cache(FINGERPRINTS)
def _fingerprint(path: Path, _changed: int, _size: int) -> str | None:
    """Of the file as it is now; it is read again when it has changed."""
    return source_fingerprint(path)


def _clock_offset() -> float:
    """Seconds by which the time of day is ahead of that since the machine's start: constant unless a clock is set."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def _is_there(folder: Path) -> bool:
    """Whether there are results; a link is none of ours, nor is what it leads to."""
    return folder.is_dir() and not folder.is_symlink()


def _no_results() -> NtrmError:
    return missing("the slide has no results", "wait until its status is done")
