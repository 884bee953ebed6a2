"""The processes that read slides, which are closed when others are needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ntrm.core.errors import DataError
from ntrm.slides.isolated import ReadingLimits, ReadingProcess, open_isolated

Key = tuple[Path, int, int, bool]


@dataclass(eq=False)
class _Opened:
    """A slide and the process that reads it, which ends when nobody holds it any more."""

    process: ReadingProcess | None = None
    opening: threading.Lock = field(default_factory=threading.Lock)
    used: float = field(default_factory=time.monotonic)


class Readers:
    """The slides used last, as many as stated, each with its process; safe to use from several threads."""

    def __init__(self, slides: int, limits: ReadingLimits) -> None:
        self._most, self._limits = slides, limits
        self._slides: dict[Key, _Opened] = {}  # The one used last stands last
        self._lock = threading.Lock()

    @contextmanager
    def using(self, path: Path, *, alone: bool = True) -> Iterator[ReadingProcess]:
        """The slide, opened if it was not; where ``alone``, no other file may be read with it."""
        try:
            status = path.stat()
        except OSError as error:
            raise DataError("the slide's file no longer exists", hint="put it back, or delete the slide") from error
        key = path, status.st_mtime_ns, status.st_size, alone
        with self._lock:
            self._slides[key] = slide = self._slides.pop(key, None) or _Opened()
            for old in [*self._slides][: -self._most]:
                del self._slides[old]
        with slide.opening:
            if slide.process is None or not slide.process.alive:
                slide.process = open_isolated(path, alone=alone, process=ReadingProcess(self._limits))
        try:
            yield slide.process
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
