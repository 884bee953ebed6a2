"""The process that segments: takes jobs from the database one by one, and holds the network meanwhile.

A job is a slide, or the region graph of one that is done, for which somebody waits who corrects it.

The first line of its input is its settings; every further one wakes it, and the end of the input ends it, so that it
never outlives the service. It may be killed at any moment: the slide continues from its last band.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from ntrm.core.errors import DataError, NtrmError, RefusedError, UsageError
from ntrm.core.io import write_text
from ntrm.core.locks import holding
from ntrm.core.mpp import Resolution
from ntrm.correction.engine.prepare import make_region_graph, same_model
from ntrm.correction.mask import open_mask
from ntrm.models.folders import CONFIG, SilentHubError, locate
from ntrm.pipeline.options import Options
from ntrm.pipeline.segmenter import Outcome, Segmenter, reason_of
from ntrm.results.paths import COARSE_MASK, CONFIDENCE_MAP, GRAPH, MASK, OVERLAY, REGIONS, REPORT, SUMMARY
from ntrm.results.run_record import read_run
from ntrm.service.core import model_info
from ntrm.service.core.problems import ProblemError, document_of
from ntrm.service.core.settings import DATABASE, ServiceSettings, settings_from
from ntrm.service.jobs.adoption import facts_of
from ntrm.service.jobs.database import JobStore
from ntrm.service.jobs.graph_jobs import MAKING, GraphJob, GraphJobs
from ntrm.service.jobs.slide_record import CANCELLED, DONE, FAILED, QUEUED, Slide, new_id
from ntrm.slides.inputs import SlideInput, source_fingerprint
from ntrm.wsi.isolated import open_isolated
from ntrm.wsi.readers.reader import Pixels, SlideReader

_log = logging.getLogger(__name__)
T = TypeVar("T")
BEAT_SECONDS = 0.5
"""Between two reports of the progress."""
IDLE_SECONDS = 5.0
"""How long it sleeps unless somebody wakes it."""
BUSY_SECONDS = 30.0
"""How long it waits for another process to leave a slide alone."""
PAUSE_SECONDS = 0.5
TABLE_SECONDS = 60.0
"""Tables of all slides are written when the queue is empty, or this often."""
NICE = 5
READ, SEGMENTED, MEASURED = 0.03, 0.8, 0.85
"""Progress at the end of these stages; the rest is writing."""
READING, SEGMENTING, MEASURING, WRITING = "reading", "segmenting", "measuring", "writing"
FILES = (MASK, CONFIDENCE_MAP, COARSE_MASK, REGIONS, GRAPH, SUMMARY, OVERLAY, REPORT)
"""What is written once everything is measured, in this order; some only on request."""


class JobEnd(BaseException):
    """Ends a job from within; not an ``Exception``, which would be the slide's own error."""

    def __init__(self, status: str, error: NtrmError | None = None) -> None:
        super().__init__(status)
        self.status, self.error = status, error


class JobProgress:
    """Reports how far a slide is; a context manager that watches the files of the results until it ends.

    Rows of the slide are counted while the network works, files while they are written. Reading and measuring have no
    steps to count: they are only named.
    """

    def __init__(
        self,
        store: JobStore | GraphJobs,
        slide: Slide,
        worker: str,
        folder: Path,
        stop: threading.Event,
        seconds: float,
    ) -> None:
        self._store, self._slide, self._worker, self._folder, self._stop = store, slide, worker, folder, stop
        self._seconds, self._deadline = seconds, time.monotonic() + seconds
        self._last = self._furthest = 0.0
        self._stage = READING
        self._reporting = threading.Lock()
        self._ended = threading.Event()
        self._watch: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._watch is not None:
            self._watch.join()

    def track(self, items: Iterable[T], total: int, label: str) -> Iterator[T]:
        """Yield ``items``; raises ``JobEnd`` where the job has to end."""
        self.report(READ, SEGMENTING, at_once=True)
        for done, item in enumerate(items, start=1):
            yield item
            self.report(READ + (SEGMENTED - READ) * done / max(total, 1), SEGMENTING)
        self.report(SEGMENTED, MEASURING, at_once=True)
        if self._watch is None:
            self._watch = threading.Thread(target=self._watch_files, args=(time.time(),), daemon=True)
            self._watch.start()

    def check(self) -> None:
        """Raise ``JobEnd`` where the job has to end, without new progress."""
        self.report(self._furthest, self._stage)

    def report(self, progress: float, stage: str, *, at_once: bool = False) -> None:
        """At most a few times a second; raises ``JobEnd`` where the job has to end."""
        # Windows are read in one thread and reported by another.
        with self._reporting:
            now, self._stage = time.monotonic(), stage
            # A second pass over the slide does not start at zero.
            self._furthest = max(self._furthest, min(progress, 1.0))
            if self._stop.is_set():
                raise JobEnd(QUEUED)
            if now > self._deadline:
                limit, hint = f"at most {self._seconds:g} s", "try again: it continues where it stopped"
                error = ProblemError(422, "too_long", "the slide took too long", expected=limit, hint=hint)
                raise JobEnd(FAILED, error)
            if at_once or now - self._last >= BEAT_SECONDS:
                self._last = now
                if not self._store.beat(self._slide.id, self._worker, self._furthest, stage):
                    raise JobEnd(CANCELLED)

    def _watch_files(self, since: float) -> None:
        """Report which of the files are there; nothing can be ended from here."""
        seen = 0
        while not self._ended.wait(BEAT_SECONDS):
            count = written(self._folder, since)
            if count > seen:
                seen = count
                progress = MEASURED + (1 - MEASURED) * count / (len(FILES) + 1)
                try:
                    self._store.beat(self._slide.id, self._worker, progress, WRITING)
                except sqlite3.Error:
                    # A full disk, perhaps; the job itself will report it.
                    return


