"""Slides read in a child process with limits on memory and time: a crash in a native library is one slide's error.

The child answers in JSON and bare pixels. It dies with its parent (the pipe closes) and by itself when one request
takes too long; it never gets more memory than stated.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from threading import Lock, Timer
from typing import Any, Self, cast

import numpy as np
from PIL.Image import Image as Picture
from PIL.Image import fromarray

from ntrm.core.errors import DataError, UsageError, check_number
from ntrm.core.mpp import Resolution
from ntrm.core.processes import close_pipes, module_command, module_environment
from ntrm.slides.readers.reader import MAX_SIDE, Pixels, SlideInfo, check_request
from ntrm.slides.readers.reading_process import fill, message, rebuild_error, receive

_START_SECONDS = 120  # A new process may wait for a busy machine before it can answer at all


@dataclass(frozen=True)
class ReadingLimits:
    """What one slide may cost its reading process."""

    memory_mb: int = 1024  # Memory on top of what Python and the libraries take
    seconds: int = 120  # Time for opening, and for one region


class ReadingProcess:
    """A ``SlideReader`` in a child process; safe to use from several threads.

    It can open one slide after another; after a crash or a timeout it is gone. ``info`` of the open slide has width and
    height in pixels, the µm/px (``resolution``), levels and the scanned area. Use it in a ``with`` block, or close it.
    """

    info: SlideInfo

    def __init__(self, limits: ReadingLimits | None = None) -> None:
        self.limits = limits or ReadingLimits()
        self._opened: tuple[Path, bool] | None = None
        self._closed = False
        self._locks = {os.getpid(): Lock()}
        self._start()

    def _start(self) -> None:
        self._pid, self._fresh = os.getpid(), True
        self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            module_command("ntrm.slides.readers.reading_process", self.limits.memory_mb * 2**20, self.limits.seconds),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # One heap for all threads: each of its own would reserve a good part of the memory allowed.
            env={**module_environment(), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
        )
        self._requests, self._answers = cast("RawIOBase", self._child.stdin), cast("RawIOBase", self._child.stdout)
        # A reader that nobody closed must not leave its child behind.
        self._finalizer = weakref.finalize(self, _end, self._child, self._pid)

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self._finalizer.alive and (self._pid != os.getpid() or self._child.poll() is None)

    @property
    def _lock(self) -> Lock:
        # One for each process: a fork would inherit it as it is, held perhaps by a thread that the fork has not.
        return self._locks.setdefault(os.getpid(), Lock())

    def open(self, path: Path, *, alone: bool = False) -> SlideInfo:
        """Open a slide in place of the last one; ``alone`` as for ``open_slide``."""
        with self._lock:
            self._take_over()
            return self._open(path.absolute(), alone)

    def _open(self, path: Path, alone: bool) -> SlideInfo:
        from pydantic import TypeAdapter  # takes a moment

        with self._talking():
            answer = self._ask({"open": os.fsencode(path).hex(), "alone": alone})
            self.info, self._opened = TypeAdapter(SlideInfo).validate_python(answer["info"]), (path, alone)
        return self.info

    def _take_over(self) -> None:
        """In a fork of the process that started the child, start another one: two cannot share its pipes."""
        if self._closed:
            hint = "read inside the with block, or open the slide again"
            raise UsageError("the slide is closed", expected="an open slide", hint=hint)
        if self._pid != os.getpid() and self._finalizer.alive:
            self._finalizer()
            self._start()
            if self._opened is not None:
                self._open(*self._opened)

    def __reduce__(self) -> tuple[object, ...]:
        # Another process opens the slide for itself.
        if self._closed or self._opened is None:
            raise UsageError("the slide is closed", expected="an open slide", hint="open it in the other process")
        return _reopened, (self.limits, *self._opened)

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """As ``SlideReader.read``, of the slide that is open."""
        check_request(self.info, width, height, level)
        for axis, position in (("x", x), ("y", y)):
            check_number(f"{axis} of a region", position, -2 * MAX_SIDE, 2 * MAX_SIDE, whole=True)
        region = [int(number) for number in (x, y, width, height, level)]
        pixels = np.empty((region[3], region[2], 3), dtype=np.uint8)
        with self._lock:
            self._take_over()
            with self._talking():
                if self._ask({"read": region})["pixels"] != [*pixels.shape]:
                    raise ValueError("pixels of another shape")
                fill(self._answers, pixels)
        return pixels

    @contextmanager
    def _talking(self) -> Iterator[None]:
        """End a child that takes too long; one that is dead, or answers what makes no sense, is our own error."""
        seconds = self.limits.seconds + 2 + (_START_SECONDS if self._fresh else 0)
        late, deadline = Timer(seconds, self._child.kill), time.monotonic() + seconds
        late.start()
        try:
            yield
            self._fresh = False
        except (EOFError, OSError, ValueError, TypeError, LookupError, RecursionError) as error:
            got = "the reading process stopped answering, or what it says makes no sense"
            with suppress(subprocess.TimeoutExpired):
                code = self._child.wait(timeout=5)
                got = f"the reading process ended ({signal.Signals(-code).name if code < 0 else f'exit code {code}'})"
                if time.monotonic() >= deadline or (code < 0 and -code == getattr(signal, "SIGALRM", None)):
                    got = f"no answer within {self.limits.seconds} s"
            raise self._failed(got) from error
        finally:
            late.cancel()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if not self.alive:
            raise EOFError("the child is gone")
        self._requests.write(message(request))
        answer = receive(self._answers)
        if "error" in answer:
            raise rebuild_error(answer["error"])
        if "memory" in answer:
            raise self._failed(f"more than {self.limits.memory_mb} MB of memory wanted")
        return answer

    def _failed(self, got: str) -> DataError:
        """End the child; the error to raise."""
        self._finalizer()
        return DataError(
            "reading the slide failed",
            got=got,
            expected=f"at most {self.limits.memory_mb} MB and {self.limits.seconds} s for a region",
            hint="the file is damaged or hostile; copy it again from the scanner, or convert it in QuPath to OME-TIFF",
        )

    @property
    def dimensions(self) -> tuple[int, int]:
        """Width and height of the full resolution in pixels."""
        return self.info.width, self.info.height

    @property
    def mpp(self) -> Resolution | None:
        """µm/px of the full resolution along x and y; None where the file does not credibly state it."""
        return self.info.resolution

    def thumbnail(self, size: int | tuple[int, int] = 1024) -> Picture:
        """The whole slide as a Pillow image of at most this width and height, or fewer pixels where the slide has."""
        box = size if isinstance(size, tuple) else (size, size)
        for side in box:
            check_number("size of a thumbnail", side, 1, MAX_SIDE, whole=True)
        whole, *_ = levels = self.info.levels
        scale = min(box[0] / whole.width, box[1] / whole.height)
        level = max(k for k, one in enumerate(levels) if k == 0 or one.width >= scale * whole.width)
        picture = fromarray(self.read(0, 0, levels[level].width, levels[level].height, level))
        picture.thumbnail(box)
        return picture

    def close(self) -> None:
        """End the child; twice does no harm."""
        self._closed = True
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _end(child: subprocess.Popen[bytes], owner: int) -> None:
    close_pipes(child)
    if os.getpid() != owner:
        child.returncode = 0  # a fork may neither end it nor wait for it
        return
    child.kill()
    child.wait()


def open_isolated(path: Path, *, alone: bool = False, process: ReadingProcess | None = None) -> ReadingProcess:
    """Open a slide in a child process, a new one or ``process``; with ``alone`` the slide must be one file."""
    process = process or ReadingProcess()
    try:
        process.open(Path(path), alone=alone)
    except BaseException:
        process.close()
        raise
    return process


def _reopened(limits: ReadingLimits, path: Path, alone: bool) -> ReadingProcess:
    return open_isolated(path, alone=alone, process=ReadingProcess(limits))


def open_slide(path: str | Path) -> ReadingProcess:
    """Open a slide or an image, whatever its name ends in, to read pixels from it.

    It is decoded in a child process with limits on memory and time, so that a damaged file cannot harm this one:

    ``with ntrm.open_slide("slide.svs") as slide: pixels = slide.read(x, y, width, height, level)``

    It has ``info``, ``dimensions`` and ``mpp``; ``thumbnail`` gives a Pillow image.

    Other processes that get it, such as the workers of a ``DataLoader``, open the slide again, each for itself.
    """
    return open_isolated(Path(path))


class ReaderPool:
    """Opens at most so many ``slides``, each in a child of its own; the next slide's is started ahead, to save time."""

    def __init__(self, slides: int) -> None:
        self._left = slides
        self.waiting: ReadingProcess | None = None
        """The child that was started ahead."""
        self._prepare()

    def open(self, path: Path, *, alone: bool = False) -> ReadingProcess:
        """Open a slide, and start the child of the next one."""
        self._left -= 1
        try:
            return open_isolated(path, alone=alone, process=self.waiting)
        finally:
            self._prepare()

    def _prepare(self) -> None:
        self.waiting = None
        # Where none can be started now, the slide that needs one will say so.
        with suppress(OSError):
            self.waiting = ReadingProcess() if self._left > 0 else None

    def close(self) -> None:
        """End the child that waits; twice does no harm."""
        if self.waiting is not None:
            self.waiting.close()
