"""Pieces of large slides measured in child processes, which are kept for all slides of a run.

Measuring is many small steps, of which the threads of one process do one at a time. A child gets the runs and regions
of a piece and answers with its findings; it sees nothing but our own numbers, so that both go as pickles. The first one
imports what measuring needs, which takes longer than to measure a piece, and the others are its forks. Each ends when
its pipe closes, with its parent. Whatever ends it before that costs time alone: its piece is measured here, and the
next slide has another child in its place.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Self

from ntrm.core.processes import module_command, module_environment
from ntrm.core.threads import most_threads
from ntrm.pipeline.measurements import PieceFindings, PieceTask, measure_task

MOST_CHILDREN = 4
CORES_EACH = 4
"""Cores for each child: a few that stand idle, since files are written at the same time."""
LEAST_PIXELS = 1 << 25
"""Of the mask: smaller ones are measured in less time than it takes to start a child."""
LONGEST_S = 600
"""A child that has not answered for so long never will."""
ENDING_S = 5
"""For children to end once their pipes are closed."""


def children_for(pixels: int) -> int:
    """How many children pay for a mask of so many pixels; none where there are few cores."""
    children = min(MOST_CHILDREN, most_threads() // CORES_EACH)
    return children if pixels >= LEAST_PIXELS and children > 1 else 0


class MeasuringPool:
    """Children that measure pieces of one slide after the other, none at first; safe to use from several threads."""

    def __init__(self) -> None:
        self.children = 0
        # None stands for a child that is gone.
        self._idle: SimpleQueue[_Child | None] = SimpleQueue()
        self._starting = Lock()
        self._started: list[subprocess.Popen[bytes]] = []
        self._pipes: list[Connection] = []
        # A pool that nobody closed must not leave its children behind.
        weakref.finalize(self, _end, self._pipes, self._started)

    def for_mask(self, pixels: int) -> Self | None:
        """The pool with all its children, for a mask of so many pixels; None where they do not pay."""
        children = children_for(pixels)
        if children:
            self.ready(children)
        return self if children else None

    def ready(self, children: int) -> None:
        """Start the children if there are none yet, and others for those that are gone."""
        with self._starting:
            for _ in range(children - self.children):
                self._idle.put(None)
            self.children = max(self.children, children)
            idle = _emptied(self._idle)
            gone = idle.count(None)
            # Where none can be started, pieces are measured here.
            started: list[_Child | None] = [None] * gone
            if gone:
                with suppress(OSError):
                    started = self._start(gone)
            for child in (*(child for child in idle if child is not None), *started):
                self._idle.put(child)

    def _start(self, count: int) -> list[_Child | None]:
        pipes, process = _start(count)
        self._started.append(process)
        self._pipes += pipes
        return [_Child(pipe, process) for pipe in pipes]

    def measure(self, task: PieceTask) -> PieceFindings:
        """Measure a piece in the next child that is free."""
        child = self._idle.get()
        found = None if child is None else child.ask(task)
        self._idle.put(child if found is not None else None)
        return measure_task(task) if found is None else found

    def close(self) -> None:
        """End all children; twice does no harm, and another mask gets others."""
        with self._starting:
            _end(self._pipes, self._started)
            self.children, self._idle = 0, SimpleQueue()


def _emptied(queue: SimpleQueue[_Child | None]) -> list[_Child | None]:
    taken = []
    with suppress(Empty):
        while True:
            taken.append(queue.get_nowait())
    return taken


class _Child:
    """A child, by its pipe; ``process`` is the one of which it is a fork, or itself."""

    def __init__(self, pipe: Connection, process: subprocess.Popen[bytes]) -> None:
        self._pipe, self._process = pipe, process

    def ask(self, task: PieceTask) -> PieceFindings | None:
        """The findings; None where the child is gone or does not answer, and then it is ended."""
        with suppress(EOFError, OSError):
            self._pipe.send(task)
            if self._pipe.poll(LONGEST_S):
                found = self._pipe.recv()
                if isinstance(found, PieceFindings):
                    return found
            _kill(self._process)
        self._pipe.close()
        return None


def _start(count: int) -> tuple[list[Connection], subprocess.Popen[bytes]]:
    """The pipes to so many children, and the first of these; all are of one group of processes, their own."""
    with ExitStack() as stack:
        pairs = [Pipe() for _ in range(count)]
        numbers = [stack.enter_context(theirs).fileno() for _, theirs in pairs]
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            module_command("ntrm.pipeline.measuring_process", *numbers),
            pass_fds=numbers,
            process_group=0,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**module_environment(), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
    return [ours for ours, _ in pairs], process


def _kill(process: subprocess.Popen[bytes]) -> None:
    """A child and its forks, some of which may live on where it does not."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(pipes: list[Connection], started: list[subprocess.Popen[bytes]]) -> None:
    """End all children; none are left in the lists."""
    for pipe in pipes:
        pipe.close()
    for process in started:
        try:
            process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.wait()
    pipes.clear()
    started.clear()


def main(arguments: list[str]) -> None:
    """Measure what comes through the pipe until it closes; an error ends the child, and its parent meets it again."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with _own([Connection(int(number)) for number in arguments]) as pipe, suppress(EOFError, OSError):
        while True:
            pipe.send(measure_task(pipe.recv()))
    # The first one is there until its forks have ended, so that they count as its own.
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _own(pipes: Sequence[Connection]) -> Connection:
    """Fork into a process for each pipe; this one's."""
    # What is imported on the first use would be imported by each of them.
    from scipy.spatial import cKDTree  # noqa: F401

    own = next((pipe for pipe in pipes[1:] if not os.fork()), pipes[0])
    for other in pipes:
        if other is not own:
            # Or its process could end without its parent noticing.
            other.close()
    return own


if __name__ == "__main__":
    main(sys.argv[1:])
