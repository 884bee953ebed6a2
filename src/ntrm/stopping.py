"""SIGTERM ends long work as Ctrl-C does: in order, so that the same command goes on later."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt inside the block; in other threads than the main one nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        # None: the handler before was not Python's, and cannot be set from here.
        if before is not None:
            signal.signal(signal.SIGTERM, before)
