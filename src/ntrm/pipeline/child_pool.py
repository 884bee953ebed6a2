"""Child processes that measure pieces of large slides and write files; they are kept for all slides of a run.

Both are many small steps, of which the threads of one process do one at a time. A child gets a function of ours and the
numbers it works on, and answers with the result; it sees nothing from outside, so that all goes as pickles. Tasks are
put into memory that both have open as a file: a pipe takes them in many small parts, and each waits until no other
thread runs Python.

The first child imports what is needed, which takes longer than to measure a piece, and the others are its forks. Each
ends when its pipe closes, with its parent. Whatever ends it before that costs time alone: its task is done here, and
the next slide has another child in its place.
"""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from threading import Lock
from typing import ParamSpec, Self, TypeVar

from ntrm.core.processes import module_command, module_environment
from ntrm.core.threads import most_threads

LEAST_CORES = 8
"""For there to be children at all: files are written at the same time."""
MOST_CHILDREN = 8
CORES_EACH = 2
LEAST_PIXELS = 1 << 25
"""Of the mask: smaller ones are measured in less time than it takes to start a child."""
LONGEST_S = 600
"""A child that has not answered for so long never will."""
ENDING_S = 2
"""For children to end once their pipes are closed."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


def children_for(pixels: int) -> int:
    """How many children pay for a mask of so many pixels; none where there are few cores."""
    cores = most_threads()
    return min(MOST_CHILDREN, cores // CORES_EACH) if pixels >= LEAST_PIXELS and cores >= LEAST_CORES else 0


class ChildPool:
    """Children that work on one slide after the other, none at first; safe to use from several threads."""

    def __init__(self) -> None:
        self.size = 0
        # None stands for a child that is gone.
        self._idle: SimpleQueue[_Child | None] = SimpleQueue()
        self._starting = Lock()
        self._started: list[subprocess.Popen[bytes]] = []
        self._all: list[_Child] = []
        # A pool that nobody closed must not leave its children behind.
        weakref.finalize(self, _end, self._all, self._started)

    def for_mask(self, pixels: int) -> Self | None:
        """The pool with all its children, for a mask of so many pixels; None where they do not pay."""
        children = children_for(pixels)
        if children:
            self.ready(children)
        return self if children else None

    def ready(self, children: int) -> None:
        """Start the children if there are none yet, and others for those that are gone."""
        with self._starting:
            for _ in range(children - self.size):
                self._idle.put(None)
            self.size = max(self.size, children)
            idle = _emptied(self._idle)
            gone = idle.count(None)
            # Where none can be started, all is done here.
            started: list[_Child | None] = [None] * gone
            if gone:
                with suppress(OSError):
                    started = self._start(gone)
            for child in (*(child for child in idle if child is not None), *started):
                self._idle.put(child)

    def _start(self, count: int) -> list[_Child | None]:
        process, children = _start(count)
        self._started.append(process)
        self._all += children
        return [*children]

    def do(self, work: Callable[Given, Result], *given: Given.args, **more: Given.kwargs) -> Result:
        """What ``work`` returns, in the next child that is free."""
        child = self._idle.get()
        found: tuple[Result] | None = None if child is None else child.ask((work, given, more))
        self._idle.put(child if found is not None else None)
        return work(*given, **more) if found is None else found[0]

    def close(self) -> None:
        """End all children; twice does no harm, and another mask gets others."""
        with self._starting:
            _end(self._all, self._started)
            self.size, self._idle = 0, SimpleQueue()


def _emptied(queue: SimpleQueue[_Child | None]) -> list[_Child | None]:
    taken = []
    with suppress(Empty):
        while True:
            taken.append(queue.get_nowait())
    return taken


class _Child:
    """A child, by the pipe and the memory it has open; ``process`` is the one of which it is a fork, or itself."""

    def __init__(self, pipe: Connection, memory: int, process: subprocess.Popen[bytes]) -> None:
        self._pipe, self._memory, self._process = pipe, memory, process

    def ask(self, task: tuple[object, ...]) -> tuple[Result] | None:
        """The answer, alone in a tuple; None where the child is gone or does not answer, and then it is ended."""
        with suppress(EOFError, OSError):
            with open(self._memory, "wb", closefd=False) as stream:
                stream.seek(0)
                pickle.dump(task, stream, protocol=pickle.HIGHEST_PROTOCOL)
            self._pipe.send_bytes(b"task")
            if self._pipe.poll(LONGEST_S):
                answer: tuple[Result] = self._pipe.recv()
                return answer
            _kill(self._process)
        self.close()
        return None

    def close(self) -> None:
        """It ends once it has done what it does; twice does no harm."""
        if not self._pipe.closed:
            self._pipe.close()
            os.close(self._memory)


def _start(count: int) -> tuple[subprocess.Popen[bytes], list[_Child]]:
    """Start ``count`` children, in a process group of their own; returns the process of the first, and all children."""
    with ExitStack() as stack:
        pairs = [Pipe() for _ in range(count)]
        pipes = [stack.enter_context(theirs).fileno() for _, theirs in pairs]
        memories = [_memory() for _ in range(count)]
        for memory in memories:
            stack.callback(os.close, memory)
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            module_command("ntrm.pipeline.child_pool", *pipes, *memories),
            pass_fds=[*pipes, *memories],
            process_group=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**module_environment(), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        ours = [(pipe, os.dup(memory)) for (pipe, _), memory in zip(pairs, memories, strict=True)]
    return process, [_Child(pipe, memory, process) for pipe, memory in ours]


def _memory() -> int:
    """Descriptor of memory, or of a nameless file where a system has none, of any size."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("task")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a child and its forks, some of which may outlive it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(children: list[_Child], started: list[subprocess.Popen[bytes]]) -> None:
    """End all children; none are left in the lists."""
    for child in children:
        child.close()
    for process in started:
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.wait()
    children.clear()
    started.clear()


def main(arguments: list[str]) -> None:
    """Do what is asked until the pipe closes; an error ends the child, and its parent does the work itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    numbers = [int(number) for number in arguments]
    count = len(numbers) // 2
    pipes = [Connection(number) for number in numbers[:count]]
    own = _forked(pipes)
    memory = numbers[count + own]
    with pipes[own] as pipe, suppress(EOFError, OSError):
        while True:
            pipe.recv_bytes()
            with mmap.mmap(memory, 0, access=mmap.ACCESS_READ) as content:
                work, given, more = pickle.loads(content)  # noqa: S301 - our parent's
            os.ftruncate(memory, 0)
            pipe.send((work(*given, **more),))
    # The first one is there until its forks have ended, so that they count as its own.
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _forked(pipes: Sequence[Connection]) -> int:
    """Fork into a process for each pipe; returns the number of this process's pipe."""
    # What is imported on the first use would be imported by each of them.
    import scipy.spatial  # noqa: F401

    import ntrm.pipeline.slide_files
    import ntrm.report.overlay  # noqa: F401
    from ntrm.report.slide_report import prepare_report

    if find_spec("jinja2") is not None:
        prepare_report()
    # Or each would look through all that is imported for garbage, and so get pages of its own.
    gc.freeze()
    own = next((number for number in range(1, len(pipes)) if not os.fork()), 0)
    for number, other in enumerate(pipes):
        if number != own:
            # Or its process could end without its parent noticing.
            other.close()
    return own


if __name__ == "__main__":
    main(sys.argv[1:])
