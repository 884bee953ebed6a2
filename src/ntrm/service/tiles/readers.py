"""The processes that read slides, which are closed when others are needed."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
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
    """A slide and the processes that read it; safe to use from several threads."""

    info: SlideInfo

    def __init__(self, path: Path, limits: ReadingLimits, *, alone: bool) -> None:
        self._path, self._limits, self._alone = path, limits, alone
        self._processes: LifoQueue[ReadingProcess | None] = LifoQueue()
        for _ in range(PER_SLIDE):
            self._processes.put(None)
        self._opening = threading.Lock()
        self.users = 0
        self.used = 0.0  # When it was used last

    @property
    def is_open(self) -> bool:
        """Whether it could be read."""
        return hasattr(self, "info")

    def open(self) -> None:
        """Read its sizes, unless that is done."""
        with self._opening:
            if not self.is_open:
                with self._process():
                    pass

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """As ``SlideReader.read``."""
        check_request(self.info, width, height, level)
        with self._process() as process:
            return process.read(x, y, width, height, level)

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

    def close(self) -> None:
        """End the processes; nobody may be reading."""
        for process in self._processes.queue:
            if process is not None:
                process.close()


class Readers:
    """The slides used last, as many as stated, each with its processes."""

    def __init__(self, slides: int, limits: ReadingLimits) -> None:
        self._most, self._limits = slides, limits
        self._slides: OrderedDict[Key, OpenSlide] = OrderedDict()
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
            slide = self._slides.setdefault(key, OpenSlide(path, self._limits, alone=alone))
            self._slides.move_to_end(key)
            slide.users += 1
        try:
            slide.open()
            yield slide
        finally:
            with self._lock:
                slide.users -= 1
                slide.used = time.monotonic()
            self.close_unused(self._most)

    def close_unused(self, most: int = 0, *, idle_seconds: float = 0.0, path: Path | None = None) -> None:
        """Close what nobody uses and has used for a while, the oldest first, until at most so many are open."""
        before = time.monotonic() - idle_seconds
        with self._lock:
            unused = [key for key, slide in self._slides.items() if not slide.users and slide.used <= before]
            wanted = [key for key in unused if path in (None, key[0])][: max(0, len(self._slides) - most)]
            failed = [key for key in unused if not self._slides[key].is_open]
            closing = [self._slides.pop(key) for key in {*wanted, *failed}]
        for slide in closing:
            slide.close()

    def forget(self, path: Path) -> None:
        """Close a slide that is about to be deleted, unless somebody is reading it just now."""
        self.close_unused(path=path)
