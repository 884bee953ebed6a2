"""Independent work in several processes, in order and cleanly interruptible."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TypeVar

from ntrm.core.errors import DataError, UsageError

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item], jobs: int = 1) -> Iterator[Result]:
    """Results of ``work`` in the order of ``items``, whatever ``jobs`` is.

    ``work`` and the items must be picklable, and a script that asks for several jobs needs the usual
    ``if __name__ == "__main__"``. An error or an interrupt drops what has not begun.

    >>> list(parallel_map(abs, [-3, 2, -1]))
    [3, 2, 1]
    """
    if jobs < 1:
        raise UsageError("wrong number of jobs", got=jobs, expected="1 or more")
    jobs = min(jobs, len(items))
    if jobs <= 1:
        yield from map(work, items)
        return
    with worker_pool(jobs) as pool:
        yield from pool.map(work, items)


@contextmanager
def worker_pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes to work in; an error or an interrupt drops what has not begun, a killed one is explained."""
    # Fresh processes rather than forks: a fork of a process with threads (torch has some) may hang.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_leave_interrupts_to_parent)
    try:
        yield pool
    except (BrokenProcessPool, BrokenPipeError) as error:
        # The pipe is that to a process which died before it was told what to do; a command would end without a word.
        raise DataError(
            "a worker process was killed", got=error, mend="the memory may not suffice for so many: lower --jobs"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
