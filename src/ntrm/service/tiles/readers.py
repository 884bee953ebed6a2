"""The processes that read slides, which are closed when others are needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import LifoQueue

from ntrm.core.errors import DataError
from ntrm.slides.isolated import ReadingLimits, ReadingProcess, open_isolated
from ntrm.slides.readers.reader import Pixels, SlideInfo, check_request

PER_SLIDE = 2  # Processes that read one slide
Key = tuple[Path, int, int, bool]


class OpenSlide:
    """A slide and the processes that read it, which end when nobody holds it; safe to use from several threads."""

    info: SlideInfo

    def __init__(self, path: Path, limits: ReadingLimits, *, alone: bool) -> None:
        self._path, self._limits, self._alone = path, limits, alone
        self._processes: LifoQueue[ReadingProcess | None] = LifoQueue()
        for _ in range(PER_SLIDE):
            self._processes.put(None)
        self._opening = threading.Lock()
        self.used = time.monotonic()

    def open(self) -> None:
        """Read its sizes, unless that is done."""
        with self._opening:
            if not hasattr(self, "info"):
                with self._process():
                    pass

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """As ``SlideReader.read``."""
        check_request(self.info, width, height, level)
        with self._process() as process:
            return process.read(x, y, width, height, level)

    def close(self) -> None:
        """Nothing: its processes end with it."""

    @contextmanager
    def _process(self) -> Iterator[ReadingProcess]:
        """A process that has the slide open, for this thread alone."""
        process = self._processes.get()
        try:
            if process is None or not process.alive:
                process = open_isolated(self._path, alone=self._alone, process=ReadingProcess(self._limits))
                self.info = process.info
            yield process
        finally:
            self._processes.put(process)


class Readers:
    """The slides used last, as many as stated, each with its processes."""

    def __init__(self, slides: int, limits: ReadingLimits) -> None:
        self._most, self._limits = slides, limits
        self._slides: dict[Key, OpenSlide] = {}  # The one used last stands last
        self._lock = threading.Lock()

    @contextmanager
    def using(self, path: Path, *, alone: bool = True) -> Iterator[OpenSlide]:
        """The slide, opened if it was not; where ``alone``, no other file may be read with it."""
        try:
            status = path.stat()
        except OSError as error:
            raise DataError("the slide's file no longer exists", hint="put it back, or delete the slide") from error
        key = path, status.st_mtime_ns, status.st_size, alone
        with self._lock:
            slide = self._slides.pop(key, None) or OpenSlide(path, self._limits, alone=alone)
            self._slides[key] = slide
            for old in [*self._slides][: -self._most]:
                del self._slides[old]
        try:
            slide.open()
            yield slide
        except BaseException:
            if not hasattr(slide, "info"):
                self.forget(path)
            raise
        finally:
            slide.used = time.monotonic()

    def close_unused(self, idle_seconds: float = 0.0) -> None:
        """Close what nobody has used for a while."""
        before = time.monotonic() - idle_seconds
        with self._lock:
            self._slides = {key: slide for key, slide in self._slides.items() if slide.used > before}

    def forget(self, path: Path) -> None:
        """Close a slide that is about to be deleted, once nobody is reading it any more."""
        with self._lock:
            self._slides = {key: slide for key, slide in self._slides.items() if key[0] != path}
