import errno
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest

from ntrm.core.errors import DataError
from ntrm.inference import mask_store
from ntrm.inference.checkpoints import Checkpoint
from ntrm.inference.mask_store import BandStore, drop

HEIGHT, WIDTH, PLAN = 50, 30, {"model": "a", "batch": 2}


@pytest.fixture
def rows(random):
    return random.integers(0, 256, (2, HEIGHT, WIDTH), dtype=np.uint8)


def fill(store, rows, tops):
    for top, bottom in pairwise(tops):
        store.append(top, {"labels": rows[0, top:bottom], "confidence": rows[1, top:bottom]})


def finished(folder, rows):
    with BandStore.opened(folder, HEIGHT, WIDTH, PLAN) as store:
        fill(store, rows, [store.done, HEIGHT] if not store.complete else [HEIGHT])
        return maps(store)


def maps(store):
    """As they went in: labels lie one higher on disk than they come out."""
    return np.array([np.asarray(store.map("labels")) + np.uint8(1), np.asarray(store.map("confidence"))])


def test_rows_come_back_as_they_went(tmp_path, rows):
    with BandStore.opened(tmp_path, HEIGHT, WIDTH, PLAN) as store:
        with pytest.raises(DataError, match="not finished"):
            store.map("labels")
        fill(store, rows, [0, 7, 8, 50])
        assert store.complete
    np.testing.assert_array_equal(finished(tmp_path, rows), rows)
    drop(tmp_path)
    assert not tmp_path.exists()


def test_rows_that_are_there_are_not_written_again(tmp_path, rows, random):
    with BandStore.opened(tmp_path, HEIGHT, WIDTH, PLAN) as store:
        fill(store, rows, [0, 20])
        other = random.integers(0, 256, (2, HEIGHT, WIDTH), dtype=np.uint8)
        other[:, 20:] = rows[:, 20:]
        fill(store, other, [0, 10, 35, 50])  # as a resumed run hands them out
        np.testing.assert_array_equal(maps(store), rows)
        with pytest.raises(DataError, match="do not follow"):
            store.append(51, {"labels": rows[0, :1], "confidence": rows[1, :1]})
    for wrong in ({"labels": rows[0]}, {"labels": rows[0], "confidence": rows[1, :, 1:]}, {}):
        with (
            BandStore.opened(tmp_path / "new", HEIGHT, WIDTH, PLAN) as store,
            pytest.raises(DataError, match="do not follow"),
        ):
            store.append(0, wrong)


@pytest.mark.parametrize("file", ["journal.jsonl", "labels.u8", "confidence.u8"])
def test_whatever_a_dead_process_left_the_next_one_goes_on(tmp_path, rows, random, file):
    with BandStore.opened(tmp_path, HEIGHT, WIDTH, PLAN) as store:
        fill(store, rows, [0, 12, 24, 36])
    path = tmp_path / file
    content = bytearray(path.read_bytes())
    at = int(random.integers(0, len(content)))
    damage = random.choice(["cut", "flip", "tail"])
    if damage == "cut":
        content = content[:at]
    elif damage == "tail":
        content += b"\x00{"
    elif file == "journal.jsonl":
        content[at:] = b"}" * (len(content) - at)
    else:
        content[at] ^= 1
    path.write_bytes(content)
    with BandStore.opened(tmp_path, HEIGHT, WIDTH, PLAN) as store:
        assert store.done in (0, 12, 24, 36)
        assert damage != "tail" or store.done == 36
        assert damage == "tail" or file == "journal.jsonl" or store.done == at // WIDTH // 12 * 12
        fill(store, rows, [store.done, 45])
    np.testing.assert_array_equal(finished(tmp_path, rows), rows)


def test_rows_of_nothing_take_no_room(tmp_path):
    width = 1 << 16
    with BandStore.opened(tmp_path, 300, width, PLAN) as store:
        nothing = np.zeros((100, width), np.uint8)
        for top in (0, 100, 200):
            some = nothing.copy()
            some[0] = top == 100
            store.append(top, {"labels": some, "confidence": nothing})
    assert (tmp_path / "labels.u8").stat().st_size == 300 * width
    assert sum(path.stat().st_blocks * 512 for path in tmp_path.iterdir()) < 120 * width
    with BandStore.opened(tmp_path, 300, width, PLAN) as store:
        assert store.complete
        labels = store.map("labels")
        assert [int(labels[row, 5]) for row in (0, 99, 100, 101, 299)] == [255, 255, 0, 255, 255]


