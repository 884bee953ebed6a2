"""What was used last stays, within the bytes allowed."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from ntrm.wsi.readers.array_cache import ArrayCache


def made(log, key, size=100):
    log.append(key)
    return np.full(size, key, dtype=np.uint8)


def test_what_was_used_longest_ago_goes_first():
    cache, log = ArrayCache(250), []
    for key in (1, 2, 1, 3, 1, 2):
        assert (cache.get(key, lambda key=key: made(log, key)) == key).all()
        assert cache.nbytes <= 250
    assert log == [1, 2, 3, 2]
    cache.clear()
    assert cache.nbytes == 0


def test_an_array_larger_than_all_is_kept_alone():
    cache, log = ArrayCache(50), []
    cache.get(1, lambda: made(log, 1))
    cache.get(1, lambda: made(log, 1))
    cache.get(2, lambda: made(log, 2))
    assert log == [1, 2]
    assert cache.nbytes == 100


def test_nobody_writes_into_what_others_read():
    found = ArrayCache(1000).get(1, lambda: made([], 1))
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 3


def test_threads_get_their_own_key_and_the_count_of_bytes_holds(random):
    cache = ArrayCache(550)
    keys = [int(key) for key in random.integers(0, 20, 3000)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda key: int(cache.get(key, lambda: made([], key))[5]), keys))
    assert found == keys
    assert cache.nbytes == 500
