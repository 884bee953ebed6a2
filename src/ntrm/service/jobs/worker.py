"""The process that segments: takes slides from the database one by one and tells how far it is.

Reading and measuring have no steps to count: they are named, and whoever shows them lets a bar run. Rows of the slide
are counted while the network works, files of the results while they are written.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

from ntrm.core.errors import DataError, NtrmError
from ntrm.core.io import holding
from ntrm.core.mpp import Resolution
from ntrm.pipeline.options import Options
from ntrm.pipeline.segmenter import Outcome, Segmenter
from ntrm.results.paths import COARSE_MASK, CONFIDENCE_MAP, GRAPH, MASK, OVERLAY, REGIONS, REPORT, RUN, SUMMARY
from ntrm.service.core.model_info import ModelFacts, understand, write_facts
from ntrm.service.core.problems import ProblemError, document_of
from ntrm.service.core.settings import ServiceSettings, settings_from
from ntrm.service.core.shared_paths import DATABASE, lock_of
from ntrm.service.jobs.adoption import facts_of
from ntrm.service.jobs.database import CANCELLED, DONE, FAILED, JobStore, Slide, new_id
from ntrm.wsi.inputs import SlideInput
from ntrm.wsi.isolated import open_isolated
from ntrm.wsi.readers.reader import Pixels, SlideReader

T = TypeVar("T")
BEAT_SECONDS = 0.5
READ, SEGMENTED, MEASURED = 0.03, 0.8, 0.85
"""Shares of the progress at the ends of these stages; the rest is writing."""
READING, SEGMENTING, MEASURING, WRITING = "reading", "segmenting", "measuring", "writing"
FILES = (MASK, CONFIDENCE_MAP, COARSE_MASK, REGIONS, GRAPH, SUMMARY, OVERLAY, REPORT)
"""What is written once everything is measured, in this order; some only on request."""


class EndError(BaseException):
    """Ends a job from within; not an ``Exception``, which would be the slide's own error."""


class CancelledError(EndError):
    """Somebody asked for the end of the job."""


class StoppedError(EndError):
    """The service ends."""


class TooLongError(EndError):
    """The job's time is up."""


class JobProgress:
    """Tells how far a slide is; a context manager, whose end ends the watching of its files."""

    def __init__(
        self, store: JobStore, slide: Slide, worker: str, folder: Path, stop: threading.Event, seconds: float
    ) -> None:
        self._store, self._slide, self._worker, self._folder, self._stop = store, slide, worker, folder, stop
        self._deadline = time.monotonic() + seconds
        self._last = self._furthest = 0.0
        self._stage = READING
        self._telling = threading.Lock()
        self._ended = threading.Event()
        self._watch: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._watch is not None:
            self._watch.join()

    def track(self, items: Iterable[T], total: int, label: str) -> Iterator[T]:
        """Yield ``items``; raises where the job is to end."""
        self.tell(READ, SEGMENTING, at_once=True)
        for done, item in enumerate(items, start=1):
            yield item
            self.tell(READ + (SEGMENTED - READ) * done / max(total, 1), SEGMENTING)
        self.tell(SEGMENTED, MEASURING, at_once=True)
        if self._watch is not None:
            return
        self._watch = threading.Thread(target=self._watch_files, args=(time.time(),), daemon=True)
        self._watch.start()

    def ask(self) -> None:
        """Raises where the job is to end, without anything new to tell."""
        self.tell(self._furthest, self._stage)

    def tell(self, progress: float, stage: str, *, at_once: bool = False) -> None:
        """At most a few times a second."""
        # Windows are read by a thread of its own, and told of by another.
        with self._telling:
            now, self._stage = time.monotonic(), stage
            # A second pass over the slide does not begin anew.
            self._furthest = max(self._furthest, min(progress, 1.0))
            if self._stop.is_set():
                raise StoppedError
            if now > self._deadline:
                raise TooLongError
            if at_once or now - self._last >= BEAT_SECONDS:
                self._last = now
                if not self._store.beat(self._slide.id, self._worker, self._furthest, stage):
                    raise CancelledError

    def reader(self, slide: SlideReader) -> SlideReader:
        """The slide, read only as long as the job goes on."""
        return _Asking(slide, self)

    def _watch_files(self, since: float) -> None:
        """Tell which of the files are there; nothing can be ended from here."""
        seen = 0
        while not self._ended.wait(BEAT_SECONDS):
            there = written(self._folder, since)
            if there > seen:
                seen = there
                share = MEASURED + (1 - MEASURED) * there / (len(FILES) + 1)
                try:
                    self._store.beat(self._slide.id, self._worker, share, WRITING)
                except sqlite3.Error:
                    # A full disk, perhaps; the job itself will say so.
                    return


class _Asking:
    """Asks before each reading: a large slide is read for long before anything can be counted."""

    def __init__(self, slide: SlideReader, job: JobProgress) -> None:
        self.info, self._slide, self._job = slide.info, slide, job

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """As ``SlideReader.read``."""
        self._job.ask()
        return self._slide.read(x, y, width, height, level)

    def close(self) -> None:
        """As ``SlideReader.close``."""
        self._slide.close()


def written(folder: Path, since: float) -> int:
    """How many of ``FILES``, up to the last of them that was written since then."""
    count = 0
    for number, name in enumerate(FILES, start=1):
        try:
            count = number if (folder / name).stat().st_mtime >= since else count
        except OSError:
            continue
    return count


