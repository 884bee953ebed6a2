import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import tifffile
from tests.data.random_sections import write_random

from ntrm.core.io import PARTIAL
from ntrm.core.labels import SKIN
from ntrm.data import cache as cache_module
from ntrm.data.cache import SectionCache

SPAWN = multiprocessing.get_context("spawn")
LIMIT_S = 300


def assert_holds(section, image, mask):
    np.testing.assert_array_equal(section.image, image)
    np.testing.assert_array_equal(section.mask, mask)


@pytest.fixture
def section(tmp_path, random):
    return next(write_random(tmp_path / "data", random, (60, 80)))


@pytest.fixture
def cache(tmp_path):
    return SectionCache(tmp_path / "cache")


def test_a_changed_source_gives_the_new_content_even_with_size_and_time_kept(cache, section, tmp_path, random):
    case, _, mask = section
    cache.open(case, SKIN)
    before = case.image.stat()
    new_image = random.integers(0, 256, (60, 80, 3), dtype=np.uint8)
    time.sleep(0.02)  # longer than a tick of the file system's clock
    tifffile.imwrite(case.image, new_image, photometric="rgb")
    os.utime(case.image, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (case.image.stat().st_size, case.image.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert_holds(cache.open(case, SKIN), new_image, mask)


@pytest.mark.parametrize("damage", ["empty", "header", "half", "one byte", "longer", "not an array"])
def test_a_damaged_cache_file_is_rebuilt(cache, section, damage):
    case, image, mask = section
    cache.open(case, SKIN)
    (path,) = cache.folder.glob("mask-*.npy")
    whole = path.read_bytes()
    path.unlink()  # the maps of the whole file stay valid
    damaged = {
        "empty": b"",
        "header": whole[:40],
        "half": whole[: len(whole) // 2],
        "one byte": whole[:-1],
        "longer": whole + b"x",
        "not an array": b"x" * len(whole),
    }
    path.write_bytes(damaged[damage])
    assert_holds(cache.open(case, SKIN), image, mask)
    assert path.read_bytes() == whole


def open_together(folder, cases, barrier, answers):
    cache = SectionCache(folder)
    barrier.wait()
    for case in cases:
        section = cache.open(case, SKIN)
        answers.put((case.name, section.image.tobytes(), section.mask.tobytes()))


def test_processes_that_build_at_once_all_see_whole_sections(tmp_path, random):
    sections = [*write_random(tmp_path / "data", random, *[(60, 80)] * 4)]
    barrier, answers, cases = SPAWN.Barrier(2), SPAWN.Queue(), [case for case, *_ in sections]
    builders = [SPAWN.Process(target=open_together, args=(tmp_path / "cache", cases, barrier, answers)) for _ in "ab"]
    for builder in builders:
        builder.start()
    seen = [answers.get(timeout=LIMIT_S) for _ in range(2 * len(cases))]
    for builder in builders:
        builder.join(timeout=LIMIT_S)
    assert set(seen) == {(case.name, image.tobytes(), mask.tobytes()) for case, image, mask in sections}
    assert not list((tmp_path / "cache").rglob(f"{PARTIAL}*"))


def save_half_and_hang(path, array, **_options):
    half = array.tobytes()[: array.nbytes // 2]
    Path(path).write_bytes(half)
    Path(path).parent.joinpath("half-way").touch()
    time.sleep(600)


def build_slowly(folder, case):
    cache_module.np.save = save_half_and_hang
    SectionCache(folder).open(case, SKIN)


def test_a_build_killed_half_way_leaves_nothing_that_is_read(cache, section):
    case, image, mask = section
    builder = SPAWN.Process(target=build_slowly, args=(cache.folder.parent, case))
    builder.start()
    deadline = time.monotonic() + LIMIT_S
    while not (cache.folder / "half-way").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(builder.pid, signal.SIGKILL)
    builder.join(timeout=LIMIT_S)
    assert builder.exitcode == -signal.SIGKILL
    (partial,) = cache.folder.glob(f"{PARTIAL}*")
    assert 0 < partial.stat().st_size < image.nbytes
    assert not list(cache.folder.glob("image-*.npy"))
    assert_holds(cache.open(case, SKIN), image, mask)
    assert not partial.exists()
