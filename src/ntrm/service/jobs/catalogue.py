"""The slides of a folder of results: which rows and which folders there are, and how both go."""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Event

from ntrm.core.errors import NtrmError
from ntrm.correct.log import read_log
from ntrm.correct.results import is_current
from ntrm.results.documents import read_summary
from ntrm.results.folder import ResultsFolder, SlideFolder
from ntrm.results.paths import CORRECTIONS, FAMILIARITY_MAP, SUMMARY
from ntrm.results.slide_state import BusyError, alone, finished
from ntrm.service.api.schemas import Cancer, Results, ShownFamiliarity, TissueShare, slide_document
from ntrm.service.core.problems import ProblemError, conflict, is_full
from ntrm.service.core.settings import SERVICE_FOLDER, TRASH, UPLOADS, ServiceSettings, upload_path
from ntrm.service.jobs.database import JobStore
from ntrm.service.jobs.rows import LIGHT, NETWORK, UNUSABLE, SlideRow, new_id
from ntrm.service.jobs.worker import TABLES_SECONDS
from ntrm.service.tiles.layers import FILES, layers_with
from ntrm.service.tiles.readers import Readers
from ntrm.slides.inputs import find_by_content

_log = logging.getLogger(__name__)
DELETE_SECONDS = 3.0  # For the jobs of a slide to end before it is deleted: those that do not hear are killed in less
KNOWN = 4096  # Slides whose facts are kept


class Catalogue:
    """Keeps rows and folders alike; what has no row is found, what has no folder is forgotten."""

    def __init__(self, settings: ServiceSettings, store: JobStore, readers: Readers) -> None:
        self._settings, self._store, self._readers = settings, store, readers
        self._skipped: set[tuple[str, str]] = set()  # Folders whose results cannot be shown, and why: logged once

    def check(self) -> None:
        """Refuse what no service wrote, and forget originals that lie below none of today's roots."""
        self._store.check(lambda slide: slide_document(slide, Results()))
        roots = [root.resolve() for root in self._settings.roots]
        for slide in self._store.every():
            if slide.source not in (None, upload_path(self._settings.hidden, slide.id)):
                place = Path(os.path.realpath(slide.source))
                if SERVICE_FOLDER in place.parts or not any(place.is_relative_to(root) for root in roots):
                    self._store.locate(slide.id, None)

    def open(self) -> None:
        """Clean up after a service that was killed, and note what other programs did meanwhile."""
        store = self._store
        self.look_around()
        for slide in store.every():
            if slide.origin == "upload" and slide.status != "done" and not slide.has_image:
                store.forget(slide.id)  # The service was killed while it was deleted.
            # What is damaged is reported to whoever looks at it.
            folder = self._settings.out / slide.slide_id
            with suppress(NtrmError):
                if (folder / CORRECTIONS).is_file() and not is_current(folder, read_log(folder)):
                    store.ask_again(slide.id, "correct")
        # The database was moved away, or the service killed before it wrote a row.
        uploads = {path.name for path in (self._settings.hidden / UPLOADS).iterdir()}
        if strange := uploads - {slide.id for slide in store.every()}:
            _log.warning("uploads that belong to no slide are kept in %s: %s", UPLOADS, ", ".join(sorted(strange)))

    def look_around(self) -> int:
        """Note what other programs put here, made anew or took away; returns how many slides have other results."""
        out, store = self._settings.out, self._store
        rows = {slide.slide_id: slide for slide in store.every()}
        changed = 0
        for folder in ResultsFolder(out) if out.is_dir() else ():
            row, made = rows.get(folder.path.name), _made(folder.path)
            if made is not None and (row is None or (row.status == "done" and row.finished != made)):
                try:
                    changed += self._adopt(folder, made, row)
                except (NtrmError, OSError, *UNUSABLE) as error:
                    self._skip(folder.path, error)
        for slide in rows.values():
            if slide.status == "done" and _made(out / slide.slide_id) is None:
                if slide.origin != "found" and slide.has_image:
                    store.vanished(slide.id)
                else:
                    store.forget(slide.id)
        return changed

    def _adopt(self, folder: SlideFolder, made: float, row: SlideRow | None) -> bool:
        """Add a folder's results, or note that they are others; not what is unfinished."""
        state, name = finished(folder.path), folder.path.name
        if state is None or state.plan is None:
            return False
        folder.check()
        _results(folder.path, made)
        if row is not None:
            self._store.renew(row, state.plan, made)
            return True
        mpp, source = state.plan.mpp, state.plan.source
        found = SlideRow(new_id(), name, name, "found", None, mpp, "done", made, source, progress=1.0, finished=made)
        self._store.add(found)
        return True

    def _skip(self, folder: Path, error: Exception) -> None:
        told = ascii(folder.name), ascii(str(error))[:300]
        if told not in self._skipped:
            _log.warning("the folder %s is skipped: %s", *told)
        self._skipped.add(told)

    def results(self, slide: SlideRow) -> Results:
        """The short version of a slide's results; nothing before it is done, and where they cannot be read."""
        path = self._settings.out / slide.slide_id
        made = _made(path) if slide.status == "done" else None
        try:
            return Results() if made is None else _results(path, made)
        except (NtrmError, OSError, *UNUSABLE) as error:
            self._skip(path, error)
            return Results()

    def find_originals(self, stop: Event) -> int:
        """Look under the roots for slides whose file is missing, by content; returns how many were found."""
        wanted: dict[str, list[str]] = {}
        for slide in self._store.every():
            if slide.fingerprint is not None and not slide.has_image:
                wanted.setdefault(slide.fingerprint, []).append(slide.id)
        count = 0
        for fingerprint, path in find_by_content(wanted, self._settings.roots, stop.is_set):
            for key in wanted[fingerprint]:
                self._store.locate(key, path)
                count += 1
        return count

    def delete(self, slide: SlideRow) -> None:
        """End a slide's jobs, and remove its upload and its results.

        Nothing is written before the files are gone, unless a job has to be ended, so that a full disk can be emptied.
        """
        store, hidden, folder = self._store, self._settings.hidden, self._settings.out / slide.slide_id
        try:
            store.stop(slide.id, *NETWORK, *LIGHT)
        except sqlite3.Error as error:
            if not is_full(error) or store.running(slide.id):
                raise
        until = time.monotonic() + DELETE_SECONDS
        while store.running(slide.id):
            if time.monotonic() > until:
                raise conflict("a job of this slide has not ended yet", hint="delete it once more")
            time.sleep(0.02)
        try:
            if folder.is_dir() and not folder.is_symlink():  # A link is none of ours, nor is what it leads to.
                with alone(folder):
                    ResultsFolder(self._settings.out)[slide.slide_id].remove(SlideFolder(hidden / TRASH))
            if slide.origin == "upload":
                # Never its source, which may be a file with the same content below a root.
                upload = upload_path(hidden, slide.id)
                self._readers.forget(upload)
                upload.unlink(missing_ok=True)
            store.forget(slide.id)
        except BusyError as error:
            raise conflict("another program works on this slide", hint="wait until it ends") from error
        except OSError as error:
            if is_full(error):
                raise
            hint = "look who may write to them, and delete the slide once more"
            raise ProblemError(500, "not_removed", "not all files could be removed", got=error, hint=hint) from error
        # The tables and the overview must not name it any more either.
        store.ask("", "tables", TABLES_SECONDS)

    def empty_trash(self) -> None:
        """Delete what was moved there; follows no link, also where one is put in while it works."""
        for leftover in (self._settings.hidden / TRASH).iterdir():
            shutil.rmtree(leftover)


