"""The processes that read slides, which are closed when others are needed."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ntrm.core.errors import DataError
from ntrm.wsi.isolated import ReadingLimits, ReadingProcess
from ntrm.wsi.readers.reader import Pixels, SlideInfo, check_request

PER_SLIDE = 2
"""Processes that read one slide."""
Key = tuple[Path, int, int, bool]


class OpenSlide:
    """A slide and the processes that read it; safe to use from several threads."""

    info: SlideInfo

    def __init__(self, path: Path, new_process: Callable[[], ReadingProcess], *, alone: bool) -> None:
        self._path, self._new_process, self._alone = path, new_process, alone
        self._idle: deque[ReadingProcess] = deque()
        self._places = threading.Semaphore(PER_SLIDE)
        self._opening = threading.Lock()
        self.users = 0
        self.used = 0.0
        """When it was used last."""

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
        with self._places:
            try:
                process = self._idle.pop()
            except IndexError:
                process = self._new_process()
                try:
                    self.info = process.open(self._path, alone=self._alone)
                except BaseException:
                    process.close()
                    raise
            try:
                yield process
            finally:
                if process.alive:
                    self._idle.append(process)

    def close(self) -> None:
        """End the processes; nobody may be reading."""
        while self._idle:
            self._idle.pop().close()


class Readers:
    """The slides used last, as many as stated, each with its processes, and one process in reserve."""

    def __init__(self, slides: int, limits: ReadingLimits) -> None:
        self._most, self._limits = slides, limits
        self._slides: OrderedDict[Key, OpenSlide] = OrderedDict()
        self._lock = threading.Lock()
        self._spare: ReadingProcess | None = None
        self._closed = False

    @contextmanager
    def using(self, path: Path, *, alone: bool = True) -> Iterator[OpenSlide]:
        """The slide, opened if it was not; where ``alone``, no other file may be read with it."""
        try:
            status = path.stat()
        except OSError as error:
            raise DataError("the slide's file no longer exists", hint="put it back, or delete the slide") from error
        key = path, status.st_mtime_ns, status.st_size, alone
        with self._lock:
            slide = self._slides.setdefault(key, OpenSlide(path, self._new_process, alone=alone))
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

    def warm_up(self) -> None:
        """Start a process for the next slide: starting one takes longer than reading."""
        process = ReadingProcess(self._limits) if self._spare is None and not self._closed else None
        with self._lock:
            if self._spare is None and not self._closed:
                self._spare, process = process, None
        if process is not None:
            process.close()

    def _new_process(self) -> ReadingProcess:
        """A process that has no slide open."""
        with self._lock:
            spare, self._spare = self._spare, None
        threading.Thread(target=self.warm_up, daemon=True).start()
        return spare if spare is not None and spare.alive else ReadingProcess(self._limits)

    def close(self) -> None:
        """End every process."""
        with self._lock:
            self._closed = True
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.close()
        self.close_unused()
