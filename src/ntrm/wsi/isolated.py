"""Slides read in a child process with limits on memory and time: a crash in a native library is one slide's error.

The child answers in JSON and bare pixels. It dies with its parent (the pipe closes) and by itself when one request
takes too long; it never gets more memory than stated.

Pixels go through a piece of memory that both processes have open as a file, of fixed size, or through the pipe where
they do not fit into it or a system has no such files. A pipe hands them over in many small parts, and each waits until
no other thread runs Python.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Self

import numpy as np
from PIL.Image import Image as Picture
from PIL.Image import fromarray

from ntrm.core.errors import DataError, NtrmError, UsageError, check_number
from ntrm.core.mpp import Resolution
from ntrm.core.processes import module_command, module_environment
from ntrm.core.threads import most_threads
from ntrm.wsi.readers.reader import MAX_SIDE, Pixels, SlideInfo, check_request
from ntrm.wsi.readers.reading_process import rebuild_error, rebuild_info

SHARED_BYTES = 16 * 2**20
"""Memory through which pixels go: enough for a block of ``grid.BLOCK_PIXELS``."""
LARGE = 1 << 26
"""Pixels from which on several children read a slide, where there are cores for them."""
MOST_CHILDREN, CORES_EACH = 4, 4
"""Children that read one slide at most, and the cores for which there is one: most are the parent's."""
_START_SECONDS = 120
"""A new process may wait for a busy machine before it can answer at all."""


@dataclass(frozen=True)
class ReadingLimits:
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

    def __init__(self, limits: ReadingLimits | None = None) -> None:
        self.limits = limits or ReadingLimits()
        self._opened: tuple[Path, bool] | None = None
        self._closed = False
        self._locks = {os.getpid(): Lock()}
        self._begin()

    def _begin(self) -> None:
        """Start the child."""
        self._pid = os.getpid()
        self._pipe, theirs = Pipe()
        self._shared = _shared_memory()
        try:
            with theirs:
                self._child = _start(theirs, self._shared, self.limits)
        except OSError:
            _close(self._pipe, self._shared)
            raise
        self._fresh = True
        # A reader that nobody closed must not leave its child behind.
        self._finalizer = weakref.finalize(self, _finish, self._pipe, self._shared, self._child, self._pid)

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        if self._pid != os.getpid():
            return self._finalizer.alive
        return self._child.poll() is None and not self._pipe.closed

    @property
    def _lock(self) -> Lock:
        """One for each process: a fork would inherit it as it is, held perhaps by a thread that the fork has not."""
        return self._locks.setdefault(os.getpid(), Lock())

    def open(self, path: Path, *, alone: bool = False) -> SlideInfo:
        """Open a slide in place of the last one; ``alone`` as for ``open_slide``."""
        with self._lock:
            self._take_over()
            return self._open(path.absolute(), alone)

    def _open(self, path: Path, alone: bool) -> SlideInfo:
        answer = self._ask({"open": os.fsencode(path).hex(), "alone": alone})
        try:
            self.info, self._opened = rebuild_info(answer["info"]), (path, alone)
        except (LookupError, TypeError, ValueError) as error:
            raise self._failed("an answer that makes no sense") from error
        return self.info

    def _take_over(self, *, reopen: bool = False) -> None:
        """In a fork of the process that started the child, start another one: two cannot share its pipe."""
        if self._closed:
            hint = "read inside the with block, or open the slide again"
            raise UsageError("the slide is closed", expected="an open slide", hint=hint)
        if self._pid != os.getpid() and self._finalizer.alive:
            self._finalizer()
            self._begin()
            if reopen and self._opened is not None:
                self._open(*self._opened)

    def __reduce__(self) -> tuple[object, ...]:
        # Another process opens the slide for itself.
        if self._closed or self._opened is None:
            raise UsageError("the slide is closed", expected="an open slide", hint="open it in the other process")
        return (_reopened, (self.limits, *self._opened))

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """As ``SlideReader.read``, of the slide that is open."""
        check_request(self.info, width, height, level)
        for axis, position in (("x", x), ("y", y)):
            check_number(f"{axis} of a region", position, -2 * MAX_SIDE, 2 * MAX_SIDE, whole=True)
        x, y, width, height, level = (int(number) for number in (x, y, width, height, level))
        pixels = np.empty((height, width, 3), dtype=np.uint8)
        shared = self._shared is not None and pixels.nbytes <= SHARED_BYTES
        with self._lock:
            self._take_over(reopen=True)
            answer = self._ask({"read": [x, y, width, height, level], "shared": shared})
            if answer.get("pixels") != [height, width, 3]:
                raise self._failed("pixels of another shape")
            try:
                self._receive(pixels.data.cast("B"), shared=shared)
            except (EOFError, OSError, ValueError) as error:
                raise self._failed(self._cause_of_death()) from error
        return pixels

    def _receive(self, pixels: memoryview, *, shared: bool) -> None:
        if not shared or self._shared is None:
            self._pipe.recv_bytes_into(pixels)
        elif os.preadv(self._shared, [pixels], 0) != len(pixels):
            raise EOFError("fewer pixels than there should be")

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

    def read_region(self, location: tuple[int, int], level: int, size: tuple[int, int]) -> Picture:
        """A region as a Pillow image, with OpenSlide's arguments: ``location`` in level-0 pixels, ``size`` in level's.

        It is RGB, white where nothing was scanned; ``read`` gives the same as an array.
        """
        return fromarray(self.read(*location, *size, level))

    def thumbnail(self, size: int | tuple[int, int] = 1024) -> Picture:
        """The whole slide as a Pillow image of at most this width and height, or fewer pixels where the slide has."""
        box = size if isinstance(size, tuple) else (size, size)
        for side in box:
            check_number("size of a thumbnail", side, 1, MAX_SIDE, whole=True)
        whole, *_ = levels = self.info.levels
        scale = min(box[0] / whole.width, box[1] / whole.height)
        level = max(k for k, one in enumerate(levels) if k == 0 or one.width >= scale * whole.width)
        picture = self.read_region((0, 0), level, (levels[level].width, levels[level].height))
        picture.thumbnail(box)
        return picture

    def kill(self) -> None:
        """End the child, so that whoever waits for it gets an error; ``close`` does so where nobody waits."""
        self._child.kill()

    def close(self) -> None:
        """End the child; twice does no harm."""
        self._closed = True
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _shared_memory() -> int | None:
    """Descriptor of memory that a child can write to, and neither shrink nor grow; None where there is no such."""
    if not hasattr(os, "memfd_create"):
        return None
    descriptor = os.memfd_create("pixels", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, SHARED_BYTES)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    except OSError:
        # The largest file that this process may write counts here, too.
        os.close(descriptor)
        return None
    return descriptor


