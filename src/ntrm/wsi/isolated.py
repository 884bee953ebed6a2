"""Slides read in a child process with limits on memory and time: a crash in a native library is one slide's error.

The child answers in JSON and bare pixels. It dies with its parent (the pipe closes) and by itself when one request
takes too long; it never gets more memory than stated.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import weakref
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np

from ntrm.core.errors import DataError, check_number
from ntrm.core.processes import module_command, module_environment
from ntrm.wsi.readers.reader import Pixels, SlideInfo, check_request
from ntrm.wsi.readers.reading_process import rebuild_error, rebuild_info

_START_SECONDS = 120
"""A new process may wait for a busy machine before it can answer at all."""


@dataclass(frozen=True)
class Limits:
    """What one slide may cost its reading process."""

    memory_mb: int = 1024
    """Memory on top of what Python and the libraries take."""
    seconds: int = 120
    """Time for opening, and for one region."""

    def __post_init__(self) -> None:
        check_number("memory limit in MB", self.memory_mb, 16, 2**20, whole=True)
        check_number("time limit in seconds", self.seconds, 1, 86_400, whole=True)


class ReadingProcess:
    """A ``SlideReader`` in a child process; safe to use from several threads.

    It can open one slide after another; after a crash or a timeout it is gone. ``info`` of the open slide has width and
    height in pixels, the µm/px (``resolution``), levels and the scanned area. Use it in a ``with`` block, or close it.
    """

    info: SlideInfo

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._lock = Lock()
        self._pipe, theirs = Pipe()
        with theirs:
            self._child = _start(theirs, self.limits)
        self._fresh = True
        # A reader that nobody closed must not leave its child behind.
        self._finalizer = weakref.finalize(self, _finish, self._pipe, self._child)

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self._child.poll() is None and not self._pipe.closed

    def open(self, path: Path, *, alone: bool = False) -> SlideInfo:
        """Open a slide in place of the last one; ``alone`` as for ``open_slide``."""
        with self._lock:
            answer = self._ask({"open": os.fsencode(path.absolute()).hex(), "alone": alone})
            try:
                self.info = rebuild_info(answer["info"])
            except (LookupError, TypeError, ValueError) as error:
                raise self._failed("an answer that makes no sense") from error
            return self.info

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """As ``SlideReader.read``, of the slide that is open."""
        check_request(self.info, width, height, level)
        pixels = np.empty((height, width, 3), dtype=np.uint8)
        with self._lock:
            answer = self._ask({"read": [int(x), int(y), width, height, level]})
            if answer.get("pixels") != [height, width, 3]:
                raise self._failed("pixels of another shape")
            try:
                self._pipe.recv_bytes_into(pixels.data.cast("B"))
            except (EOFError, OSError, ValueError) as error:
                raise self._failed(self._cause_of_death()) from error
        return pixels

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if not self.alive:
            raise self._failed(self._cause_of_death())
        wait = self.limits.seconds + 2 + (_START_SECONDS if self._fresh else 0)
        try:
            self._pipe.send_bytes(json.dumps(request).encode())
            if not self._pipe.poll(wait):
                raise self._failed(f"no answer within {self.limits.seconds} s")
            answer = dict(json.loads(self._pipe.recv_bytes(2**20)))
        except (EOFError, OSError, ValueError, TypeError, RecursionError) as error:
            raise self._failed(self._cause_of_death()) from error
        self._fresh = False
        if "error" in answer:
            raise rebuild_error(answer["error"])
        if "memory" in answer:
            raise self._failed(f"more than {self.limits.memory_mb} MB of memory wanted")
        return answer

    def _cause_of_death(self) -> str:
        try:
            code = self._child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "the reading process stopped answering"
        if code == -signal.SIGALRM:
            return f"no answer within {self.limits.seconds} s"
        cause = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"the reading process ended ({cause})"

    def _failed(self, got: str) -> DataError:
        """End the child; the error to raise."""
        self.close()
        return DataError(
            "reading the slide failed",
            got=got,
            expected=f"at most {self.limits.memory_mb} MB and {self.limits.seconds} s for a region",
            hint="the file is damaged or hostile; copy it again from the scanner, or convert it in QuPath to OME-TIFF",
        )

    def close(self) -> None:
        """End the child; twice does no harm."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start(pipe: Connection, limits: Limits) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        module_command("ntrm.wsi.readers.reading_process", pipe.fileno(), limits.memory_mb * 2**20, limits.seconds),
        pass_fds=[pipe.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # One heap for all threads: each of its own would reserve a good part of the memory allowed.
        env={**module_environment(), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
    )


def _finish(pipe: Connection, child: subprocess.Popen[bytes]) -> None:
    pipe.close()
    if child.poll() is None:
        child.kill()
    child.wait()


def open_isolated(
    path: Path, limits: Limits | None = None, *, alone: bool = False, process: ReadingProcess | None = None
) -> ReadingProcess:
    """Open a slide in a child process, a new one or ``process``; with ``alone`` the slide must be one file."""
    process = process or ReadingProcess(limits)
    try:
        process.open(Path(path), alone=alone)
    except BaseException:
        process.close()
        raise
    return process


def open_slide(path: str | Path) -> ReadingProcess:
    """Open a slide or an image, whatever its name ends in, to read pixels from it.

    It is decoded in a child process with limits on memory and time, so that a damaged file cannot harm this one:

    ``with ntrm.open_slide("slide.svs") as slide: pixels = slide.read(x, y, width, height, level)``
    """
    return open_isolated(Path(path))


class ReaderPool:
    """Opens slides as ``open_isolated`` does, each in its own child; the next child is started ahead.

    Starting a child takes longer than opening a slide. ``slides`` is how many will be opened at most: no child is
    started ahead for more. ``waiting`` is the child that was started ahead, if there is one.
    """

    def __init__(self, slides: int, limits: Limits | None = None) -> None:
        self._left = slides
        self._limits = limits
        self.waiting: ReadingProcess | None = None
        self._prepare()

    def open(self, path: Path, *, alone: bool = False) -> ReadingProcess:
        """Open a slide, and start the child of the next one."""
        ready, self.waiting = self.waiting, None
        self._left -= 1
        # One that was killed while it waited is no fault of the slide.
        process = ready if ready is not None and ready.alive else None
        reader = open_isolated(path, self._limits, alone=alone, process=process)
        self._prepare()
        return reader

    def close(self) -> None:
        """End the child that waits; twice does no harm."""
        if self.waiting is not None:
            self.waiting.close()
        self.waiting, self._left = None, 0

    def _prepare(self) -> None:
        if self._left > 0 and self.waiting is None:
            # Where none can be started now, the slide that needs one will say so.
            with suppress(OSError):
                self.waiting = ReadingProcess(self._limits)