def _made(folder: Path) -> float | None:
    """When the results were written; None where there are none."""
    try:
        return (folder / SUMMARY).stat().st_mtime
    except OSError:
        return None


@lru_cache(KNOWN)
def _results(folder: Path, _made: float) -> Results:
    """What a list of slides shows of the results that were written then; raises where it cannot be shown."""
    summary, there = read_summary(folder), SlideFolder(folder)
    unfamiliar = [piece.number for piece in summary.pieces if not piece.familiarity.assessed]
    (_, _, width, height), (mpp, mpp_y) = summary.grid.area, summary.grid.slide_mpp
    return Results(
        width=width,
        height=height,
        mpp=mpp,
        mpp_y=mpp_y,
        cancers=[Cancer.model_validate({"name": name, **vars(each)}) for name, each in summary.cancers.items()],
        cancers_looked_for=[*summary.cancers],
        tissue=[
            TissueShare(index=summary.classes.index(name), name=name, area_mm2=summary.areas_mm2[name], share=share)
            for name, share in summary.tissue_fractions.items()
        ],
        familiarity=ShownFamiliarity(
            **vars(summary.familiarity), unfamiliar_pieces=unfamiliar, has_map=there.has(FAMILIARITY_MAP)
        ),
        warnings=list(summary.warnings),
        quality_warnings=list(summary.quality_warnings),
        tissue_area_mm2=summary.tissue_area_mm2,
        pieces=len(summary.pieces),
        layers=layers_with({name for name, file in FILES.items() if there.has(file)}),
    )