class GraphProgress(JobProgress):
    """Reports how much of a slide the network has seen for its region graph."""

    def track(self, items: Iterable[T], total: int, label: str) -> Iterator[T]:
        """Yield ``items``; raises ``JobEnd`` where the job has to end."""
        for done, item in enumerate(items, start=1):
            self.report((done - 1) / max(total, 1), MAKING)
            yield item


class _CheckedReader:
    """Checks before every read whether the job has to end: reading a large slide takes long."""

    def __init__(self, slide: SlideReader, job: JobProgress) -> None:
        self.info, self.close = slide.info, slide.close
        self._slide, self._job = slide, job

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """As ``SlideReader.read``."""
        self._job.check()
        return self._slide.read(x, y, width, height, level)


def written(folder: Path, since: float) -> int:
    """Number of the last of ``FILES`` that was written since then, counted from 1; 0 for none."""
    count = 0
    for number, name in enumerate(FILES, start=1):
        try:
            count = number if (folder / name).stat().st_mtime >= since else count
        except OSError:
            continue
    return count


def main() -> int:
    """Run until the input ends."""
    settings = settings_from(json.loads(sys.stdin.readline()))
    stop, wake = threading.Event(), threading.Event()

    def end(*_: object) -> None:
        stop.set()
        wake.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_listen, args=(wake,), daemon=True).start()
    name = new_id()
    with holding(settings.worker_lock(name)):
        try:
            segmenter = open_segmenter(settings)
        except NtrmError as error:
            _say({"refused": document_of(error)["error"], "passing": isinstance(error, SilentHubError)})
            return error.exit_code
        if segmenter.run.options["device"] == "cpu":
            # The page comes first: whoever views slides must not wait for the next one.
            os.nice(NICE)
        config = locate(settings.model) / CONFIG
        write_text(settings.hidden / model_info.FILE, config.read_text(encoding="utf-8"))
        _say({"ready": name, "devices": _devices(settings)})
        _work(settings, segmenter, name, stop, wake)
    return 0


def _work(
    settings: ServiceSettings, segmenter: Segmenter, name: str, stop: threading.Event, wake: threading.Event
) -> None:
    store = JobStore(settings.hidden / DATABASE)
    tabulated, behind, failed = 0.0, True, False
    try:
        while not stop.is_set():
            wake.clear()
            graph = store.graphs.claim(name)
            if graph is not None:
                run_graph_job(store, segmenter, graph, name, stop, settings.limits.slide_seconds)
                continue
            slide = store.claim(name)
            if slide is not None:
                run_job(store, segmenter, slide, name, stop, settings.limits.slide_seconds)
                behind = True
            if behind and ((slide is None and not failed) or time.monotonic() - tabulated > TABLE_SECONDS):
                behind = failed = not _tabulate(segmenter)
                tabulated = time.monotonic()
            if slide is None:
                wake.wait(IDLE_SECONDS)
    finally:
        store.close()


def _tabulate(segmenter: Segmenter) -> bool:
    """Whether the tables could be written; slides are segmented all the same."""
    try:
        segmenter.tabulate()
    except NtrmError as error:
        _log.warning("the tables could not be written: %s; got %s", error.what, error.got)
        return False
    return True


