"""Bytes from anywhere, all of them or an error."""

import gc
import os

import pytest

from ntrm.core.errors import DataError
from ntrm.wsi.readers.tiff import RandomAccess


def test_bytes_from_anywhere(tmp_path, random):
    data = random.bytes(5000)
    (tmp_path / "a").write_bytes(data)
    file = RandomAccess(tmp_path / "a")
    for _ in range(20):
        start, count = (int(number) for number in random.integers(0, 2500, 2))
        assert file.read(start, count) == data[start : start + count]
    assert file.read(5000, 0) == b""
    with pytest.raises(DataError, match="cannot read the slide"):
        file.read(4990, 11)


def test_a_closed_file_never_reads_another(tmp_path):
    (tmp_path / "a").write_bytes(b"mine")
    (tmp_path / "b").write_bytes(b"secret")
    file = RandomAccess(tmp_path / "a")
    file.close()
    file.close()
    with (tmp_path / "b").open("rb"), pytest.raises(ValueError, match="closed"):
        file.read(0, 4)


def test_a_forgotten_file_is_given_back(tmp_path):
    (tmp_path / "a").write_bytes(b"mine")
    file = RandomAccess(tmp_path / "a")
    number = file._descriptor
    assert os.fstat(number).st_size == 4
    del file
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
