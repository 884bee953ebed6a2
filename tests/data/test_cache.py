import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from ntrm.core.io import PARTIAL
from ntrm.core.labels import SKIN
from ntrm.data import cache as cache_module
from ntrm.data.cache import SectionCache
from ntrm.data.dataset import Case

SPAWN = multiprocessing.get_context("spawn")
LIMIT_S = 300


def write_section(folder, random, name="BCC_1", size=(60, 80)):
    """One section in the queensland layout; returns its case, pixels and labels."""
    image = random.integers(0, 256, (*size, 3), dtype=np.uint8)
    mask = random.integers(0, len(SKIN), size, dtype=np.uint8)
    case = Case(name, folder / f"10x/Images/{name}.tif", folder / f"10x/Masks/{name}.png", group=name)
    for path in (case.image, case.mask):
        path.parent.mkdir(parents=True, exist_ok=True)
    tifffile.imwrite(case.image, image, photometric="rgb")
    Image.fromarray(SKIN.colourise(mask)).save(case.mask)
    return case, image, mask


def assert_holds(section, image, mask):
    np.testing.assert_array_equal(section.image, image)
    np.testing.assert_array_equal(section.mask, mask)


@pytest.fixture
def section(tmp_path, random):
    return write_section(tmp_path / "data", random)


@pytest.fixture
def cache(tmp_path):
    return SectionCache(tmp_path / "cache")


def test_a_changed_source_gives_the_new_content_even_with_size_and_time_kept(cache, section, tmp_path, random):
    case, _, mask = section
    cache.open(case, SKIN)
    before = case.image.stat()
    _, new_image, _ = write_section(tmp_path / "other", random)
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
    sections = [write_section(tmp_path / "data", random, f"BCC_{n}") for n in range(1, 6)]
    expected = {(case.name, image.tobytes(), mask.tobytes()) for case, image, mask in sections}
    cases = [case for case, *_ in sections]
    barrier, answers = SPAWN.Barrier(3), SPAWN.Queue()
    builders = [
        SPAWN.Process(target=open_together, args=(tmp_path / "cache", cases, barrier, answers)) for _ in range(3)
    ]
    for builder in builders:
        builder.start()
    seen = [answers.get(timeout=LIMIT_S) for _ in range(3 * len(cases))]
    for builder in builders:
        builder.join(timeout=LIMIT_S)
    assert [builder.exitcode for builder in builders] == [0, 0, 0]
    assert set(seen) == expected
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
