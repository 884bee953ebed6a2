"""What is kept between requests: finished tiles, and open slides and masks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ntrm.service.core.problems import busy
from ntrm.service.core.settings import ServiceLimits

THREADS = 8


class TileStore:
    """The tiles used last, as many as fit; several requests for one are answered by one computation.

    Used from the event loop alone.
    """

    def __init__(self, limits: ServiceLimits) -> None:
        self._limits = limits
        self._held: OrderedDict[Hashable, bytes] = OrderedDict()
        self._bytes = 0
        self._making: dict[Hashable, asyncio.Future[bytes]] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tiles")

    async def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """The tile of ``key``, made in a thread if it is not held; 503 where that takes too long."""
        held = self._held.get(key)
        if held is not None:
            self._held.move_to_end(key)
            return held
        making = self._making.get(key)
        if making is None:
            if len(self._making) >= self._limits.waiting_tiles:
                raise busy("too many tiles are being made")
            making = asyncio.get_running_loop().run_in_executor(self._threads, make)
            self._making[key] = making
            making.add_done_callback(lambda done: self._done(key, done))
        try:
            # Shielded: others may wait for the same tile, and for the next request it is done.
            async with asyncio.timeout(self._limits.tile_seconds):
                return await asyncio.shield(making)
        except TimeoutError as error:
            raise busy("the tile takes long to make") from error

    def _done(self, key: Hashable, made: asyncio.Future[bytes]) -> None:
        self._making.pop(key, None)
        if made.cancelled() or made.exception() is not None:
            return
        self._held[key] = made.result()
        self._bytes += len(made.result())
        while self._bytes > self._limits.tile_cache_bytes and len(self._held) > 1:
            self._bytes -= len(self._held.popitem(last=False)[1])

    def close(self) -> None:
        """End the threads when their tiles are made."""
        self._threads.shutdown(wait=False, cancel_futures=True)


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
