import asyncio
import threading

import pytest

from ntrm.service.core.problems import ProblemError
from ntrm.service.core.settings import ServiceLimits
from ntrm.service.tiles.slide_tiles import TileStore


def make_store(seconds):
    return TileStore(ServiceLimits(waiting_tiles=3, tile_seconds=seconds))


def test_many_requests_for_one_tile_are_one_computation():
    store, gate, calls = make_store(600), threading.Event(), []

    def make():
        calls.append(1)
        assert gate.wait(600)
        return b"tile"

    async def ask():
        waiting = [asyncio.create_task(store.get("k", make)) for _ in range(20)]
        await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(*waiting)

    assert asyncio.run(ask()) == [b"tile"] * 20
    assert asyncio.run(store.get("k", make)) == b"tile"
    assert calls == [1]
    store.close()


def test_a_slow_tile_is_a_503_and_is_there_the_next_time():
    store, gate, calls = make_store(1), threading.Event(), []

    def slow():
        calls.append(1)
        assert gate.wait(600)
        return b"late"

    async def ask():
        with pytest.raises(ProblemError) as caught:
            await store.get("k", slow)
        assert (caught.value.status, caught.value.headers["Retry-After"]) == (503, "2")
        gate.set()
        for _ in range(600):
            try:
                return await store.get("k", slow)
            except ProblemError:
                continue
        return None

    assert asyncio.run(ask()) == b"late"
    assert calls == [1]
    store.close()
