"""How far a running job is, told to the database; and from there whether it is to go on.

Reading and measuring have no steps to count: they are named, and whoever shows them lets a bar run. Rows of the slide
are counted while the network works, files of the results while they are written.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self, TypeVar

from ntrm.service.jobs import JobStore
from ntrm.service.records import Slide
from ntrm.slide.reading.base import Pixels, SlideReader

T = TypeVar("T")
BEAT_SECONDS = 0.5
READ, SEGMENTED, MEASURED = 0.03, 0.8, 0.85
"""Shares of the progress at the ends of these stages; the rest is writing."""
READING, SEGMENTING, MEASURING, WRITING = "reading", "segmenting", "measuring", "writing"
FILES = (
    "mask.ome.tif", "confidence.ome.tif", "initial.ome.tif", "regions.geojson", "graph.json", "summary.json",
    "overlay.png", "report.html",
)  # fmt: skip
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
