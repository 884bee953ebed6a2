"""Work in threads, which pays where libraries let others run meanwhile: how many there may be, and results in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TypeVar

from ntrm.core.errors import check_number

Item = TypeVar("Item")
Result = TypeVar("Result")

LIMIT = "OMP_NUM_THREADS"
"""The usual way to tell a process how many threads to use; Ray, SLURM and torchrun set it for each of their workers."""


def cores_given() -> int:
    """Cores on which this process may run: containers and job schedulers give it fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def most_threads() -> int:
    """Threads that this process may keep busy: one for each of its cores, and no more than ``LIMIT`` says."""
    limit = os.environ.get(LIMIT, "").split(",")[0].strip()
    return min(cores_given(), int(limit)) if limit.isdecimal() and int(limit) else cores_given()


def thread_map(work: Callable[[Item], Result], items: Iterable[Item], threads: int | None = None) -> Iterator[Result]:
    """Results of ``work`` in the order of ``items``, whatever ``threads`` is (default: ``most_threads``).

    No more is begun than a few items beyond those that were taken, so that memory does not grow with their number.
    An error is raised in its turn, and drops what has not begun.

    >>> list(thread_map(abs, [-3, 2, -1], threads=2))
    [3, 2, 1]
    """
    count = most_threads() if threads is None else threads
    check_number("number of threads", count, 1, 4096, whole=True)
    if count == 1:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(count, thread_name_prefix="ntrm-map")
    try:
        yield from in_order(pool, work, items, count)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def in_order(pool: Executor, work: Callable[[Item], Result], items: Iterable[Item], ahead: int) -> Iterator[Result]:
    """Results of a pool in the order of the items, of which at most so many are begun ``ahead``."""
    under_way = deque[Future[Result]]()
    for item in items:
        under_way.append(pool.submit(work, item))
        if len(under_way) > ahead:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()