# The process that segments: takes slides from the database one by one, and holds the network meanwhile.
#
# Its first line of input says where and how; every further one wakes it, and the end of the input ends it, so that it
# never outlives the service. It may be killed at any moment: the slide goes on from its last band.


IDLE_SECONDS = 5.0
"""How long it sleeps unless somebody wakes it."""
BUSY_SECONDS = 30.0
"""How long it waits for another process to leave a slide alone."""
TABLE_SECONDS = 60.0
"""Tables of all slides are written when the queue is empty, or this often."""
PAUSE_SECONDS = 0.5
NICE = 5


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
    with holding(lock_of(settings, name)):
        try:
            segmenter = open_segmenter(settings)
        except NtrmError as error:
            _say({"refused": document_of(error)["error"]})
            return error.exit_code
        if segmenter.identity.options["device"] == "cpu":
            # The page comes first: whoever looks at slides must not wait for the next one.
            os.nice(NICE)
        write_facts(settings, _facts(settings))
        _say({"ready": name, "devices": _devices(settings)})
        _work(settings, segmenter, name, stop, wake)
    return 0


def _work(
    settings: ServiceSettings, segmenter: Segmenter, name: str, stop: threading.Event, wake: threading.Event
) -> None:
    store = JobStore(settings.hidden / DATABASE)
    tabulated, behind = 0.0, True
    try:
        while not stop.is_set():
            wake.clear()
            slide = store.claim(name)
            if slide is not None:
                run_job(store, segmenter, slide, name, stop, settings.limits.slide_seconds)
                behind = True
            if behind and (slide is None or time.monotonic() - tabulated > TABLE_SECONDS):
                segmenter.tabulate()
                tabulated, behind = time.monotonic(), False
            if slide is None:
                wake.wait(IDLE_SECONDS)
    finally:
        store.close()


def run_job(
    store: JobStore, segmenter: Segmenter, slide: Slide, worker: str, stop: threading.Event, seconds: float
) -> None:
    """One slide, from the queue to its end."""
    progress = JobProgress(store, slide, worker, segmenter.out / slide.slide_id, stop, seconds)
    try:
        with progress:
            outcome = _segment(segmenter, slide, progress)
        if outcome.status in ("done", "kept"):
            store.finish(slide.id, worker, DONE, facts=facts_of(segmenter.out / slide.slide_id))
        else:
            store.finish(slide.id, worker, FAILED, error=_failure(outcome))
    except CancelledError:
        store.finish(slide.id, worker, CANCELLED)
    except StoppedError:
        store.release(slide.id, worker)
    except TooLongError:
        store.finish(slide.id, worker, FAILED, error=too_long(seconds))
    except NtrmError as error:
        store.finish(slide.id, worker, FAILED, error=error)


def _segment(segmenter: Segmenter, slide: Slide, progress: JobProgress) -> Outcome:
    if slide.source is None:
        raise DataError("the slide's file is not known", hint="upload it again")
    mpp = None if slide.mpp is None else Resolution(*slide.mpp)
    given = SlideInput(slide.source, slide.slide_id, slide.slide_id, mpp, alone=slide.alone)

    def opened(path: Path, *, alone: bool) -> SlideReader:
        return progress.reader(open_isolated(path, alone=alone))

    until = time.monotonic() + BUSY_SECONDS
    while True:
        outcome = segmenter.segment(given, slide.slide_id, progress, opened)
        # A process that is being killed may hold the slide a moment longer than its place among the workers.
        if outcome.status != "busy" or time.monotonic() > until:
            return outcome
        progress.tell(0.0, "waiting")
        time.sleep(PAUSE_SECONDS)


def too_long(seconds: float) -> ProblemError:
    """For a slide that used up its time."""
    return ProblemError(
        422,
        "too_long",
        "the slide took too long",
        expected=f"at most {seconds:g} s",
        hint="try again: it goes on where it stopped",
    )


def _failure(outcome: Outcome) -> NtrmError:
    code = "refused" if outcome.refused else "unreadable"
    return ProblemError(422, code, "the slide could not be segmented", got=outcome.reason)


def open_segmenter(settings: ServiceSettings) -> Segmenter:
    """The network, with the options of results that are there already."""
    options, batch, device = _options_of(settings)
    segmenter = Segmenter(settings.model, settings.out, options, device=device, batch=batch)
    segmenter.claim()
    return segmenter


def _options_of(settings: ServiceSettings) -> tuple[Options, int, str]:
    """Results of one folder share their options, so that new slides take those that are there."""
    names = {field.name for field in dataclasses.fields(Options)}
    try:
        before: dict[str, Any] = json.loads((settings.out / RUN).read_text(encoding="utf-8"))["options"]
    except (OSError, ValueError, KeyError, TypeError):
        wanted: dict[str, Any] = {"maps": True}
        return Options(**{key: value for key, value in wanted.items() if key in names}), settings.batch, settings.device
    kept = {key: value for key, value in before.items() if key in names}
    device = before.get("device", "auto") if settings.device == "auto" else settings.device
    return Options(**kept), int(before.get("batch", settings.batch)), str(device)


def _facts(settings: ServiceSettings) -> ModelFacts:
    from ntrm.models.hub import locate

    return understand((locate(settings.model) / "config.json").read_text(encoding="utf-8"))


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
