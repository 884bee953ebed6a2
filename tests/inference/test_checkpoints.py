import errno

import numpy as np
import pytest

from ntrm.core.errors import DataError
from ntrm.inference import checkpoints
from ntrm.inference.checkpoints import Checkpoint, Checkpoints


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
    path = tmp_path / checkpoints.FILES[1]
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
    path = tmp_path / checkpoints.FILES[0]
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
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: clock[0])
    store = Checkpoints(tmp_path, "plan")
    for seconds, expected in ((0.0, False), (1.9, False), (2.1, True), (4.0, False), (4.2, True)):
        clock[0] = seconds
        assert store.due() is expected

    def slow(*_):
        clock[0] += 0.5

    real = checkpoints._write_checkpoint
    monkeypatch.setattr(checkpoints, "_write_checkpoint", lambda *arguments: (slow(), real(*arguments))[1])
    store.save(draw(random, 10))
    for seconds, expected in ((9.0, False), (14.1, False), (14.3, True), (14.4, False), (24.4, True)):
        clock[0] = seconds
        assert store.due() is expected


def test_a_full_disk_is_an_error_of_ours_and_the_last_one_stays(tmp_path, random, monkeypatch):
    store, first = Checkpoints(tmp_path, "plan"), draw(random, 10)
    store.save(first)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints, "_write_checkpoint", full)
    for top in (20, 30):
        with pytest.raises(DataError, match="cannot write"):
            store.save(draw(random, top))
    assert_same(Checkpoints(tmp_path, "plan").load(100), first)
    assert [path.name for path in tmp_path.iterdir()] == [checkpoints.FILES[0]]
