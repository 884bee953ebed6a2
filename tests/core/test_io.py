"""Files written whole or not at all."""

import json
import os
import signal

import numpy as np
import pytest

from ntrm.core.errors import DataError, UsageError
from ntrm.core.io import (
    PARTIAL,
    check_writable,
    read_arrays,
    read_json,
    read_object,
    remove_partials,
    whole_file,
    write_arrays,
    write_json,
    write_text,
)


def test_a_block_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def write_half():
        with whole_file(path) as partial:
            partial.write_text("half")
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, signal, sys
from pathlib import Path
from ntrm.core.io import whole_file
with whole_file(Path(sys.argv[1])) as partial:
    partial.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_leaves_the_old_file_and_a_recognisable_rest(tmp_path, forks):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    assert forks.run(KILLED, path).status == -signal.SIGKILL
    assert path.read_text() == "old"
    assert len(list(tmp_path.glob(f"{PARTIAL}*"))) == 1
    assert remove_partials(tmp_path) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_what_another_process_is_writing_is_no_rest(tmp_path):
    with whole_file(tmp_path / "a.txt") as partial:
        partial.write_text("new")
        assert remove_partials(tmp_path) == 0
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new"]


def test_a_full_disk_is_a_clear_error(tmp_path, monkeypatch):
    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(DataError, match="No space left") as caught:
        write_text(tmp_path / "a.txt", "x")
    assert "free space" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_files_get_the_mode_of_the_users_umask_and_private_ones_are_for_nobody_else(tmp_path):
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a.txt", "x")
        with whole_file(tmp_path / "key.csv", private=True) as partial:
            assert partial.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "key.csv").stat().st_mode & 0o777 == 0o600


def test_json_keeps_its_order_and_what_numpy_counts_and_shows_what_is_no_number(tmp_path):
    document = {"b": np.int64(3), "a": "µm", "nested": [{"width": np.float32(0.125)}, [np.uint8(7)], ()]}
    write_json(tmp_path / "a.json", document)
    plain = {"b": 3, "a": "µm", "nested": [{"width": 0.125}, [7], []]}
    assert (tmp_path / "a.json").read_text() == json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
    write_json(tmp_path / "b.json", {"a": float("nan")})
    assert "NaN" in (tmp_path / "b.json").read_text()
    with pytest.raises(ValueError, match="serializ"):
        write_json(tmp_path / "a.json", {"a": object()})
    assert read_json(tmp_path / "a.json", hint="") == plain


def test_json_that_cannot_be_read_is_our_error(tmp_path):
    for content in ("", "{", "[" * 100_000, "\udcff"):
        (tmp_path / "a.json").write_text(content, errors="surrogateescape")
        with pytest.raises(DataError, match="cannot read"):
            read_json(tmp_path / "a.json", hint="")
        assert read_object(tmp_path / "a.json") == {}


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_work(tmp_path, monkeypatch):
    check_writable(tmp_path)
    check_writable(tmp_path / "new" / "below")
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="not a folder"):
        check_writable(tmp_path / "file" / "below")
    # Whoever runs the tests may be allowed everything.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(DataError, match="no permission"):
        check_writable(tmp_path / "new" / "below")


def test_arrays_are_written_the_same_every_time_and_read_however_they_were_compressed(tmp_path, random):
    arrays = {
        "labels": np.repeat(random.integers(0, 9, (40, 30), dtype=np.uint16), 7, axis=1),
        "one": np.array(2.5),
        "none": np.zeros((0, 4)),
        "texts": np.array(["a", "µm"]),
    }
    paths = [tmp_path / f"{name}.npz" for name in ("ours", "again", "numpy", "stored")]
    for path in paths[:2]:
        write_arrays(path, arrays)
    np.savez_compressed(paths[2], **arrays)
    np.savez(paths[3], **arrays)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    for path in paths:
        found = read_arrays(path, hint="")
        assert [*found] == [*arrays]
        assert all(np.array_equal(found[name], array) for name, array in arrays.items())
        assert all(found[name].dtype == array.dtype for name, array in arrays.items())