def run_job(
    store: JobStore, segmenter: Segmenter, slide: Slide, worker: str, stop: threading.Event, seconds: float
) -> None:
    """Segment one queued slide; an interrupted one is resumed."""
    folder = segmenter.out / slide.slide_id
    try:
        # It may be another file by now than when it was queued.
        fingerprint = None if slide.source is None else source_fingerprint(slide.source)
        with JobProgress(store, slide, worker, folder, stop, seconds) as progress:
            outcome = _segment(segmenter, slide, progress)
        if outcome.status not in ("done", "kept"):
            code = "refused" if outcome.refused else "unreadable"
            raise ProblemError(422, code, "the slide could not be segmented", got=outcome.reason)
        store.finish(slide.id, worker, DONE, facts=facts_of(folder), fingerprint=fingerprint)
    except JobEnd as end:
        if end.status == QUEUED:
            store.release(slide.id, worker)
        else:
            store.finish(slide.id, worker, end.status, error=end.error)
    except NtrmError as error:
        store.finish(slide.id, worker, FAILED, error=error)


def run_graph_job(
    store: JobStore, segmenter: Segmenter, job: GraphJob, worker: str, stop: threading.Event, seconds: float
) -> None:
    """Make one queued region graph; an interrupted one is resumed."""
    jobs = store.graphs
    try:
        slide = store.get(job.slide)
    except NtrmError:  # deleted meanwhile
        jobs.finish(job.slide, worker)
        return
    folder = segmenter.out / slide.slide_id
    try:
        with GraphProgress(jobs, slide, worker, folder, stop, seconds) as progress:
            progress.report(0.0, MAKING, at_once=True)
            mask, source = open_mask(folder), _input(slide)
            same_model(mask, segmenter.run.model["sha256"])
            make_region_graph(mask, source, segmenter.predictor, progress)
        jobs.finish(slide.id, worker)
    except JobEnd as end:
        if end.status == QUEUED:
            jobs.release(slide.id, worker)
        else:
            jobs.finish(slide.id, worker, end.error)
    except NtrmError as error:
        code = "refused" if isinstance(error, RefusedError) else "unreadable"
        reason = error.what if slide.source is None else reason_of(error, _input(slide), slide.slide_id)
        what = "the region graph could not be made"
        jobs.finish(slide.id, worker, ProblemError(422, code, what, got=reason))


def _input(slide: Slide) -> SlideInput:
    if slide.source is None:
        raise DataError("the slide's file is not known", hint="upload it again")
    mpp = None if slide.mpp is None else Resolution(*slide.mpp)
    return SlideInput(slide.source, slide.slide_id, slide.slide_id, mpp, alone=slide.alone)


def _segment(segmenter: Segmenter, slide: Slide, progress: JobProgress) -> Outcome:
    source = _input(slide)

    def open_checked(path: Path, *, alone: bool) -> SlideReader:
        return _CheckedReader(open_isolated(path, alone=alone), progress)

    until = time.monotonic() + BUSY_SECONDS
    while True:
        outcome = segmenter.segment(source, slide.slide_id, progress, open_checked)
        # A process that is being killed may hold the slide a moment longer than its lock as a worker.
        if outcome.status != "busy" or time.monotonic() > until:
            return outcome
        progress.report(0.0, "waiting")
        time.sleep(PAUSE_SECONDS)


def open_segmenter(settings: ServiceSettings) -> Segmenter:
    """The network, with the options of results that are there already: those of one folder have the same options."""
    before = _options_there(settings)
    try:
        return _open_segmenter(settings, before)
    except RefusedError:
        # ``ntrm segment`` may have begun there while the network was loaded.
        now = _options_there(settings)
        if now == before:
            raise
        return _open_segmenter(settings, now)


def _options_there(settings: ServiceSettings) -> dict[str, Any] | None:
    with suppress(DataError, UsageError):
        return read_run(settings.out).options
    return None


def _open_segmenter(settings: ServiceSettings, before: dict[str, Any] | None) -> Segmenter:
    options, batch, device = Options(maps=True), settings.batch, settings.device
    if before is not None:
        names = {field.name for field in dataclasses.fields(Options)}
        options = Options(**{key: value for key, value in before.items() if key in names})
        batch = int(before.get("batch", batch))
        device = str(before.get("device", device)) if device == "auto" else device
    segmenter = Segmenter(settings.model, settings.out, options, device=device, batch=batch)
    segmenter.claim()
    return segmenter


def _devices(settings: ServiceSettings) -> int:
    """How many workers make sense: one for each GPU where any may be taken."""
    import torch

    several = settings.device in ("auto", "cuda") and torch.cuda.is_available()
    return torch.cuda.device_count() if several else 1


def _listen(wake: threading.Event) -> None:
    for _ in sys.stdin:
        wake.set()
    # The service is gone, perhaps killed. Nothing is lost by leaving at once.
    os._exit(0)


def _say(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
