"""One thread beside the others, for the work of one slide."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def one_beside() -> Iterator[Executor]:
    """A thread that does one task after the other; what has not begun when the block ends is not done any more."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="ntrm-beside")
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
