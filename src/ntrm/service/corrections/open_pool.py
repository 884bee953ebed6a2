"""What was opened and is kept between requests."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

V = TypeVar("V")


@dataclass
class _Entry(Generic[V]):
    value: V
    users: int = 1
    used: float = 0.0


class OpenPool(Generic[V]):
    """Keeps what was opened, as many as stated; of those not in use, the one unused longest is closed first."""

    def __init__(self, most: int, close: Callable[[V], None] = lambda _: None) -> None:
        self._most, self._close = most, close
        self._open: OrderedDict[Hashable, _Entry[V]] = OrderedDict()
        self._opening: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, key: Hashable, make: Callable[[], V]) -> Iterator[V]:
        """The object of ``key``, made where none is open; it stays open until the block ends."""
        entry = self._enter(key, make)
        try:
            yield entry.value
        finally:
            with self._lock:
                entry.users -= 1
                entry.used = time.monotonic()
            self.close_unused(self._most)

    def _enter(self, key: Hashable, make: Callable[[], V]) -> _Entry[V]:
        while True:
            with self._lock:
                opening = self._opening.setdefault(key, threading.Lock())
            # One at a time opens it: others wait, and find it open.
            with opening:
                with self._lock:
                    entry = self._open.get(key)
                    if entry is not None:
                        self._open.move_to_end(key)
                        entry.users += 1
                        return entry
                    if self._opening.get(key) is not opening:
                        # It was opened and closed again meanwhile: somebody may be opening it with another lock.
                        continue
                try:
                    entry = _Entry(make())
                finally:
                    with self._lock:
                        del self._opening[key]
                        if entry is not None:
                            self._open[key] = entry
                return entry

    def close_unused(
        self, most: int = 0, *, idle_seconds: float = 0.0, which: Callable[[Any], bool] = lambda _: True
    ) -> None:
        """Close what nobody uses and has used for a while, by key, until at most so many are open."""
        before = time.monotonic() - idle_seconds
        with self._lock:
            idle = [key for key, entry in self._open.items() if not entry.users and entry.used <= before]
            unused = [key for key in idle if which(key)]
            closing = [self._open.pop(key) for key in unused[: max(0, len(self._open) - most)]]
        for entry in closing:
            self._close(entry.value)
