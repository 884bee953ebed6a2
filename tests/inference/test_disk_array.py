import numpy as np
import pytest

from ntrm.core.errors import DataError, UsageError
from ntrm.inference.disk_array import DiskArray


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