def test_a_journal_that_promises_too_much_is_not_believed(tmp_path, rows):
    with BandStore.opened(tmp_path, HEIGHT, WIDTH, PLAN) as store:
        fill(store, rows, [0, 12])
    with (tmp_path / "journal.jsonl").open("a") as stream:
        stream.write('{"top": 12, "rows": 1000000000000000, "labels": 1, "confidence": 1}\n')
    with BandStore.opened(tmp_path, HEIGHT, WIDTH, PLAN) as store:
        assert store.done == 12
    with (tmp_path / "journal.jsonl").open("a") as stream:
        stream.write("[" * 100_000 + "\n")
    with BandStore.opened(tmp_path, HEIGHT, WIDTH, PLAN) as store:
        assert store.done == 12


def test_another_plan_begins_anew(tmp_path, rows, monkeypatch):
    def begin():
        with BandStore.opened(tmp_path, HEIGHT, WIDTH, PLAN) as store:
            fill(store, rows, [0, 12])
            store.checkpoints.save(Checkpoint(12, 3, {}))
        (tmp_path / "tidy.u8").touch()

    begin()
    with BandStore.opened(tmp_path, HEIGHT, WIDTH, dict(reversed(PLAN.items()))) as store:
        assert store.done == 12
    for height, width, plan in ((HEIGHT, WIDTH, {**PLAN, "batch": 4}), (HEIGHT + 1, WIDTH, PLAN)):
        with BandStore.opened(tmp_path, height, width, plan) as store:
            assert store.done == 0
        assert {path.name for path in tmp_path.iterdir()} == {"journal.jsonl", "labels.u8", "confidence.u8"}
        begin()
    # Killed before anything but the checkpoints was deleted: no harm to the first plan either.
    with monkeypatch.context() as patched:
        patched.setattr(mask_store, "drop", fail)
        with pytest.raises(KeyboardInterrupt), BandStore.opened(tmp_path, HEIGHT, WIDTH, {}):
            pass
    with BandStore.opened(tmp_path, HEIGHT, WIDTH, PLAN) as store:
        assert (store.done, store.checkpoints.load(12)) == (12, None)


def fail(_):
    raise KeyboardInterrupt


def test_a_full_disk_is_an_error_of_ours_and_the_rows_before_stay(tmp_path, rows, monkeypatch):
    real = os.fsync
    with BandStore.opened(tmp_path, HEIGHT, WIDTH, PLAN) as store:
        fill(store, rows, [0, 12])

        def full(_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(mask_store.os, "fsync", full)
        with pytest.raises(DataError, match="cannot keep"):
            fill(store, rows, [12, 24])
        monkeypatch.setattr(mask_store.os, "fsync", real)
    with BandStore.opened(tmp_path, HEIGHT, WIDTH, PLAN) as store:
        assert store.done == 12
    np.testing.assert_array_equal(finished(tmp_path, rows), rows)


def test_rows_of_a_growing_map_are_waited_for(tmp_path, rows):
    with BandStore.opened(tmp_path, HEIGHT, WIDTH, PLAN) as store, ThreadPoolExecutor(1) as pool:
        fill(store, rows, [0, 20])
        growing = store.map("confidence", growing=True)
        np.testing.assert_array_equal(growing[5:20, 3:9], rows[1, 5:20, 3:9])
        late = pool.submit(lambda: growing[10:40])
        fill(store, rows, [20, 35])
        assert not late.done()
        fill(store, rows, [35, 45])
        np.testing.assert_array_equal(late.result(60), rows[1, 10:40])
        never = pool.submit(lambda: growing[49])
        store.end()
        with pytest.raises(DataError, match="was not finished"):
            never.result(60)
        np.testing.assert_array_equal(growing[44], rows[1, 44])