def _start(pipe: Connection, shared: int | None, limits: ReadingLimits) -> subprocess.Popen[bytes]:
    descriptors = [pipe.fileno(), *([] if shared is None else [shared])]
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        module_command("ntrm.wsi.readers.reading_process", limits.memory_mb * 2**20, limits.seconds, *descriptors),
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # One heap for all threads: each of its own would reserve a good part of the memory allowed.
        env={**module_environment(), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
    )


def _finish(pipe: Connection, shared: int | None, child: subprocess.Popen[bytes], owner: int) -> None:
    _close(pipe, shared)
    if os.getpid() != owner:
        child.returncode = 0  # a fork may neither end it nor wait for it
        return
    if child.poll() is None:
        child.kill()
    child.wait()


def _close(pipe: Connection, shared: int | None) -> None:
    pipe.close()
    if shared is not None:
        os.close(shared)


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

    It has ``info``, ``dimensions`` and ``mpp``; ``thumbnail`` and ``read_region`` give Pillow images.

    Other processes that get it, such as the workers of a ``DataLoader``, open the slide again, each for itself.
    """
    return open_isolated(Path(path))


class ReadingGroup:
    """One slide in several children: a ``SlideReader`` from which as many threads can read at the same time.

    ``first`` has it open already. The others open it meanwhile, and help from then on; one that cannot is left out.
    What a child runs into while it reads is an error, as it is for a slide with a single child.
    """

    def __init__(self, first: ReadingProcess, others: Sequence[ReadingProcess], path: Path, *, alone: bool) -> None:
        self.info = first.info
        self.children = (first, *others)
        self._free: SimpleQueue[ReadingProcess] = SimpleQueue()
        self._free.put(first)
        self._opening = [Thread(target=self._open, args=(child, path, alone), daemon=True) for child in others]
        for thread in self._opening:
            thread.start()

    @property
    def at_once(self) -> int:
        """Threads that need not wait for each other."""
        return len(self.children)

    def _open(self, child: ReadingProcess, path: Path, alone: bool) -> None:
        with suppress(NtrmError):
            if child.open(path, alone=alone) == self.info:
                self._free.put(child)
                return
        child.close()

    def read(self, x: int, y: int, width: int, height: int, level: int) -> Pixels:
        """As ``SlideReader.read``, in the child that has been free for longest."""
        child = self._free.get()
        try:
            return child.read(x, y, width, height, level)
        finally:
            self._free.put(child)

    def close(self) -> None:
        """End the children; twice does no harm."""
        for child in self.children:
            child.kill()
        for thread in self._opening:
            thread.join()
        for child in self.children:
            child.close()


def children_for(info: SlideInfo) -> int:
    """How many are to read a slide: several where it is large and there are cores for them."""
    return max(1, min(MOST_CHILDREN, most_threads() // CORES_EACH)) if info.width * info.height >= LARGE else 1


def open_in_children(path: Path, *, alone: bool = False) -> ReadingProcess | ReadingGroup:
    """Open a slide as ``open_isolated`` does, a large one in several children."""
    return ReaderPool(0).open(path, alone=alone)


class ReaderPool:
    """Opens slides, each in a child of its own, large ones in several; those of the next slide are started ahead.

    Starting a child takes longer than opening a slide. ``slides`` is how many will be opened at most: no child is
    started ahead for more. ``waiting`` are the children that were started ahead: as many as the slide before had.
    """

    def __init__(self, slides: int) -> None:
        self._left = slides
        self.waiting: list[ReadingProcess] = []
        self._prepare(1)

    def open(self, path: Path, *, alone: bool = False) -> ReadingProcess | ReadingGroup:
        """Open a slide, and start the children of the next one."""
        self._left -= 1
        first = open_isolated(path, alone=alone, process=self._take())
        count = children_for(first.info)
        others = [child for _ in range(count - 1) if (child := self._take() or self._started()) is not None]
        self._prepare(count)
        return ReadingGroup(first, others, path, alone=alone) if others else first

    def close(self) -> None:
        """End the children that wait; twice does no harm."""
        for child in self.waiting:
            child.close()
        self.waiting, self._left = [], 0

    def _take(self) -> ReadingProcess | None:
        """A waiting child, if there is one; one that was killed while it waited is passed over."""
        while self.waiting:
            child = self.waiting.pop(0)
            if child.alive:
                return child
            child.close()
        return None

    def _started(self) -> ReadingProcess | None:
        # Where none can be started now, the slide that needs one will say so.
        with suppress(OSError):
            return ReadingProcess()
        return None

    def _prepare(self, count: int) -> None:
        while self._left > 0 and len(self.waiting) < count and (child := self._started()) is not None:
            self.waiting.append(child)
