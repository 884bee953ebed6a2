import errno
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest

from ntrm.core.errors import DataError, RefusedError, UsageError
from ntrm.inference import mask_store
from ntrm.inference.mask_store import BandStore, Checkpoint, Checkpoints, DiskArray, drop

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


def test_another_plan_is_refused_and_nothing_is_lost(tmp_path, rows):
    with BandStore.opened(tmp_path, HEIGHT, WIDTH, PLAN) as store:
        fill(store, rows, [0, 12])
    for height, width, plan in ((HEIGHT, WIDTH, {**PLAN, "batch": 4}), (HEIGHT + 1, WIDTH, PLAN)):
        with pytest.raises(RefusedError, match="another model"), BandStore.opened(tmp_path, height, width, plan):
            pass
    with BandStore.opened(tmp_path, HEIGHT, WIDTH, dict(reversed(PLAN.items()))) as store:
        assert store.done == 12


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


@pytest.fixture
def values(random):
    return random.integers(0, 256, [int(n) for n in random.integers(1, 40, 2)], dtype=np.uint8)


@pytest.fixture
def stored(tmp_path, values):
    (tmp_path / "map.u8").write_bytes((values + np.uint8(1)).tobytes())
    with DiskArray(tmp_path / "map.u8", *values.shape, less=1) as found:
        yield found


def one_index(random, size):
    if random.random() < 0.3:
        return int(random.integers(-size, size))
    low, high = (int(n) for n in random.integers(-size - 3, size + 4, 2))
    return slice(
        low if random.random() < 0.8 else None,
        high if random.random() < 0.8 else None,
        [None, 1, 2, 3][int(random.integers(4))],
    )


def test_it_is_indexed_like_an_array(stored, values, random):
    for _ in range(200):
        rows, columns = (one_index(random, size) for size in values.shape)
        for index in (rows, (rows, columns), np.int64(rows) if isinstance(rows, int) else rows):
            np.testing.assert_array_equal(stored[index], values[index])
            assert stored[index].dtype == np.uint8
    np.testing.assert_array_equal(np.asarray(stored), values)
    np.testing.assert_array_equal(np.array([stored, stored]), [values, values])
    assert (stored.shape, stored.ndim, stored.size, len(stored)) == (values.shape, 2, values.size, len(values))
    assert stored.dtype == np.uint8


def test_whatever_would_go_wrong_silently_is_refused(stored, values):
    with pytest.raises(IndexError):
        stored[values.shape[0]]
    for index in (values > 3, [0], (0, 0, 0), None):
        with pytest.raises(UsageError, match="rows and rectangles"):
            stored[index]
    with pytest.raises(UsageError, match="compared"):
        assert stored == 3
    with pytest.raises(TypeError):
        np.add(values, stored)


def test_a_file_that_is_too_short_is_refused(tmp_path):
    (tmp_path / "map.u8").write_bytes(b"12345")
    with pytest.raises(DataError, match="too short"):
        DiskArray(tmp_path / "map.u8", 2, 3)
    (tmp_path / "map.u8").write_bytes(b"123456")
    with DiskArray(tmp_path / "map.u8", 2, 3) as stored:
        (tmp_path / "map.u8").write_bytes(b"1234")
        with pytest.raises(DataError, match="shorter"):
            stored[:]


def draw(random, top):
    arrays = {
        "carry/3": random.random((3, 4, 5), dtype=np.float32),
        "relations": random.random(7),
        "pending/0.1": random.integers(0, 256, (2, 9), dtype=np.uint8),
    }
    return Checkpoint(top, top // 2, arrays)


def assert_same(one, other):
    assert (one.top, one.first) == (other.top, other.first)
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name])
        assert array.dtype == other.arrays[name].dtype


def test_the_latest_that_is_not_ahead_comes_back(tmp_path, random):
    kept = [draw(random, top) for top in (10, 20, 30)]
    store = Checkpoints(tmp_path, "plan")
    assert store.load(100) is None
    for checkpoint in kept:
        store.save(checkpoint)
    for done, expected in ((100, kept[2]), (30, kept[2]), (29, kept[1]), (20, kept[1])):
        assert_same(Checkpoints(tmp_path, "plan").load(done), expected)
    assert Checkpoints(tmp_path, "plan").load(19) is None
    assert Checkpoints(tmp_path, "another").load(100) is None
    # After going back to an older one, the next takes the place of the other.
    store = Checkpoints(tmp_path, "plan")
    store.load(29)
    store.save(draw(random, 25))
    assert Checkpoints(tmp_path, "plan").load(100).top == 25
    assert Checkpoints(tmp_path, "plan").load(24).top == 20


def test_no_damage_gets_through(tmp_path, random):
    store = Checkpoints(tmp_path, "plan")
    first, second = draw(random, 10), draw(random, 20)
    store.save(first)
    store.save(second)
    path = tmp_path / mask_store.CHECKPOINT_FILES[1]
    whole = path.read_bytes()
    for _ in range(150):
        damaged = bytearray(whole)
        at = int(random.integers(0, len(whole)))
        kind = random.choice(["cut", "flip", "add"])
        if kind == "cut":
            damaged = damaged[:at]
        elif kind == "flip":
            damaged[at] ^= int(random.integers(1, 256))
        else:
            damaged.insert(at, int(random.integers(0, 256)))
        path.write_bytes(damaged)
        assert_same(Checkpoints(tmp_path, "plan").load(100), first)
    path.write_bytes(whole)
    assert_same(Checkpoints(tmp_path, "plan").load(100), second)


def test_a_head_that_asks_for_all_the_memory_is_not_believed(tmp_path, random):
    Checkpoints(tmp_path, "plan").save(draw(random, 10))
    path = tmp_path / mask_store.CHECKPOINT_FILES[0]
    for old, new in ((b"(3, 4, 5)", b"(3000000, 4000000, 5)"), (b"<f4", b"|O8"), (b"(7,)", b"(-7,)")):
        Checkpoints(tmp_path, "plan").save(draw(random, 10))
        content = path.read_bytes()
        assert old in content
        path.write_bytes(content.replace(old, new))
        assert Checkpoints(tmp_path, "plan").load(100) is None
    path.write_bytes(b"[" * 100_000 + b"\n")
    assert Checkpoints(tmp_path, "plan").load(100) is None


def test_they_are_due_by_what_they_cost(tmp_path, random, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(mask_store.time, "monotonic", lambda: clock[0])
    store = Checkpoints(tmp_path, "plan")
    assert store.due()

    def slow(*_):
        clock[0] += 0.5

    real = mask_store._write_checkpoint
    monkeypatch.setattr(mask_store, "_write_checkpoint", lambda *arguments: (slow(), real(*arguments))[1])
    store.save(draw(random, 10))
    for seconds, expected in ((5.0, False), (9.9, False), (10.1, True), (10.2, False), (20.2, True)):
        clock[0] = seconds
        assert store.due() is expected


def test_a_full_disk_is_an_error_of_ours_and_the_last_one_stays(tmp_path, random, monkeypatch):
    store, first = Checkpoints(tmp_path, "plan"), draw(random, 10)
    store.save(first)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(mask_store, "_write_checkpoint", full)
    for top in (20, 30):
        with pytest.raises(DataError, match="cannot write"):
            store.save(draw(random, top))
    assert_same(Checkpoints(tmp_path, "plan").load(100), first)
    assert [path.name for path in tmp_path.iterdir()] == [mask_store.CHECKPOINT_FILES[0]]


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
