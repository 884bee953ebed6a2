"""The tiles used last."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

from ntrm.service.core.problems import busy
from ntrm.service.core.settings import ServiceLimits

THREADS = 8


class TileStore:
    """As many finished tiles as fit; several requests for one are answered by one computation.

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
