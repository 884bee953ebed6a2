import numpy as np
import pytest

from ntrm.core.errors import DataError, UsageError
from ntrm.inference.mask_store import DiskArray


@pytest.fixture
def truth(random):
    return random.integers(0, 256, [int(n) for n in random.integers(1, 40, 2)], dtype=np.uint8)


@pytest.fixture
def stored(tmp_path, truth):
    (tmp_path / "map.u8").write_bytes((truth + np.uint8(1)).tobytes())
    with DiskArray(tmp_path / "map.u8", *truth.shape, less=1) as found:
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


def test_it_is_indexed_like_an_array(stored, truth, random):
    for _ in range(200):
        rows, columns = (one_index(random, size) for size in truth.shape)
        for index in (rows, (rows, columns), np.int64(rows) if isinstance(rows, int) else rows):
            np.testing.assert_array_equal(stored[index], truth[index])
            assert stored[index].dtype == np.uint8
    np.testing.assert_array_equal(np.asarray(stored), truth)
    np.testing.assert_array_equal(np.array([stored, stored]), [truth, truth])
    assert (stored.shape, stored.ndim, stored.size, len(stored)) == (truth.shape, 2, truth.size, len(truth))
    assert stored.dtype == np.uint8


def test_whatever_would_go_wrong_silently_is_refused(stored, truth):
    with pytest.raises(IndexError):
        stored[truth.shape[0]]
    for index in (truth > 3, [0], (0, 0, 0), None):
        with pytest.raises(UsageError, match="rows and rectangles"):
            stored[index]
    with pytest.raises(UsageError, match="compared"):
        assert stored == 3
    with pytest.raises(TypeError):
        np.add(truth, stored)


def test_a_file_that_is_too_short_is_refused(tmp_path):
    (tmp_path / "map.u8").write_bytes(b"12345")
    with pytest.raises(DataError, match="too short"):
        DiskArray(tmp_path / "map.u8", 2, 3)
    (tmp_path / "map.u8").write_bytes(b"123456")
    with DiskArray(tmp_path / "map.u8", 2, 3) as stored:
        (tmp_path / "map.u8").write_bytes(b"1234")
        with pytest.raises(DataError, match="shorter"):
            stored[:]
