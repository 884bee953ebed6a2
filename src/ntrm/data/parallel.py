"""Independent work on several threads: decoding, zlib and array arithmetic all release Python's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ntrm.errors import UsageError

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item], jobs: int = 1) -> Iterator[Result]:
    """Results of ``work`` in the order of ``items``, whatever ``jobs`` is.

    An error or an interrupt drops what has not begun, instead of working through the rest first.

    >>> list(parallel_map(abs, [-3, 2, -1], jobs=2))
    [3, 2, 1]
    """
    if jobs < 1:
        raise UsageError("wrong number of jobs", got=jobs, expected="1 or more")
    if jobs == 1:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="ntrm")
    try:
        yield from pool.map(work, items)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
