import asyncio
import threading

import numpy as np
import pytest
from tests.slides import making

from ntrm.service.core.problems import ProblemError
from ntrm.service.core.settings import ServiceLimits
from ntrm.service.tiles import slide_tiles
from ntrm.service.tiles.readers import Readers
from ntrm.service.tiles.slide_tiles import TILE, DeepZoom, SlideTiles, TileStore
from ntrm.slides.isolated import ReadingLimits
from ntrm.slides.readers.reader import ArrayCache

FOREVER = float("inf")


@pytest.fixture(scope="module")
def readers():
    readers = Readers(4, ReadingLimits(seconds=600))
    yield readers
    readers.close_unused()


def means(image, scale):
    """Exact means over squares of pixels, rounded half up; those at the border over what is there."""
    height, width = image.shape[:2]
    rows, columns = np.arange(0, height, scale), np.arange(0, width, scale)
    sums = np.add.reduceat(np.add.reduceat(image.astype(np.int64), rows, axis=0), columns, axis=1)
    counts = np.outer(np.diff([*rows, height]), np.diff([*columns, width]))
    return np.floor(sums / counts[..., None] + 0.5).astype(np.uint8)


def whole(tiles, level):
    width, height = tiles.zoom.size(level)
    out = np.zeros((height, width, 3), dtype=np.uint8)
    columns, rows = tiles.zoom.grid(level)
    for column in range(columns):
        for row in range(rows):
            box = tiles.zoom.tile(level, column, row)
            part = tiles.pixels(level, column, row, FOREVER)
            out[box.top : box.top + box.height, box.left : box.left + box.width] = part
    return out


def test_the_finest_tiles_are_the_files_own_pixels(tmp_path, random, readers):
    image = making.tissue(random, 304, 520)
    path = making.write_tiled(tmp_path / "a.tif", image, compression="deflate")
    with readers.using(path) as slide:
        tiles = SlideTiles(slide, ArrayCache(2**24), ("a",))
        np.testing.assert_array_equal(whole(tiles, tiles.zoom.top), image)
        # The file has two coarser levels of its own.
        half = making.halved(image)
        np.testing.assert_array_equal(whole(tiles, tiles.zoom.top - 1), half)
        np.testing.assert_array_equal(whole(tiles, tiles.zoom.top - 2), making.halved(half))


def test_coarse_tiles_without_a_pyramid_are_exact_means(tmp_path, random, readers):
    image = making.tissue(random, 301, 517)
    path = making.write_png(tmp_path / "a.png", image)
    with readers.using(path) as slide:
        tiles = SlideTiles(slide, ArrayCache(2**24), ("a",))
        for level in (tiles.zoom.top, tiles.zoom.top - 1, tiles.zoom.top - 2, tiles.zoom.top - 4, 0):
            expected = means(image, tiles.zoom.scale(level))
            np.testing.assert_array_equal(whole(tiles, level), expected)


def test_tiles_put_together_from_finer_ones_are_the_same_up_to_rounding(tmp_path, random, readers, monkeypatch):
    image = making.tissue(random, 601, 917)
    path = making.write_strips(tmp_path / "a.tif", image)
    monkeypatch.setattr(slide_tiles, "MOST_PIXELS", 300 * 300)
    with readers.using(path) as slide:
        tiles = SlideTiles(slide, ArrayCache(2**24), ("a",))
        for level in (tiles.zoom.top - 2, tiles.zoom.top - 4):
            difference = np.abs(whole(tiles, level).astype(int) - means(image, tiles.zoom.scale(level)))
            # Each step rounds by half; a pixel at the border stands for fewer of the file's but counts as a whole one.
            assert difference[:-1, :-1].max() <= 3
            assert difference.max() <= 20
        overview = tiles.overview(300, 600)
        assert 150 < max(overview.shape) <= 300


def test_only_the_scanned_part_is_shown(tmp_path, random, readers):
    image = making.tissue(random, 256, 320)
    path = making.write_scn(tmp_path / "a.scn", image, offset=(300, 200))
    with readers.using(path) as slide:
        assert slide.info.bounds is not None
        tiles = SlideTiles(slide, ArrayCache(2**24), ("a",))
        assert (tiles.zoom.width, tiles.zoom.height) == (320, 256)
        np.testing.assert_array_equal(whole(tiles, tiles.zoom.top), image)


def test_levels_halve_and_tiles_cover_each_level_once(random):
    for _ in range(20):
        width, height = (int(n) for n in random.integers(1, 3000, 2))
        zoom = DeepZoom(width, height)
        sizes = [(width, height)]
        while max(sizes[-1]) > 1:
            sizes.append(tuple(-(-side // 2) for side in sizes[-1]))
        assert [zoom.size(level) for level in range(zoom.top, -1, -1)] == sizes
        level = int(random.integers(0, zoom.top + 1))
        seen = np.zeros(zoom.size(level)[::-1], dtype=int)
        columns, rows = zoom.grid(level)
        for column in range(columns):
            for row in range(rows):
                box = zoom.tile(level, column, row)
                assert max(box.width, box.height) <= TILE
                seen[box.top : box.top + box.height, box.left : box.left + box.width] += 1
        assert (seen == 1).all()


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
