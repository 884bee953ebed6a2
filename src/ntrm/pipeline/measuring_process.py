"""Pieces of a large slide measured in child processes, started while the network works.

Measuring is many small steps, of which the threads of one process do one at a time. A child gets the runs and regions
of a piece and answers with its findings; it sees nothing but our own numbers, so that both go as pickles. It ends when
its pipe closes, with its parent. Whatever ends it before that costs time alone: its piece is measured here.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from queue import SimpleQueue

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


def children_for(pixels: int) -> int:
    """How many children pay for a mask of so many pixels; none where there are few cores."""
    children = min(MOST_CHILDREN, most_threads() // CORES_EACH)
    return children if pixels >= LEAST_PIXELS and children > 1 else 0


class MeasuringPool:
    """Children that measure pieces; safe to use from several threads."""

    def __init__(self, children: int) -> None:
        self.children = children
        self._all: list[_Child] = []
        # None stands for a child that is gone.
        self._idle: SimpleQueue[_Child | None] = SimpleQueue()
        for _ in range(children):
            # Where none can be started, pieces are measured here.
            child = None
            with suppress(OSError):
                child = _Child()
                self._all.append(child)
            self._idle.put(child)

    def measure(self, task: PieceTask) -> PieceFindings:
        """Measure a piece in the next child that is free."""
        child = self._idle.get()
        found = None if child is None else child.ask(task)
        self._idle.put(child if found is not None else None)
        return measure_task(task) if found is None else found

    def close(self) -> None:
        """End all children; twice does no harm."""
        for child in self._all:
            child.close()


@contextmanager
def measuring_pool(pixels: int) -> Iterator[MeasuringPool | None]:
    """Children for a mask of so many pixels; None where they do not pay."""
    children = children_for(pixels)
    if not children:
        yield None
        return
    pool = MeasuringPool(children)
    try:
        yield pool
    finally:
        pool.close()


class _Child:
    """One child and the pipe to it."""

    def __init__(self) -> None:
        self._pipe, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                module_command("ntrm.pipeline.measuring_process", theirs.fileno()),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**module_environment(), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )

    def ask(self, task: PieceTask) -> PieceFindings | None:
        """The findings; None where the child is gone or does not answer, and then it is ended."""
        with suppress(EOFError, OSError):
            self._pipe.send(task)
            if self._pipe.poll(LONGEST_S):
                found = self._pipe.recv()
                if isinstance(found, PieceFindings):
                    return found
        self.close()
        return None

    def close(self) -> None:
        self._pipe.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


def main(arguments: list[str]) -> None:
    """Measure what comes through the pipe until it closes; an error ends the child, and its parent meets it again."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Connection(int(arguments[0])) as pipe, suppress(EOFError, OSError):
        while True:
            pipe.send(measure_task(pipe.recv()))


if __name__ == "__main__":
    main(sys.argv[1:])
