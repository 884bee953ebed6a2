import multiprocessing
import os
import resource
import signal
import stat
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from ntrm.core.errors import DataError
from ntrm.core.io import PARTIAL
from ntrm.core.labels import SKIN, LabelSchema
from ntrm.data import cache as cache_module
from ntrm.data.cache import SectionCache, default_folder
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


def test_a_section_comes_back_as_read_only_memory_maps(cache, section):
    case, image, mask = section
    opened = cache.open(case, SKIN)
    assert_holds(opened, image, mask)
    assert opened.shape == mask.shape
    for array in (opened.image, opened.mask):
        assert isinstance(array, np.memmap)
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


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


def test_other_colours_are_another_entry(cache, section):
    case, _, mask = section
    order = np.array([1, 0, *range(2, len(SKIN))])
    swapped = LabelSchema(tuple(replace(t, rgb=SKIN.tissues[order[t.index]].rgb) for t in SKIN.tissues), "BKG")
    assert swapped.fingerprint == SKIN.fingerprint
    np.testing.assert_array_equal(cache.open(case, SKIN).mask, mask)
    np.testing.assert_array_equal(cache.open(case, swapped).mask, order[mask])


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
    assert partial.exists(), "a young temporary file may belong to a builder at work"


def test_old_temporary_files_are_swept_by_the_next_build(cache, section):
    cache.folder.mkdir(parents=True)
    young, old = cache.folder / f"{PARTIAL}young.npy", cache.folder / f"{PARTIAL}old.npy"
    young.touch()
    old.touch()
    os.utime(old, (0, 0))
    cache.open(section[0], SKIN)
    assert (young.exists(), old.exists()) == (True, False)


def test_a_full_disk_is_told_and_leaves_no_file(cache, section):
    case, image, mask = section
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        # A limit on the size of files fails writes in the middle, as a full disk does.
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limits[1]))
        with pytest.raises(DataError, match="cannot write"):
            cache.open(case, SKIN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(cache.folder.iterdir()) == []
    assert_holds(cache.open(case, SKIN), image, mask)


def test_the_folder_is_private_and_chosen_by_the_environment(section, tmp_path, monkeypatch):
    monkeypatch.delenv("NTRM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_folder() == tmp_path / "xdg" / "ntrm"
    monkeypatch.setenv("NTRM_CACHE", str(tmp_path / "chosen"))
    cache = SectionCache()
    cache.open(section[0], SKIN)
    assert cache.folder.parent == tmp_path / "chosen"
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o700


def test_cases_that_cannot_be_opened_say_why(cache, section, tmp_path):
    case, _, mask = section
    with pytest.raises(DataError, match="has no image"):
        cache.open(replace(case, image=None), SKIN)
    with pytest.raises(DataError, match="has no mask"):
        cache.open(replace(case, mask=None), SKIN)
    with pytest.raises(DataError, match="cannot read"):
        cache.open(replace(case, image=tmp_path / "nowhere.tif"), SKIN)
    Image.fromarray(SKIN.colourise(mask[1:])).save(case.mask)
    with pytest.raises(DataError, match="differ in size"):
        cache.open(case, SKIN)
